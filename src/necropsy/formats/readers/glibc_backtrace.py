"""Stacks in the form of glibc's ``backtrace_symbols``: those of glibc up to 2.25, of catchsegv, and ``[bt]`` lists.

::

    *** Error in `python': double free or corruption (out): 0x00007ffc3ee7b1a0 ***
    ======= Backtrace: =========
    /lib/x86_64-linux-gnu/libc.so.6(+0x777e5)[0x7f46e14a77e5]
    ======= Memory map: ========

    Segmentation fault: 11
    Stack trace:
      [bt] (0) /usr/lib/libmxnet.so(+0x3c9c0a) [0x7f8f3f0c4c0a]

glibc's sysdeps/unix/sysv/linux/libc_fatal.c and debug/catchsegv.sh; dmlc-core's include/dmlc/logging.h (MXNet, XGBoost,
TVM, DGL), where the list belongs to a Python exception unless a signal is named above it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from necropsy.formats import backtrace, frame_lines
from necropsy.formats.exit_status import signal_name
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Address, Crash, Fault, Frame, Mapping, Module

REACH = 1500
_ABOVE = 8
"""Lines above a list in which the signal that it belongs to is named."""

_GLIBC = "======= Backtrace: ========="
_MAP = re.compile(r"======= Memory map: =+")
_MAPPING = re.compile(
    r"(?P<low>[0-9a-f]{6,16})-(?P<high>[0-9a-f]{6,16}) (?P<permissions>[r-][w-][x-][sp]) [0-9a-f]+ [0-9a-f:]+ \d+ *"
    r"(?P<path>\S.*)?$"
)
_CATCHSEGV = re.compile(r"\*\*\* (?P<words>Segmentation fault|signal \d+|Aborted|Bus error|Floating point exception)")
_DUMP = "Register dump:"
_REGISTER = re.compile(r"\b(?P<name>R[A-Z0-9]{1,2}|CR2|RIP|Trap|Error): +(?P<value>[0-9a-f]{8,16})\b")
_ENDED = re.compile(
    r"[^\s:]{1,200}:(?P<pid>\d{1,10}) terminated with signal (?P<number>\d{1,2}) at PC=(?P<pc>[0-9a-f]{1,16}) "
    r"SP=[0-9a-f]{1,16}\. +Backtrace:"
)
"""Intel's and PathScale's PSM, which MPI programs load."""
_LIST = re.compile(r"(?:Stack trace returned \d+ entries|Stack trace|Backtrace):\s*$")
_SIGNALLED = re.compile(
    r"(?P<name>Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception)(?:: \d+)?\s*$"
)
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
}
_WRITES, _FETCHES = 1 << 1, 1 << 4
"""Bits of x86's page-fault error code (Intel SDM, volume 3, 4.7)."""
_PAGE_FAULT = 14
_MOST_MAPPINGS = 1000


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    text = lines[index].text[: backtrace.LONGEST]
    if _DUMP in text:
        return _catchsegv(lines, index)
    if _GLIBC in text:
        return _glibc(lines, index)
    if match := _ENDED.search(text):
        return _ended(lines, index, match)
    return _list(lines, index)


def _glibc(lines: Sequence[Line], index: int) -> TextReport | None:
    """The stack that glibc prints when it aborts: the thread is the one that died."""
    frames, end, _ = frame_lines.block(lines, index + 1, (frame_lines.symbols_line,))
    if not frames:
        return None
    modules, last = _modules(lines, end)
    crash = frame_lines.crash(frames)
    thread = crash.threads
    return TextReport("glibc", lines[index].number, lines[last].number, Crash(threads=thread, modules=modules))


def _ended(lines: Sequence[Line], index: int, head: re.Match[str]) -> TextReport:
    """PSM's handler: the first frame is the one that faulted."""
    frames, end, _ = frame_lines.block(lines, index + 1, (frame_lines.symbols_line,))
    counter = int(head["pc"], 16)
    hit = next((at for at, frame in enumerate(frames) if frame.address == counter), 0)
    shown = [msgspec.structs.replace(frame, index=number) for number, frame in enumerate(frames[hit:])]
    crash = frame_lines.crash(shown, fault=frame_lines.fault(signal_name(int(head["number"]))), pid=int(head["pid"]))
    return TextReport("glibc", lines[index].number, lines[max(end - 1, index)].number, crash)


def _modules(lines: Sequence[Line], at: int) -> tuple[tuple[Module, ...] | None, int]:
    """The files of the memory map that may follow, and the position of its last line."""
    if at >= len(lines) or _MAP.search(lines[at].text[: backtrace.LONGEST]) is None:
        return None, at - 1
    spans: dict[str, tuple[int, int]] = {}
    last = at
    for position in range(at + 1, min(len(lines), at + 1 + _MOST_MAPPINGS)):
        one = _mapping(lines[position].text)
        if one is None:
            break
        last = position
        if one.path is not None and one.path.startswith("/"):
            low, high = spans.get(one.path, (one.low, one.high))
            spans[one.path] = min(low, one.low), max(high, one.high)
    found = tuple(Module(path=path, low=Address(low), high=Address(high)) for path, (low, high) in spans.items())
    return found or None, last


def _mapping(text: str) -> Mapping | None:
    match = _MAPPING.match(backtrace.bare(text))
    if match is None:
        return None
    return Mapping(
        low=Address(match["low"], 16),
        high=Address(match["high"], 16),
        permissions=match["permissions"],
        path=match["path"],
    )


def _catchsegv(lines: Sequence[Line], index: int) -> TextReport | None:
    """Registers and stack as libSegFault.so prints them."""
    start = index
    signal: str | None = None
    for at in range(index, max(-1, index - _ABOVE), -1):
        if match := _CATCHSEGV.search(lines[at].text[: backtrace.LONGEST]):
            start, signal = at, _SIGNALS.get(match["words"])
            break
    values: dict[str, int] = {}
    head = index
    for at in range(index + 1, min(len(lines), index + 60)):
        text = lines[at].text[: backtrace.LONGEST]
        for match in _REGISTER.finditer(text):
            values[match["name"]] = int(match["value"], 16)
        if text.strip() == "Backtrace:":
            head = at
            break
    frames, end, _ = frame_lines.block(lines, head + 1, (frame_lines.symbols_line,))
    if signal is None and not frames:
        return None
    registers = {name.lower(): Address(value) for name, value in values.items() if name.startswith("R")}
    fault = None if signal is None else _fault(signal, values)
    crash = frame_lines.crash(frames, fault=fault)
    last = end - 1 if frames else index
    threads = crash.threads
    return TextReport(
        "glibc",
        lines[start].number,
        lines[last].number,
        Crash(fault=fault, threads=threads, registers=registers or None),
    )


def _fault(signal: str, values: dict[str, int]) -> Fault:
    """A page fault's address is in CR2, and how it was accessed in the error code."""
    if values.get("Trap") != _PAGE_FAULT or signal not in {"SIGSEGV", "SIGBUS"}:
        return Fault(signal=signal, handled_first=True)
    error, address = values.get("Error", 0), values.get("CR2")
    if error & _FETCHES:
        return Fault(
            signal=signal, address=None if address is None else Address(address), access="exec", handled_first=True
        )
    return Fault(
        signal=signal,
        address=None if address is None else Address(address),
        access="write" if error & _WRITES else "read",
        handled_first=True,
    )


def _list(lines: Sequence[Line], index: int) -> TextReport | None:
    """A numbered list; whether it is of a death, what stands above it says."""
    start = index
    signal: str | None = None
    for at in range(index, max(-1, index - _ABOVE), -1):
        text = backtrace.bare(lines[at].text)
        if _LIST.search(text):
            start = at
        elif (match := _SIGNALLED.match(text)) and at < index:
            start, signal = at, _SIGNALS[match["name"]]
            break
    first = next((at for at in range(start, min(len(lines), index + 3)) if "[bt]" in lines[at].text), index)
    frames, end, _ = frame_lines.block(lines, first, (_bt_line,))
    if not frames:
        return None
    if signal is None:
        thread = backtrace.thread(frames)
        return TextReport("glibc", lines[start].number, lines[end - 1].number, Crash(threads=(thread,)))
    crash = frame_lines.crash(frame_lines.without_handler(frames), fault=frame_lines.fault(signal))
    return TextReport("glibc", lines[start].number, lines[end - 1].number, crash)


def _bt_line(text: str, count: int) -> Frame | None:
    return frame_lines.symbols_line(text, count) if "[bt]" in text else None


READER = TextReader(
    kind="glibc",
    triggers=(_GLIBC, _DUMP, "[bt] (0)", "[bt] (1)", " terminated with signal "),
    read=_read,
    reach=REACH,
)
