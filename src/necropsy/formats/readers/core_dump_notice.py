"""Notices of core collectors: systemd-coredump and coredumpctl, Ubuntu's apport, Fedora's ABRT.

Formats: systemd's src/coredump/coredump.c and src/shared/elf-util.c (the stack that elfutils unwound), coredumpctl.c;
apport's data/apport and apport/ui; abrt's abrt-hook-ccpp.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from necropsy.formats import backtrace, disassembly
from necropsy.formats.exit_status import signal_name
from necropsy.formats.frame_lines import without_handler
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport, is_foreign
from necropsy.lazy_re import regex
from necropsy.model import Access, Address, Crash, Environment, Exit, Fault, Frame, Instruction, Thread

KIND = "core-dump-notice"
_REACH = 3000
_WIDEST = 1500
_THREADS = 64
_BARE = 40
"""Rows below the first heading without any frame in it: there is no stack, and each heading asks anew."""

_DUMPED = regex(
    r"Process (?P<pid>\d{1,10}) \((?P<program>[^)]{1,60})\) of user \d{1,10} (?:dumped core|"
    r"killed by (?P<name>SIG[A-Z0-9+]{2,9})|killed by signal (?P<number>\d{1,2})|"
    r"terminated abnormally with signal (?P<both>\d{1,2})/)"
)
_TRACE = regex(r"\s{0,60}Stack trace of thread (?P<tid>\d{1,10}):")
_FRAME = regex(
    r"\s{0,60}#(?P<index>\d{1,6})\s{1,4}(?P<address>0x[0-9a-f]{1,16}) (?P<function>.{1,1000}?) "
    r"\((?P<module>[^()]{1,300}?)(?: \+ (?P<offset>0x[0-9a-f]{1,16}))?\)\s*$"
)
_NOTE = regex(r"\s{0,60}(?:Module \S|ELF object binary architecture|Found module )")
_INFO = regex(r"\s{1,16}(?P<name>PID|Signal|Executable|Command Line): (?P<value>.{1,300})")
_LISTED = regex(
    r"\s(?P<pid>\d{1,10})\s{1,12}\d{1,10}\s{1,12}\d{1,10}\s{1,12}(?P<signal>SIG[A-Z0-9+]{2,9})\s{1,8}"
    r"(?:present|missing|truncated|inaccessible|none|error|journal)\s{1,8}(?P<exe>/\S{1,300})"
)
_APPORT = regex(r"called for (?:global )?pid (?P<pid>\d{1,10})[, ].{0,40}?signal (?P<signal>\d{1,2}), core limit")
_APPORT_PROGRAM = regex(r"executable: (?P<exe>/\S{1,300}) \(command line")
_REPORT = regex(
    r"(?P<name>ExecutablePath|Signal|SignalName|SegvAnalysis|SegvReason|StacktraceTop): ?(?P<value>.{0,300})"
)
_HAPPENED = regex(r"Segfault happened at: (?P<at>0x[0-9a-f]{1,16})\b[^:]{0,200}:\s{0,8}(?P<text>\S.{0,150})")
_OPERAND = regex(
    r"(?P<role>source|destination) \"(?P<operand>[^\"]{1,80})\" \((?P<address>0x[0-9a-f]{1,16})\) "
    r"not located in a known VMA region"
)
_COUNTER = regex(r"PC \((?P<address>0x[0-9a-f]{1,16})\) not located in a known VMA region")
_TOP = regex(
    r"\s(?P<function>\S.{0,500}?) \((?:.{0,300})\) ?"
    r"(?:from (?P<module>\S{1,300})|at (?P<file>[^:]{1,300}):(?P<line>\d{1,7}))?$"
)
_ABRT = regex(r"reason:\s{1,12}(?P<program>\S{1,60}) killed by (?P<signal>SIG[A-Z]{2,6})")
_PROCESSOR = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"}


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The notice around a line that holds a trigger."""
    text = lines[index].text[:_WIDEST]
    for literal, reader in _FORMS:
        if literal in text and (piece := reader(lines, index)) is not None:
            return piece
    return None


def _crash(
    pid: int | None,
    signal: str | None,
    said: str,
    *,
    threads: Sequence[Thread] = (),
    program: str | None = None,
    fault: Fault | None = None,
    handled: bool = False,
) -> Crash:
    shown = any(thread.frames for thread in threads)
    if fault is None and shown and signal in _PROCESSOR:
        fault = Fault(signal=signal, handled_first=handled)
    return Crash(
        pid=pid,
        exit=Exit(kind="signaled", signal=signal, text=said.strip()[:300]) if signal else None,
        fault=fault,
        threads=tuple(threads) or None,
        environment=Environment(platform="Linux", executable=program),
    )


# ---------------------------------------------------------------- systemd and ABRT


def _dumped(lines: Sequence[Line], index: int) -> TextReport | None:
    match = _DUMPED.search(lines[index].text[:_WIDEST])
    if match is None or is_foreign(match["program"]):
        return None
    number = match["number"] or match["both"]
    signal = match["name"] or (signal_name(int(number)) if number else None)
    pid = int(match["pid"])
    first, executable, told, _ = _information(lines, index, pid)
    rest = lines[index].text
    if "#012" in rest:
        # rsyslog writes a message of several lines as one.
        (threads, handled), last = _stacks(rest.split("#012")[1:])[:2], index
    else:
        threads, handled, last = _below(lines, index)
    signal = signal or told or _of_abort(threads)
    program = executable or match["program"]
    crash = _crash(pid, signal, match[0].rstrip("/"), threads=threads, program=program, handled=handled)
    return TextReport(KIND, lines[first].number, lines[last].number, crash)


def _trace(lines: Sequence[Line], index: int) -> TextReport | None:
    """A stack without the notice above it, but perhaps with coredumpctl's fields."""
    if _TRACE.match(lines[index].text[:_WIDEST]) is None:
        return None
    threads, handled, last = _below(lines, index - 1)
    if not any(thread.frames for thread in threads):
        return None
    first, program, told, pid = _information(lines, index, None)
    signal, said = (told, f"Signal: {told}") if told else (_of_abort(threads), "abort() is on its stack")
    crash = _crash(pid, signal, said, threads=threads, program=program, handled=handled)
    return TextReport(KIND, lines[first].number, lines[max(index, last)].number, crash)


def _of_abort(threads: Sequence[Thread]) -> str | None:
    """SIGABRT where the stack ends in abort(): nothing else dumps a core from there."""
    frames = (threads[0].frames or ()) if threads else ()
    names = [frame.function for frame in frames[:6]]
    return "SIGABRT" if "abort" in names else None


def _information(lines: Sequence[Line], index: int, pid: int | None) -> tuple[int, str | None, str | None, int | None]:
    """The fields that coredumpctl writes above: where they begin, the program, the signal and the process."""
    first, executable, signal = index, None, None
    for at in range(index - 1, max(-1, index - 40), -1):
        match = _INFO.match(lines[at].text[:_WIDEST])
        if match is None:
            if _DUMPED.search(lines[at].text[:_WIDEST]):
                break
            continue
        value = match["value"].strip()
        if match["name"] == "Executable":
            executable = value
        elif match["name"] == "Signal":
            number = re.match(r"\d{1,2}", value)
            signal = signal_name(int(number[0])) if number else None
        elif match["name"] == "PID":
            if pid is not None and not value.startswith(str(pid)):
                return index, None, None, None
            shown = re.match(r"\d{1,10}", value)
            return at, executable, signal, int(shown[0]) if shown else None
        first = at
    return (first, executable, signal, None) if signal else (index, None, None, None)


def _below(lines: Sequence[Line], index: int) -> tuple[list[Thread], bool, int]:
    """The stacks below, whether the program had a handler, and the index of their last line."""
    below = range(index + 1, min(len(lines), index + _REACH))
    # Row by row, for most notices have nothing below them.
    threads, handled, used = _stacks(lines[at].text[:_WIDEST] for at in below)
    return threads, handled, index + used


def _stacks(rows: Iterable[str]) -> tuple[list[Thread], bool, int]:
    """The stacks, whether the program had a handler, and the rows they take; the first thread took the signal."""
    stacks: list[tuple[int, list[Frame]]] = []
    used = bare = 0
    framed = False
    for at, text in enumerate(rows, 1):
        bare += bool(stacks) and not framed
        if bare > _BARE:
            break
        if match := _TRACE.match(text):
            stacks.append((int(match["tid"]), []))
            used = at
        elif stacks and (match := _FRAME.match(text)):
            own = stacks[-1][1]
            frame = _frame(match)
            if not own or frame.index > own[-1].index:
                own.append(frame)
            framed = True
            used = at
        elif _NOTE.match(text):
            used = at
        elif at - used > (2 if text.strip() else 6):
            break
    handled = bool(stacks) and _is_handled(stacks[0][1])
    threads = [
        backtrace.thread(_of_program(frames), tid=tid, crashed=place == 0)
        for place, (tid, frames) in enumerate(stacks[:_THREADS])
        if frames or place == 0
    ]
    return threads, handled, used


def _of_program(frames: list[Frame]) -> list[Frame]:
    return without_handler(frames) if _is_handled(frames) else frames


def _is_handled(frames: Sequence[Frame]) -> bool:
    return any(frame.function == "__restore_rt" for frame in frames[:12])


def _frame(match: re.Match[str]) -> Frame:
    return backtrace.native(
        int(match["index"]),
        match["function"],
        module=match["module"].rsplit("/", 1)[-1],
        address=backtrace.hexadecimal(match["address"]),
        offset=backtrace.hexadecimal(match["offset"]) if match["module"] != "n/a" else None,
    )


def _listed(lines: Sequence[Line], index: int) -> TextReport | None:
    match = _LISTED.search(lines[index].text[:_WIDEST])
    if match is None or is_foreign(match["exe"].rsplit("/", 1)[-1]):
        return None
    crash = _crash(int(match["pid"]), match["signal"], match[0], program=match["exe"])
    return TextReport(KIND, lines[index].number, lines[index].number, crash)


def _abrt(lines: Sequence[Line], index: int) -> TextReport | None:
    match = _ABRT.search(lines[index].text[:_WIDEST])
    if match is None or is_foreign(match["program"]):
        return None
    crash = _crash(None, match["signal"], match[0], program=match["program"])
    return TextReport(KIND, lines[index].number, lines[index].number, crash)


# ---------------------------------------------------------------- apport


def _apport(lines: Sequence[Line], index: int) -> TextReport | None:
    """A line of /var/log/apport.log, and the one with the program below it."""
    match = _APPORT.search(lines[index].text[:_WIDEST])
    if match is None:
        return None
    program, last = None, index
    for at in range(index + 1, min(len(lines), index + 4)):
        if found := _APPORT_PROGRAM.search(lines[at].text[:_WIDEST]):
            program, last = found["exe"], at
            break
    if program is not None and is_foreign(program.rsplit("/", 1)[-1]):
        return None
    crash = _crash(int(match["pid"]), signal_name(int(match["signal"])), match[0], program=program)
    return TextReport(KIND, lines[index].number, lines[last].number, crash)


def _report(lines: Sequence[Line], index: int) -> TextReport | None:
    """An apport ``.crash`` file, or its text in Launchpad: fields, whose further lines are indented."""
    fields: dict[str, list[str]] = {}
    first = last = index
    while first > 0 and index - first < 60 and _is_field(lines[first - 1].text):
        first -= 1
    name: str | None = None
    for at in range(first, min(len(lines), index + 200)):
        text = lines[at].text[:_WIDEST]
        if match := _REPORT.match(text):
            name = match["name"]
            fields.setdefault(name, [match["value"]])
            last = max(at, index)
        elif name is not None and text.startswith(" "):
            fields[name].append(text)
            last = max(at, index)
        elif _is_field(text):
            name = None
        else:
            break
    number = re.match(r"\d{1,2}$", fields.get("Signal", [""])[0].strip())
    named = re.match(r"SIG[A-Z]{2,6}$", fields.get("SignalName", [""])[0].strip())
    signal = named[0] if named else (signal_name(int(number[0])) if number else None)
    analysis = "\n".join(fields.get("SegvAnalysis", []))
    if signal is None and not analysis:
        return None
    fault, instruction = _segfault(analysis)
    frames = [frame for place, text in enumerate(fields.get("StacktraceTop", [])[1:]) if (frame := _top(text, place))]
    threads = (backtrace.thread(frames, crashed=True, cut=True),) if frames else ()
    program = fields.get("ExecutablePath", [""])[0].strip() or None
    crash = _crash(None, signal or "SIGSEGV", f"Signal: {signal}", threads=threads, program=program, fault=fault)
    if instruction is not None:
        crash = Crash(
            **{**{name: getattr(crash, name) for name in crash.__struct_fields__}, "instruction": instruction}
        )
    return TextReport(KIND, lines[first].number, lines[last].number, crash)


def _is_field(text: str) -> bool:
    return text.startswith(" ") or re.match(r"[A-Z][\w.]{1,40}:", text) is not None


def _segfault(analysis: str) -> tuple[Fault | None, Instruction | None]:
    """What apport found in the instruction: the operand whose memory is missing."""
    happened = _HAPPENED.search(analysis)
    if happened is None:
        return None, None
    at = int(happened["at"], 16)
    text = happened["text"].strip()
    instruction = disassembly.instruction(at, text) if not text.startswith("Cannot") else None
    if match := _COUNTER.search(analysis):
        return Fault(signal="SIGSEGV", address=Address(int(match["address"], 16)), access="exec"), None
    if match := _OPERAND.search(analysis):
        access: Access = "read" if match["role"] == "source" else "write"
        return Fault(signal="SIGSEGV", address=Address(int(match["address"], 16)), access=access), instruction
    return Fault(signal="SIGSEGV"), instruction


def _top(text: str, place: int) -> Frame | None:
    match = _TOP.match(text)
    if match is None:
        return None
    line = backtrace.number(match["line"])
    return backtrace.native(place, match["function"], module=match["module"], source=match["file"], line=line)


_FORMS: tuple[tuple[str, Callable[[Sequence[Line], int], TextReport | None]], ...] = (
    (") of user ", _dumped),
    ("Stack trace of thread ", _trace),
    ("present", _listed),
    ("missing", _listed),
    ("truncated", _listed),
    ("none", _listed),
    (", core limit ", _apport),
    ("SegvAnalysis:", _report),
    ("SignalName:", _report),
    ("Signal: ", _report),
    ("killed by SIG", _abrt),
)
READER = TextReader(
    kind=KIND,
    triggers=(
        ") of user ",
        "Stack trace of thread ",
        "SIGSEGV present ",
        "SIGSEGV  present ",
        "SIGABRT present ",
        "SIGABRT  present ",
        "SIGBUS  present ",
        "SIGFPE  present ",
        "SIGILL  present ",
        "SIGSEGV missing",
        "SIGSEGV none",
        "SIGSEGV truncated",
        ", core limit ",
        "SegvAnalysis:",
        "SignalName:",
        "killed by SIG",
    ),
    read=read,
    reach=_REACH,
)
