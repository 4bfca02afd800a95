"""Stacks of backward-cpp and of Boost.Stacktrace.

::

    Stack trace (most recent call last):
    #1    Object "/usr/lib/libop.so", at 0x7f3e, in op::Fill(int*, int)
    #0    Source "/src/op.cc", line 12, in op::Fill [0x7f3e]
    Segmentation fault (Address not mapped to object [0x10])

     0# op::Fill(int*, int) at /src/op.cc:12
     1# 0x00007F3E in /usr/lib/libop.so

backward.hpp (``Printer``, ``SignalHandling``); boost/stacktrace/detail/frame_unwind.ipp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats import backtrace, frame_lines
from necropsy.formats.lines import Line
from necropsy.formats.signal_codes import code_in
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Crash, Fault, Frame

REACH = 600
_HEAD = re.compile(r"Stack trace \(most recent call (?P<order>last|first)\)")
_OBJECT = re.compile(
    r"#(?P<index>\d{1,4})\s+Object \"(?P<module>[^\"]*)\", at (?P<address>0x[0-9a-f]+|\(nil\)|0), "
    r"in (?P<function>\S.*)$"
)
_SOURCE = re.compile(
    r"#(?P<index>\d{1,4})\s+(?:\| )?Source \"(?P<source>[^\"]*)\", line (?P<line>\d+), in (?P<function>\S.*?)"
    r"(?: \[(?P<address>0x[0-9a-f]+)\])?$"
)
_NOTHING = re.compile(r"#(?P<index>\d{1,4})\s+Object \"\", at (?P<address>0x[0-9a-f]+|\(nil\)|0)")
_BOOST = re.compile(
    r"(?P<index>\d{1,4})# (?P<function>\S.*?)(?: at (?P<source>\S.*):(?P<line>\d{1,9})| in (?P<module>\S.*))?$"
)
_BARE_ADDRESS = re.compile(r"0x[0-9A-Fa-f]+$")
_DIED = re.compile(
    r"(?P<name>Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception) "
    r"\((?P<words>[^()\[\]]{3,80}?)(?: \[(?P<address>0x[0-9a-f]+|\(nil\))\])?\)"
)
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
}
_BELOW = 6


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    head = _HEAD.search(lines[index].text[: backtrace.LONGEST])
    if head is None:
        return _boost(lines, index)
    frames: list[Frame] = []
    numbers: list[int] = []
    last, others = index, 0
    fault: Fault | None = None
    for at in range(index + 1, min(len(lines), index + REACH)):
        text = backtrace.bare(lines[at].text)
        read = _frame(text)
        if read is not None:
            frames.append(read)
            numbers.append(read.index)
            last, others = at, 0
        elif match := _DIED.match(text):
            fault, last = _fault(match), at
            break
        else:
            # The source lines around each frame are printed too.
            others += bool(text)
            if others > 24:
                break
    if not frames:
        return None
    ordered = list(reversed(frames)) if head["order"] == "last" else frames
    crash = frame_lines.crash(frame_lines.without_handler(ordered), fault=fault)
    return TextReport("backward", lines[index].number, lines[last].number, crash)


def _frame(text: str) -> Frame | None:
    if match := _OBJECT.match(text):
        return backtrace.native(
            int(match["index"]), match["function"], module=match["module"], address=backtrace.number(match["address"])
        )
    if match := _SOURCE.match(text):
        return backtrace.native(
            int(match["index"]),
            match["function"],
            source=match["source"],
            line=int(match["line"]),
            address=backtrace.hexadecimal(match["address"]),
        )
    if match := _NOTHING.match(text):
        return backtrace.native(int(match["index"]), None, address=backtrace.number(match["address"]))
    return None


def _fault(match: re.Match[str]) -> Fault:
    address = backtrace.number(match["address"]) if match["address"] else None
    return frame_lines.fault(_SIGNALS[match["name"]], code=code_in(match["words"]), address=address)


def _boost(lines: Sequence[Line], index: int) -> TextReport | None:
    frames, end, _ = frame_lines.block(lines, index, (_boost_frame,), skip=0)
    if len(frames) < 2:
        return None
    # Who prints it, and whether it dies of it, it does not say.
    thread = backtrace.thread(frames)
    return TextReport("backward", lines[index].number, lines[end - 1].number, Crash(threads=(thread,)))


def _boost_frame(text: str, count: int) -> Frame | None:
    match = _BOOST.match(backtrace.bare(text))
    if match is None or int(match["index"]) != count:
        return None
    address = backtrace.hexadecimal(match["function"]) if _BARE_ADDRESS.match(match["function"]) else None
    return backtrace.native(
        count,
        None if address is not None else match["function"],
        module=match["module"],
        source=match["source"],
        line=int(match["line"]) if match["line"] else None,
        address=address,
    )


READER = TextReader(
    kind="backward",
    triggers=("Stack trace (most recent call ", " 0# "),
    read=_read,
    reach=REACH,
)
