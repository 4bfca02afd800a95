"""What PaddlePaddle's handler prints: its C++ calls, the most recent last, and the signal.

::

    --------------------------------------
    C++ Traceback (most recent call last):
    --------------------------------------
    0   paddle::AnalysisPredictor::ZeroCopyRun()
    ----------------------
    Error Message Summary:
    ----------------------
    FatalError: `Segmentation fault` is detected by the operating system.
      [TimeInfo: *** Aborted at 1706587367 (unix time) try "date -d @1706587367" if you are using GNU date ***]
      [SignalInfo: *** SIGSEGV (@0x0) received by PID 1 (TID 0x7f17d87ff6c0) from PID 0 ***]

paddle/phi/core/enforce.cc, paddle/fluid/platform/init.cc (Paddle 2.0 to 3.1). Glog's reader reads the signal's line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats import backtrace, frame_lines
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Crash, Frame

REACH = 400
_HEAD = "C++ Traceback (most recent call last):"
_FRAME = re.compile(r"(?P<index>\d{1,4})   (?P<function>\S.*)$")
_RULE = re.compile(r"-{10,}$")
_DETECTED = "is detected by the operating system"
_SUMMARY = "Error Message Summary:"


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    frames: list[Frame] = []
    last, native = index, False
    for at in range(index + 1, min(len(lines), index + REACH)):
        text = backtrace.bare(lines[at].text)
        if match := _FRAME.match(text):
            frames.append(backtrace.native(len(frames), match["function"]))
            last = at
        elif _DETECTED in text:
            last, native = at, True
            break
        elif text and not _RULE.match(text) and _SUMMARY not in text and not text.startswith("No stack trace"):
            break
    if not frames and not native:
        return None
    inner = frame_lines.without_handler(list(reversed(frames)))
    # Without a signal it is the C++ half of a Python exception.
    thread = backtrace.thread(inner, crashed=native) if inner else None
    return TextReport(
        "paddle", lines[index].number, lines[last].number, Crash(threads=(thread,) if thread is not None else None)
    )


READER = TextReader(kind="paddle", triggers=(_HEAD,), read=_read, reach=REACH)
