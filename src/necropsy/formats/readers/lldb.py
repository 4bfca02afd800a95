"""lldb sessions: why each thread stopped, its frames, registers and the instruction.

Formats of lldb 10 to 20 on Linux and macOS (``default-thread-format``, ``default-frame-format`` in
lldb/source/Core/CoreProperties.td; the reasons in Plugins/Process/POSIX/CrashReason.cpp, Target/UnixSignals.cpp and
Plugins/Process/Utility/StopInfoMachException.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.formats import backtrace, exit_status
from necropsy.formats.disassembly import instruction
from necropsy.formats.lines import Line
from necropsy.formats.siginfo import WITH_ADDRESS, code_in
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.lazy_re import regex
from necropsy.model import Access, Address, Crash, Exit, Fault, Frame, Instruction, Module

REACH = 4000
_UNKNOWN = 40
_STATUS_FROM = 0x40000000
_STOPPED = {"SIGINT", "SIGSTOP", "SIGTSTP", "SIGCONT"}
"""Signals with which a debugger's user looks into a process that lives."""

_THREAD = regex(r"(?P<star>\* )?thread #(?P<number>\d+)(?:: tid = (?P<tid>0x[0-9a-f]+|\d+))?(?P<rest>,.*|)$")
_XCODE = regex(r"Thread (?P<number>\d+): (?P<reason>EXC_[A-Z_]+ \(code=.+|signal SIG\w+.*)$")
_NAME = regex(r", name = '(?P<name>[^']*)'")
_REASON = regex(r", stop reason = (?P<reason>.+)")
_FRAME = regex(
    r"(?:\* )?frame #(?P<index>\d{1,9}): (?P<address>0x[0-9a-f]{1,16})"
    r"(?: (?P<module>[^`]{1,300})`(?P<rest>.+)| (?P<only>\S.*))?$"
)
_OFFSET = regex(r" \+ \d+$")
_PLACE = regex(r" at (?P<source>\S.*?):(?P<line>\d{1,9})(?::\d+)?$")
_MARKS = regex(r"(?: \[(?:opt|artificial)\])+$")
_UNNAMED = regex(r"_{2,3}lldb_unnamed_(?:symbol|function)|_mh_execute_header")
_SIGNAL = regex(
    r"signal (?P<signal>SIG\w+)(?:: (?P<words>[^(]*[^( ]))?(?: ?\(fault address(?::|=) ?(?P<address>0x[0-9a-f]+)\))?"
)
_MACH = regex(r"EXC_(?P<name>[A-Z_]+) \(code=(?P<code>\w+)(?:, (?P<what>address|subcode)=(?P<address>0x[0-9a-f]+))?")
_WINDOWS = regex(
    r"Exception (?P<code>0x[0-9a-f]{8}) encountered at address (?P<pc>0x[0-9a-f]+)"
    r"(?:: Access violation (?P<access>reading|writing|executing) location (?P<address>0x[0-9a-f]+))?"
)
_EXITED = regex(
    r"Process (?P<pid>\d+) exited with status = (?P<code>-?\d+)(?: \(0x[0-9a-f]+\))?"
    r"(?: Terminated due to signal (?P<signal>\d+))?"
)
_PROCESS = regex(r"Process (?P<pid>\d+) (?:stopped|launched|exited)")
_AT = regex(r"->\s+(?P<address>0x[0-9a-f]+)(?: <\+\d+>)?:\s+(?P<text>\S.*)$")
_NOT_READ = regex(r"error: memory read failed for (?P<address>0x[0-9a-f]+)")
_REGISTER = regex(r"(?P<name>r[a-z]{2}|r\d{1,2}|x\d{1,2}|pc|sp|lr|fp) = (?P<value>0x[0-9a-f]{1,16})(?:\s|$)")
_IMAGE = regex(
    r"\[ {0,4}\d{1,5}\] (?:[0-9A-F-]{36} )?(?P<low>0x[0-9a-f]{1,16})(?: \(0x[0-9a-f]{1,16}\))? (?P<path>\S.*)$"
)
_OWN = regex(
    r"\(lldb\)|Process \d+ |Current executable|Target \d+: |-> |\s{0,4}\d+ {1,5}\t|\t|\s+0x[0-9a-f]+ <\+\d+>:|\S+`.*:$"
    r"|(?:General Purpose|Floating Point) Registers:|\s+\^|warning: |note: |settings "
)
_MACH_SIGNALS = {
    "BAD_ACCESS": "SIGSEGV",
    "BAD_INSTRUCTION": "SIGILL",
    "ARITHMETIC": "SIGFPE",
    "BREAKPOINT": "SIGTRAP",
    "CRASH": "SIGABRT",
}
_MACH_CODES = {
    ("BAD_ACCESS", "1"): "SEGV_MAPERR",
    ("BAD_ACCESS", "2"): "SEGV_ACCERR",
    ("BAD_ACCESS", "EXC_I386_GPFLT"): "SI_KERNEL",
    ("ARITHMETIC", "EXC_I386_DIV"): "FPE_INTDIV",
    ("BAD_INSTRUCTION", "EXC_I386_INVOP"): "ILL_ILLOPN",
}
"""KERN_INVALID_ADDRESS is 1 and KERN_PROTECTION_FAILURE 2 (osfmk/mach/kern_return.h)."""
_NUMBERS = {
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGBUS",
    11: "SIGSEGV",
    15: "SIGTERM",
}
_ACCESS: dict[str, Access] = {"reading": "read", "writing": "write", "executing": "exec"}


@dataclass
class _Thread:
    number: int
    tid: int | None = None
    name: str | None = None
    reason: str | None = None
    frames: list[Frame] = field(default_factory=list)
    shorter: list[Frame] = field(default_factory=list)

    def add(self, frame: Frame) -> None:
        if self.frames and frame.index <= self.frames[-1].index:
            if len(self.frames) > len(self.shorter):
                self.shorter = self.frames
            self.frames = []
        self.frames.append(frame)

    @property
    def best(self) -> list[Frame]:
        return self.frames if len(self.frames) >= len(self.shorter) else self.shorter


@dataclass
class _Session:
    threads: dict[int, _Thread] = field(default_factory=dict)
    now: _Thread | None = None
    starred: _Thread | None = None
    pid: int | None = None
    exit: Exit | None = None
    registers: dict[str, int] = field(default_factory=dict)
    at: tuple[int, str] | None = None
    unreadable: int | None = None
    images: dict[str, int] = field(default_factory=dict)

    @property
    def has_substance(self) -> bool:
        return self.exit is not None or any(one.frames or one.reason for one in self.threads.values())


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    session = _Session()
    start, last, unknown = _start(lines, index), None, 0
    for at in range(start, min(len(lines), index + REACH)):
        text = backtrace.bare(lines[at].text)
        if _begins_anew(session, text):
            break
        own = _take(session, text)
        if own or not text or _OWN.match(lines[at].text.lstrip(">|")):
            unknown = 0 if text else unknown
            last = at if own or (last is not None and text) else last
        else:
            unknown += 1
        if unknown > _UNKNOWN or (at - start > backtrace.BEFORE and not session.has_substance):
            break
    crash = _crash(session)
    if crash is None or last is None or last < index:
        return None
    return TextReport("lldb", lines[start].number, lines[last].number, crash)


def _start(lines: Sequence[Line], index: int) -> int:
    """The head of the frames around ``index``: a backtrace may be cut anywhere."""
    start = index
    for at in range(index - 1, max(-1, index - REACH), -1):
        text = backtrace.bare(lines[at].text)
        if not _FRAME.match(text) and not _THREAD.match(text):
            break
        start = at
    return start


def _begins_anew(session: _Session, text: str) -> bool:
    match = _PROCESS.match(text)
    return bool(match and session.pid is not None and int(match["pid"]) != session.pid and session.threads)


def _take(session: _Session, text: str) -> bool:
    if match := _FRAME.match(text):
        if session.now is None:
            session.now = session.threads.setdefault(0, _Thread(0))
        session.now.add(_frame(match))
        return True
    if match := _THREAD.match(text):
        number = int(match["number"])
        thread = session.threads.setdefault(number, _Thread(number))
        name, reason = _NAME.search(match["rest"]), _REASON.search(match["rest"])
        thread.tid = (backtrace.number(match["tid"]) or None) if match["tid"] else thread.tid
        thread.name = name["name"] if name else thread.name
        thread.reason = reason["reason"].strip() if reason else thread.reason
        session.now = thread
        session.starred = thread if match["star"] else session.starred
        return True
    if match := _XCODE.match(text):
        thread = session.threads.setdefault(int(match["number"]), _Thread(int(match["number"])))
        thread.reason = match["reason"]
        session.now = session.starred = thread
        return True
    if match := _EXITED.match(text):
        session.pid = int(match["pid"])
        session.exit = _exit(int(match["code"]), match["signal"])
        return True
    if match := _PROCESS.match(text):
        session.pid = int(match["pid"])
        return "stopped" in text
    if match := _AT.match(text):
        session.at = (int(match["address"], 16), match["text"].strip())
        return True
    if match := _REGISTER.match(text):
        session.registers[match["name"]] = int(match["value"], 16)
        return True
    if match := _IMAGE.match(text):
        session.images.setdefault(match["path"].strip(), int(match["low"], 16))
        return True
    if match := _NOT_READ.match(text):
        session.unreadable = int(match["address"], 16)
        return True
    return False


def _frame(match: re.Match[str]) -> Frame:
    index, address = int(match["index"]), int(match["address"], 16)
    if match["rest"] is None:
        return backtrace.native(index, None, module=match["only"], address=address)
    rest = _MARKS.sub("", match["rest"])
    # An argument may have a place of its own (``main=(python`main at python.c:15:12)``): the last one is the frame's.
    end = rest.rfind(" at ")
    place = _PLACE.match(rest, end) if end >= 0 else None
    rest = _OFFSET.sub("", rest[: place.start()] if place else rest)
    rest = rest.rsplit(" [inlined] ", 1)[-1]
    called = backtrace.call(rest, spaced=False)
    # Arguments have names (``x=1``); without debug information the brackets hold the parameters of the name.
    named = called.arguments is not None and ("=" in called.arguments or not called.arguments.strip())
    function = called.function if named else rest
    return backtrace.native(
        index,
        None if _UNNAMED.match(function) else function.removeprefix("::"),
        module=match["module"],
        source=place["source"] if place else None,
        line=int(place["line"]) if place else None,
        address=address,
        arguments=backtrace.pointers(called.arguments) if named else None,
    )


def _exit(code: int, signal: str | None) -> Exit:
    if signal is not None:
        return Exit(kind="signaled", signal=_NUMBERS.get(int(signal), f"signal {signal}"))
    if code & 0xFFFFFFFF >= _STATUS_FROM:
        status = exit_status.nt_status(code)
        return Exit(kind="exited", code=status.signed, ntstatus=status)
    return Exit(kind="exited", code=code)


def _crash(session: _Session) -> Crash | None:
    stopped = next((one for one in session.threads.values() if _is_death(one.reason)), None)
    shown = [one for one in session.threads.values() if one.best]
    caught = False
    if stopped is not None:
        stopped.frames, caught = backtrace.below_handler(stopped.best)
        stopped.shorter = []
    if stopped is None and not shown and session.exit is None:
        return None
    lives = stopped is None and session.exit is None and _is_looked_at(session, shown)
    if stopped is None and not lives and len(shown) == 1:
        stopped = shown[0]
    fault = _fault(session, stopped) if stopped is not None else None
    if fault is not None and caught:
        fault = msgspec.structs.replace(fault, handled_first=True, address=None, code=None)
    threads = tuple(
        backtrace.thread(
            one.best,
            tid=one.tid,
            name=one.name,
            crashed=one is stopped,
            stack=backtrace.by_stack(session.registers, fault.address)
            if one is stopped and fault is not None
            else None,
        )
        for one in session.threads.values()
        if one.best
    )
    crashed = next((one for one in threads if one.crashed), None)
    return Crash(
        pid=session.pid,
        exit=session.exit
        or (Exit(kind="running", text="stopped by the debugger") if lives and stopped is None else None),
        fault=fault,
        threads=threads or None,
        registers={name: Address(value) for name, value in session.registers.items()} or None,
        instruction=_instruction(session, stopped) if stopped is not None else None,
        # `image list` tells where a library begins, not where it ends.
        modules=tuple(Module(path=path, low=Address(low), high=Address(low)) for path, low in session.images.items())
        or None,
        gaps=backtrace.gaps(crashed) if crashed is not None else (),
    )


def _is_looked_at(session: _Session, shown: Sequence[_Thread]) -> bool:
    """The process is alive: stopped by Ctrl-C, or all shown threads wait. SIGSTOP occurs in cores too."""
    reasons = [match["signal"] for one in session.threads.values() if (match := _SIGNAL.match(one.reason or ""))]
    return "SIGINT" in reasons or (bool(shown) and all(backtrace.waits(one.best) is not None for one in shown))


def _is_death(reason: str | None) -> bool:
    """The thread stopped for a signal or an exception that ends programs, not at a breakpoint or for its user."""
    if reason is None:
        return False
    match = _SIGNAL.match(reason)
    if match is not None:
        return match["signal"] not in _STOPPED
    mach = _MACH.match(reason)
    return (mach is not None and mach["name"] in _MACH_SIGNALS) or _WINDOWS.match(reason) is not None


def _fault(session: _Session, thread: _Thread) -> Fault | None:
    reason = thread.reason or ""
    at = _instruction(session, thread)
    if match := _WINDOWS.match(reason):
        address = backtrace.hexadecimal(match["address"])
        access = _ACCESS.get(match["access"] or "")
        return None if address is None else Fault(signal="SIGSEGV", address=Address(address), access=access)
    if match := _SIGNAL.match(reason):
        if match["signal"] in _STOPPED:
            return None
        signal, code = match["signal"], code_in(match["words"] or "")
        given = backtrace.hexadecimal(match["address"]) if signal in WITH_ADDRESS else None
    elif match := _MACH.match(reason):
        signal, code = _MACH_SIGNALS[match["name"]], _MACH_CODES.get((match["name"], match["code"]))
        given = backtrace.hexadecimal(match["address"]) if match["what"] == "address" else None
    else:
        return None
    wild = at is not None and any(
        one.address is not None and one.address >> 47 not in {0, 0x1FFFF} for one in at.operands
    )
    # lldb calls an address that cannot exist invalid too, and shows 0 for it.
    address = None if code == "SI_KERNEL" or wild else given
    jumped = (
        address is not None and thread.best and thread.best[0].address == address and signal in {"SIGSEGV", "SIGBUS"}
    )
    return Fault(
        signal=signal,
        code=code,
        address=None if address is None else Address(address),
        access="exec" if jumped else None,
    )


def _instruction(session: _Session, thread: _Thread) -> Instruction | None:
    if session.at is not None:
        return instruction(*session.at, session.registers)
    counter = thread.best[0].address if thread.best else None
    if session.unreadable is not None and session.unreadable == counter:
        return Instruction(address=Address(session.unreadable))
    return None


READER = TextReader(
    kind="lldb",
    triggers=(
        ": EXC_BAD_ACCESS (",
        "stop reason = ",
        "frame #0: 0x",
        "frame #1: 0x",
        "frame #2: 0x",
        " exited with status = ",
        "thread #1",
        "thread #2",
    ),
    read=_read,
    reach=REACH,
)
