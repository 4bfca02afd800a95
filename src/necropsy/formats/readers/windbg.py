"""WinDbg and cdb: ``!analyze -v``, ``.exr -1``, the line at which a program stopped, and the stacks of ``k``.

Formats: Microsoft Learn, *Using the !analyze extension*, *.exr*, *k, kb, kc, kd, kp, kP, kv (Display Stack
Backtrace)*; sessions in public threads (ApeWorX/web3.py#2253, Azure/azure-cli#30792, StorjOld/storjnode#94).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.formats import backtrace, disassembly
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.windbg_frames import BARE, HEX, Shown, frame_of, row_of, thread_of
from necropsy.formats.windows_exits import (
    ABORTED,
    FAST_FAIL,
    STACK_OVERFLOW,
    access_named,
    end_of,
    ends_in_abort,
    fault_of,
    is_status,
    python_version,
)
from necropsy.lazy_re import regex
from necropsy.model import Address, Crash, Environment, Frame, Instruction, Stack, Thread

KIND = "windbg"
_REACH = 2500
_WIDEST = 1500
_GAP = 150
"""Lines of something else (modules that are loaded) that may stand between the parts of one session."""
_ABOVE = 80
"""Lines before the first sure sign of a session: registers, the instruction, the versions of the process."""
_FRAMES = 70_000

_STOPPED = regex(
    r"\((?P<pid>[0-9a-f]{1,8})\.(?P<tid>[0-9a-f]{1,8})\): .{1,80} - code (?P<code>[0-9a-f]{8}) "
    r"\((?P<chance>first chance|!!! second chance !!!|first/second chance not available)"
)
_CODE = regex(
    r"(?:ExceptionCode:|EXCEPTION_CODE_STR: |EXCEPTION_CODE: \(NTSTATUS\)) {0,4}(?:0x)?(?P<code>[0-9a-fA-F]{8})\b"
)
_PARAMETER = regex(
    r"(?:Parameter\[(?P<index>[0-3])\]:|EXCEPTION_PARAMETER(?P<number>[1-4]): ) {0,4}(?P<value>[0-9a-f`]{8,17})\b"
)
_ATTEMPT = regex(
    rf"Attempt to (?P<what>read from|write to|execute non-executable) address (?P<address>{HEX}|[0-9a-f]{{8}})\b"
)
_ACCESSED = regex(rf"(?P<what>READ|WRITE)_ADDRESS: {{1,4}}(?P<address>{HEX}|[0-9a-f]{{8}})\b")
_SUBCODE = regex(r"Subcode: 0x(?P<value>[0-9a-f]{1,8})\b")
_ADDRESS = regex(rf"ExceptionAddress: (?P<address>{HEX}|[0-9a-f]{{8}})(?: \((?P<symbol>[^()\n]{{1,500}})\))?")
_FIELD = regex(
    r"(?P<name>PROCESS_NAME|IMAGE_NAME|FAULTING_THREAD|SYMBOL_NAME|FAILURE_BUCKET_ID): {1,4}(?P<value>\S.{0,300})"
)
_VERSION = regex(r"Value: (?P<version>\d{1,6}\.\d{1,6}\.\d{1,6}\.\d{1,6})\s*$")
_REGISTER = regex(rf"\b(?P<name>r[a-z0-9]{{1,2}}|e[a-ds][xpi]|eip)=(?P<value>{HEX}|[0-9a-f]{{8}})\b")
_INSTRUCTION = regex(
    rf"(?P<address>{HEX}) (?P<bytes>(?:[0-9a-f]{{2}}){{1,15}})\s+(?P<text>[a-z][a-z0-9]{{1,15}}(?:\s.{{0,120}})?)$"
)
_UNREADABLE = regex(rf" [d-gs]s:(?P<address>{HEX}|[0-9a-f]{{8}})=\?{{4,16}}\s*$")
"""Behind an instruction: the address that it goes to, and that nothing can be read there."""
_HIGHEST = 1 << 47
"""Windows names no address above that: it gives the highest one there is instead."""
_FAST_FAIL = regex(r"\s{0,8}Value: (?P<value>\d{1,4})\s*$")
_PLACE = regex(r"(?P<symbol>[A-Za-z_][\w.]{1,80}!\S.{0,500}\+0x[0-9a-f]{1,8}):$")
_THREAD = regex(
    r"(?P<mark>[.# ])\s{0,4}(?P<number>\d{1,6})\s{1,4}Id: (?P<pid>[0-9a-f]{1,8})\.(?P<tid>[0-9a-f]{1,8}) "
    r"Suspend: \S{1,6} Teb: \S{1,20}"
    r"(?: (?:Unf|F)rozen)?(?: \"(?P<name>[^\"]{1,80})\")?"
)
_HEADER = regex(r"\s{0,4}(?:# )?(?:Child-SP|ChildEBP|RetAddr|Call Site)\b")
_UNINTERESTING = {0x80000003, 0x80000004, 0x4000001F, 0x406D1388, 0xE0434352}
"""First chances that mean nothing: the debugger's own breakpoints, the naming of threads, exceptions of .NET."""
_OF_THE_PROCESSOR = {0xC0000005, 0xC0000006, 0xC00000FD, 0xC000001D, 0xC0000094, 0xC0000096, 0xC0000374}


@dataclass
class _Session:
    code: int | None = None
    sure: bool = False
    """The code is that of the exception record or of a second chance; a first chance may have been handled."""
    pid: int | None = None
    tid: int | None = None
    parameters: dict[int, int] = field(default_factory=dict)
    attempt: tuple[int, int] | None = None
    subcode: int | None = None
    next_is_subcode: bool = False
    address: int | None = None
    symbol: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    version: str | None = None
    registers: dict[str, int] = field(default_factory=dict)
    instruction: tuple[int, str] | None = None
    unreadable: int | None = None
    stacks: list[Shown] = field(default_factory=list)
    first: int = 0
    last: int = 0


_OF_THE_RUNTIME = regex(r"__report_\w+failure|__security_check_cookie|_CxxThrowException|_invoke_watson|_purecall")
"""Functions of Microsoft's runtime that each library may have for itself."""


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The session around a line that holds a trigger."""
    for at in range(index - 1, max(-1, index - _GAP), -1):
        if any(trigger in lines[at].text for trigger in _TRIGGERS):
            return None  # asked for before: it was no session, or it ends above
    session = _session(lines, index)
    crash = _crash(session)
    return (
        TextReport(KIND, lines[session.first].number, lines[session.last].number, crash) if crash is not None else None
    )


def _session(lines: Sequence[Line], index: int) -> _Session:
    session = _Session(first=index, last=index)
    start = max(0, index - _ABOVE)
    thread: re.Match[str] | None = None
    stack: Shown | None = None
    analyzed = expected = False
    for at in range(start, min(len(lines), start + _REACH)):
        text = lines[at].text[:_WIDEST].rstrip()
        if text.startswith("STACK_TEXT:"):
            stack, analyzed, session.last, expected = None, True, at, True
            text = text.removeprefix("STACK_TEXT:")
        if (header := _THREAD.match(text)) is not None:
            thread, stack, session.last, expected = header, None, at, True
        elif (row := row_of(text, in_stack=stack is not None or expected)) is not None:
            expected = False
            if stack is None:
                marked = thread is not None and thread["mark"] in {".", "#"}
                tid = int(thread["tid"], 16) if thread else None
                stack = Shown(tid, thread["name"] if thread else None, marked, analyzed)
                session.stacks.append(stack)
                session.first = min(session.first, at)
            if len(stack.rows) < _FRAMES:
                stack.rows.append(frame_of(row, len(stack.rows)))
            session.last = max(session.last, at)
        elif _HEADER.match(text):
            expected = True
        elif text.startswith(("WARNING: ", "*** ")):
            continue
        else:
            if text.strip() and stack is not None:
                stack, analyzed, thread = None, False, None
            if _take(session, text):
                session.first, session.last = min(session.first, at), max(session.last, at)
            elif at - session.last > _GAP:
                break
    session.last = max(session.last, index)
    return session


def _take(session: _Session, text: str) -> bool:
    if match := _STOPPED.search(text):
        code = int(match["code"], 16)
        second = match["chance"] != "first chance"  # in a dump there is only the one that was fatal
        if not session.sure and (second or code not in _UNINTERESTING):
            session.code, session.sure = code, second
            session.pid, session.tid = int(match["pid"], 16), int(match["tid"], 16)
        return True
    if match := _CODE.search(text):
        if not session.sure:
            session.code, session.sure = int(match["code"], 16), True
        return True
    if match := _PARAMETER.search(text):
        place = int(match["index"]) if match["index"] else int(match["number"]) - 1
        session.parameters.setdefault(place, int(match["value"].replace("`", ""), 16))
        return True
    if match := _ATTEMPT.search(text) or _ACCESSED.search(text):
        access = {"r": 0, "R": 0, "w": 1, "W": 1, "e": 8}[match["what"][0]]
        session.attempt = session.attempt or (access, int(match["address"].replace("`", ""), 16))
        return True
    if match := _SUBCODE.search(text):
        session.subcode = int(match["value"], 16)
        return True
    if match := _ADDRESS.search(text):
        session.address, session.symbol = int(match["address"].replace("`", ""), 16), match["symbol"]
        return True
    if match := _FIELD.match(text):
        session.fields.setdefault(match["name"], match["value"].strip())
        return True
    if text.strip() == "Key  : FailFast.Type":
        session.next_is_subcode = True
        return True
    if session.next_is_subcode and (match := _FAST_FAIL.match(text)):
        session.subcode, session.next_is_subcode = int(match["value"]), False
        return True
    if match := _VERSION.search(text):
        session.version = session.version or match["version"]
        return False
    if found := _REGISTER.findall(text):
        session.registers |= {name: int(value.replace("`", ""), 16) for name, value in found}
        return len(found) > 1
    if match := _PLACE.match(text):
        session.symbol = session.symbol or match["symbol"]
        return False
    if (match := _INSTRUCTION.match(text.strip())) and session.instruction is None:
        shown = match["text"].split(" ds:")[0].split(" ss:")[0].strip()
        session.instruction = int(match["address"].replace("`", ""), 16), _hexadecimal(shown)
        if goes := _UNREADABLE.search(match["text"]):
            session.unreadable = int(goes["address"].replace("`", ""), 16)
        return True
    return False


def _hexadecimal(text: str) -> str:
    """``[rax+8h]`` as other disassemblers write it: ``[rax+0x8]``."""
    return re.sub(r"\b([0-9][0-9a-fA-F]{0,15})h\b", r"0x\1", text)


# ---------------------------------------------------------------- session -> crash


def _crash(session: _Session) -> Crash | None:
    code = session.code
    if code is not None and not is_status(code):
        code = None
    best = _best(session)
    if code is None or not (session.sure or (best is not None and code in _OF_THE_PROCESSOR)):
        # A stack alone, and an exception that may have been handled, are no death.
        return _stack_alone(session, best)
    subcode = session.subcode if session.subcode is not None else session.parameters.get(0)
    tid = session.tid if session.tid is not None else _integer(session.fields.get("FAULTING_THREAD"))
    said = f"exception code 0x{code:08X}" + (f" at {session.symbol}" if session.symbol else "")
    instruction = _instruction(session)
    access = session.attempt or tuple(value for _, value in sorted(session.parameters.items())[:2])
    return Crash(
        pid=session.pid,
        exit=end_of(code, said, subcode),
        fault=fault_of(code, access or _went_to(session, instruction)),
        threads=(thread_of(best, tid=tid, code=code),) if best is not None else _lone(session, tid, code),
        registers={name: Address(value) for name, value in session.registers.items()} or None,
        instruction=instruction,
        environment=_environment(session),
    )


def _best(session: _Session) -> Shown | None:
    """The stack of the thread that crashed: that of the analysis, else of the marked thread, else the longest."""
    shown = [stack for stack in session.stacks if len(stack.rows) > 1 or stack.analyzed]
    for wanted in (lambda one: one.analyzed, lambda one: one.marked, lambda one: one.tid is None):
        found = [stack for stack in shown if wanted(stack)]
        if found:
            return max(found, key=lambda stack: len(stack.rows))
    return shown[0] if shown else None


def _stack_alone(session: _Session, best: Shown | None) -> Crash | None:
    """A stack without an exception, like a debugger's table: the cause is unknown."""
    if best is None or len(best.rows) < 3 or not any(pointer is not None for _, pointer in best.rows):
        return None
    thread = thread_of(best, tid=session.tid, code=None)
    ended = ends_in_abort(thread.frames or ())
    return Crash(
        pid=session.pid,
        exit=end_of(FAST_FAIL, "the stack ends in abort()", ABORTED) if ended else None,
        threads=(msgspec.structs.replace(thread, crashed=ended),),
        environment=_environment(session),
    )


def _lone(session: _Session, tid: int | None, code: int) -> tuple[Thread, ...] | None:
    frames: tuple[Frame, ...] | None = None
    symbol = session.symbol or session.fields.get("SYMBOL_NAME")
    if symbol is not None and (match := BARE.match(re.sub(r"\+(?:0x)?0*(?=[0-9a-f]{1,8}$)", "+0x", symbol))):
        frame, _ = frame_of(match, 0)
        if frame.function is not None and _OF_THE_RUNTIME.match(frame.function):
            # Its caller noticed something, and has no name here; the library that both are in has one.
            frame = msgspec.structs.replace(frame, function=None)
        frames = (msgspec.structs.replace(frame, address=Address(session.address) if session.address else None),)
    elif session.address is not None:
        frames = (backtrace.native(0, None, address=session.address),)
    stack = Stack(guard_hit=True) if code == STACK_OVERFLOW else None
    if frames is None and stack is None and tid is None:
        return None
    return (Thread(tid=tid, crashed=True, frames=frames, stack=stack),)


def _instruction(session: _Session) -> Instruction | None:
    if session.instruction is None:
        return None
    address, text = session.instruction
    counter = session.registers.get("rip", session.registers.get("eip", session.address))
    return disassembly.instruction(address, text, session.registers) if counter in {None, address} else None


def _went_to(session: _Session, instruction: Instruction | None) -> tuple[int, ...]:
    """The parameters of an access violation, by the address that the debugger shows behind the instruction."""
    operands = instruction.operands if instruction is not None else ()
    if session.unreadable is None or session.unreadable >= _HIGHEST or len(operands) != 1:
        return ()
    kind = access_named(operands[0].access)
    return (kind, session.unreadable) if kind is not None else ()


def _environment(session: _Session) -> Environment:
    program = session.fields.get("PROCESS_NAME")
    version = python_version(program or "", session.version or "")
    return Environment(platform="Windows", python=version, executable=program)


def _integer(text: str | None) -> int | None:
    value = backtrace.hexadecimal(text)
    return value if value is not None and 0 < value < 0xFFFFFFFF else None


_TRIGGERS = (
    " - code c0",
    " - code e0",
    " - code 8000000",
    "ExceptionCode: ",
    "EXCEPTION_CODE: ",
    "EXCEPTION_CODE_STR: ",
    "EXCEPTION_RECORD: ",
    "ExceptionAddress: ",
    "STACK_TEXT:",
    "FAILURE_BUCKET_ID: ",
    "Child-SP ",
    "ChildEBP ",
    "RetAddr ",
    "!analyze -v",
)
READER = TextReader(kind=KIND, triggers=_TRIGGERS, read=read, reach=_REACH)
