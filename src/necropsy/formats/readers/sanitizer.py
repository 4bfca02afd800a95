"""Reports of AddressSanitizer, HWAddressSanitizer, MemorySanitizer, ThreadSanitizer, LeakSanitizer and UBSan.

The line at a report's head is a message of the log; here it becomes a crash: the stack of the access, and the signal
that the sanitizer caught, if any.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from necropsy.formats import backtrace, sanitizers
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Access, Address, Crash, Fault, Frame, Message, Stack, Thread

_SIGNALS = {
    "SEGV": "SIGSEGV",
    "BUS": "SIGBUS",
    "FPE": "SIGFPE",
    "ILL": "SIGILL",
    "ABRT": "SIGABRT",
    "TRAP": "SIGTRAP",
    "stack-overflow": "SIGSEGV",
}
_ADDRESS = re.compile(r"on (?:unknown )?address (?P<address>0x[0-9a-f]{1,16})")
_AT = re.compile(r"\(pc (?P<pc>0x[0-9a-f]+) bp (?P<bp>0x[0-9a-f]+) sp (?P<sp>0x[0-9a-f]+)(?: (?P<thread>T\d+))?\)")
_CAUSED = re.compile(r"The signal is caused by a (?P<access>READ|WRITE) memory access")
_WILD = "dereference of a high value address"
_NO_CODE = "pc points to the zero page"
_REGISTER = re.compile(r"\b(?P<name>r[a-z]{2}|r\d{1,2}|x\d{1,2}|pc|sp) = (?P<value>0x[0-9a-f]{16})")
_ENDS = {"AddressSanitizer", "HWAddressSanitizer", "MemorySanitizer", "libFuzzer"}
_REFUSALS = (
    ("runtime-not-first", "AddressSanitizer", "ASan runtime does not come first in initial library list"),
    ("incompatible-runtimes", "AddressSanitizer", "linked against incompatible ASan runtimes"),
    ("shadow-memory-taken", "AddressSanitizer", "Shadow memory range interleaves with an existing memory mapping"),
    ("shadow-memory-taken", "ThreadSanitizer", "FATAL: ThreadSanitizer: unexpected memory mapping"),
    ("shadow-memory-taken", "MemorySanitizer", "FATAL: MemorySanitizer can not mmap the shadow memory"),
)
"""What a sanitizer says when it cannot begin (asan_linux.cpp, asan_rtl.cpp, tsan_platform_linux.cpp)."""
_SIGNAL_LOOP = "Sanitizer:DEADLYSIGNAL"
_LOOPS = 3
"""So many such lines in a row, with no report: each report dies of the same, before it can begin."""
_TAIL = 60
"""Lines behind the summary (the shadow bytes and their legend) in which ``==1==ABORTING`` is looked for."""


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    text = lines[index].text[: backtrace.LONGEST]
    head = sanitizers.HEAD.search(text)
    undefined = None if head else sanitizers.UNDEFINED.search(text)
    for refusal, whose, words in _REFUSALS:
        if words in text:
            return _refused(lines, index, index, refusal, whose)
    if _SIGNAL_LOOP in text:
        return _loop(lines, index)
    if head is None and undefined is None:
        return _headless(lines, index)
    rest = head["rest"] if head else (undefined["rest"] if undefined else "")
    kind = sanitizers.kind_of(rest) if head else rest
    tool = head["tool"] if head else None
    behind = [line.text for line in lines[index + 1 : index + 1 + sanitizers.WHOLE]]
    found = sanitizers.below(behind)
    more = sanitizers.fields_of(found)
    kind = sanitizers.exact(kind, more)
    fields = {"kind": kind, **({"tool": tool} if tool else {}), **more}
    if undefined is not None:
        fields |= {"file": undefined["file"], "source_line": undefined["line"]}
    message = Message(
        kind="sanitizer",
        text=lines[index].text.strip(),
        where=f"log line {lines[index].number}",
        line=lines[index].number,
        fields=fields,
    )
    last = index + 1 + _last(behind, found)
    pid = int(head["pid"]) if head and head["pid"] else None
    signal = _SIGNALS.get(kind) if head else None
    if signal is not None:
        crash = _signaled(signal, kind, rest, behind[: max(0, found.last + 1)], found)
    else:
        crash = Crash(threads=_threads(found, died=tool in _ENDS))
    return TextReport(
        "sanitizer",
        lines[index].number,
        lines[last].number,
        msgspec.structs.replace(crash, pid=pid, messages=(message,)),
    )


def _refused(lines: Sequence[Line], first: int, last: int, kind: str, tool: str) -> TextReport:
    """The program was ended before it had begun, by its own sanitizer."""
    line = lines[first]
    message = Message(
        kind="sanitizer",
        text=line.text.strip(),
        where=f"log line {line.number}",
        line=line.number,
        fields={"kind": kind, "tool": tool},
    )
    return TextReport("sanitizer", line.number, lines[last].number, Crash(messages=(message,)))


def _loop(lines: Sequence[Line], index: int) -> TextReport | None:
    last = index
    while last + 1 < min(len(lines), index + sanitizers.WHOLE) and _SIGNAL_LOOP in lines[last + 1].text:
        last += 1
    if last - index + 1 < _LOOPS:
        return None
    return _refused(lines, index, last, "shadow-memory-taken", lines[index].text.strip().split(":", 1)[0][:40])


def _headless(lines: Sequence[Line], index: int) -> TextReport | None:
    """Only the end of a report: its summary names the kind and the place, and the stack above it the access."""
    match = sanitizers.SUMMARY.search(lines[index].text[: backtrace.LONGEST])
    if match is None or "Sanitizer" not in match["tool"]:
        return None
    kind, _, place = match["summary"].partition(" ")
    if kind.isdigit() or not place:
        return None
    frame = sanitizers.read_frame(f"#0 {_turned(place.strip())}")
    fields = {"kind": kind, "tool": match["tool"], "summary": match["summary"]}
    if frame is not None and frame.function and not sanitizers.is_of_tool(frame):
        fields |= {"function": frame.function}
        fields |= {"file": frame.source} if frame.source else {}
        fields |= {"source_line": str(frame.line)} if frame.line else {}
    line = lines[index]
    message = Message(
        kind="sanitizer", text=line.text.strip(), where=f"log line {line.number}", line=line.number, fields=fields
    )
    return TextReport("sanitizer", line.number, line.number, Crash(messages=(message,)))


def _turned(place: str) -> str:
    where, _, function = place.partition(" in ")
    return f"{function} {where}" if function else place


def _last(behind: Sequence[str], found: sanitizers.SanitizerReport) -> int:
    """The position of the report's last line: its ``ABORTING``, else its summary."""
    if "summary" in found.fields:
        for at in range(found.last + 1, min(len(behind), found.last + _TAIL)):
            if behind[at].startswith("==") and behind[at].rstrip().endswith("==ABORTING"):
                return at
            if "Sanitizer" in behind[at] or ": runtime error: " in behind[at]:
                break
    return found.last


def _signaled(signal: str, kind: str, rest: str, behind: Sequence[str], found: sanitizers.SanitizerReport) -> Crash:
    said = "\n".join(behind[:8])
    at = _AT.search(rest)
    counter = backtrace.hexadecimal(at["pc"]) if at else None
    pointer = backtrace.hexadecimal(at["sp"]) if at else None
    address = _ADDRESS.search(rest)
    # Of other signals the runtime prints these words too, whatever the address was (IsTrueFaultingAddress).
    wild = _WILD in said and signal == "SIGSEGV"
    given = backtrace.hexadecimal(address["address"]) if address and _WILD not in said else None
    access: Access | None = None
    if caused := _CAUSED.search(said):
        access = "read" if caused["access"] == "READ" else "write"
    if _NO_CODE in said or (given is not None and given == counter and signal == "SIGSEGV"):
        access = "exec"
    full = kind == "stack-overflow"
    part = found.part("access") or (found.parts[0] if found.parts else None)
    registers = {one["name"]: Address(one["value"], 16) for one in _REGISTER.finditer("\n".join(behind))}
    threads: tuple[Thread, ...] | None = None
    if part is not None:
        frames = part.frames
        if full and at is not None and pointer is not None:
            frames = [_sized(frames[0], pointer, backtrace.hexadecimal(at["bp"])), *frames[1:]]
        main = bool(at and at["thread"] == "T0")
        stack = (
            Stack(guard_hit=True, pointer=None if pointer is None else Address(pointer), is_main=main) if full else None
        )
        threads = (backtrace.thread(frames, crashed=True, stack=stack),)
    return Crash(
        fault=Fault(
            signal=signal,
            code="SI_KERNEL" if wild else None,
            address=None if given is None else Address(given),
            access=access,
            handled_first=True,
        ),
        threads=threads,
        registers=registers or None,
        gaps=backtrace.gaps(threads[0]) if threads else (),
    )


def _sized(frame: Frame, pointer: int, base: int | None) -> Frame:
    if base is None or not 0 < base - pointer < 1 << 30:
        return frame
    return msgspec.structs.replace(frame, stack_bytes=base - pointer + 16)


def _threads(found: sanitizers.SanitizerReport, *, died: bool) -> tuple[Thread, ...] | None:
    """The stack of the access, and the other side of a race. A report that goes on has not ended the process."""
    shown = [part for part in found.parts if part.role in {"access", "again"} and part.frames]
    if not shown and found.parts and found.parts[0].role == "other":
        shown = found.parts[:1]
    return (
        tuple(
            backtrace.thread(part.frames, name=part.thread, crashed=died and number == 0)
            for number, part in enumerate(shown)
        )
        or None
    )


READER = TextReader(
    kind="sanitizer",
    triggers=(
        "Sanitizer: ",
        ": runtime error: ",
        "ERROR: libFuzzer: ",
        "ASan runtime",
        "Shadow memory range",
        _SIGNAL_LOOP,
        "FATAL: MemorySanitizer",
    ),
    read=_read,
    reach=sanitizers.WHOLE + _TAIL,
)
