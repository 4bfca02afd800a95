"""The C++ stack that PyTorch's c10 prints with an exception, and with a signal that its handler caught.

::

    Exception raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:43 (most recent call first):
    frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f8d in /site-packages/torch/lib/libc10.so)

    SIGSEGV(11), PID: 3049, Thread 3095:
    frame #0: c10::get_backtrace[abi:cxx11](unsigned long, unsigned long, bool) + 0x6b (0x7f8d in libc10.so)

c10/util/Backtrace.cpp, c10/util/Exception.cpp, c10/util/signal_handler.cpp (PyTorch 1.0 to 2.9). Since 2.4 the frames
may be symbolized: ``#4 c10::Error::Error(...) from ??:0``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats import backtrace, frame_lines
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Crash, Frame

REACH = 600
_ABOVE = 40
"""Lines above the stack in which C++ says that nobody caught the exception."""

_FRAME = re.compile(
    r"frame #(?P<index>\d{1,5}): (?P<rest>\S.*) \((?P<address>0x[0-9a-f]{1,16}) in (?P<module>[^()]{1,500})\)$"
)
_NUMBERED = re.compile(r"#(?P<index>\d{1,5}) (?P<function>\S.*?) from (?P<source>\S+?):(?P<line>\d{1,9})$")
_OFFSET = re.compile(r" \+ 0x[0-9a-f]+$")
_SIGNAL = re.compile(r"(?P<signal>SIG[A-Z]+)\(\d+\), PID: (?P<pid>\d+), Thread (?P<tid>\d+):")
_UNCAUGHT = "terminate called "


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    head = _SIGNAL.search(lines[index].text[: backtrace.LONGEST])
    start = index + 1 if head else index
    frames, end, _ = frame_lines.block(lines, start, (_frame,), skip=4 if head else 1)
    if not frames and head is None:
        return None
    last = max(end - 1, index)
    if head is not None:
        crash = frame_lines.crash(
            frame_lines.without_handler(frames),
            fault=frame_lines.fault(head["signal"]),
            pid=int(head["pid"]),
            tid=int(head["tid"]),
        )
        return TextReport("c10", lines[index].number, lines[last].number, crash)
    # Python shows it with an exception; only one that nobody caught ends the program from here.
    above = lines[max(0, index - _ABOVE) : index]
    died = any(_UNCAUGHT in line.text for line in above)
    thread = backtrace.thread(frames, crashed=died)
    return TextReport("c10", lines[index].number, lines[last].number, Crash(threads=(thread,)))


def _frame(text: str, count: int) -> Frame | None:
    text = backtrace.bare(text)
    if match := _FRAME.match(text):
        function = _OFFSET.sub("", match["rest"])
        return backtrace.native(
            count,
            None if function == "<unknown function>" else function,
            module=match["module"],
            address=backtrace.hexadecimal(match["address"]),
        )
    if match := _NUMBERED.match(text):
        known = not match["source"].startswith("??")
        return backtrace.native(
            count,
            match["function"],
            source=match["source"] if known else None,
            line=int(match["line"]) if known and int(match["line"]) else None,
        )
    return None


READER = TextReader(
    kind="c10",
    triggers=("frame #0: c10::", "frame #0: ", ", PID: ", "C++ CapturedTraceback:", "#4 c10::Error::Error"),
    read=_read,
    reach=REACH,
)
