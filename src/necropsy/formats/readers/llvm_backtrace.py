"""The stack that LLVM prints from its signal handler: MLIR, XLA's tools, Triton, numba and compilers.

::

    PLEASE submit a bug report to https://github.com/llvm/llvm-project/issues/ and include the crash backtrace.
    Stack dump:
    0.      Program arguments: python train.py
     #0 0x00007f5f llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) (/lib/libtriton.so+0x123)

    Stack dump without symbol names (ensure you have llvm-symbolizer in your PATH ...):
    0  libtriton.so 0x00007f5f llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) + 41

llvm/lib/Support/Signals.cpp, Unix/Signals.inc (LLVM 3 to 21). The signal itself is not printed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats import backtrace, frame_lines, sanitizers
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Frame

REACH = 600
_HEAD_LINES = 40
_NUMBERED = re.compile(
    r"(?P<index>\d{1,4}) {1,6}(?P<module>\S+) {1,40}(?P<address>0x[0-9a-f]{8,16}) (?P<function>\S.*?)(?: \+ \d+)?$"
)
_RAISED = re.compile(r"(?:raise|abort|gsignal|__pthread_kill\w*|pthread_kill)$")


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    first = next(
        (at for at in range(index, min(len(lines), index + _HEAD_LINES)) if _frame(lines[at].text, 0) is not None), None
    )
    if first is None:
        return None
    frames, end, _ = frame_lines.block(lines, first, (_frame,))
    inner = frame_lines.without_handler(frames)
    if not inner:
        return None
    raised = inner[0].function is not None and _RAISED.match(inner[0].function.split("(", 1)[0])
    fault = frame_lines.fault("SIGABRT", code="SI_TKILL") if raised else None
    return TextReport("llvm", lines[index].number, lines[end - 1].number, frame_lines.crash(inner, fault=fault))


def _frame(text: str, count: int) -> Frame | None:
    text = backtrace.bare(text)
    if text.startswith("#"):
        return sanitizers.read_frame(text)
    match = _NUMBERED.match(text)
    if match is None or int(match["index"]) != count:
        return None
    return backtrace.native(
        count, match["function"], module=match["module"], address=backtrace.hexadecimal(match["address"])
    )


READER = TextReader(
    kind="llvm",
    triggers=(
        "Stack dump:",
        "Stack dump without symbol names",
        "PLEASE submit a bug report to",
        "llvm::sys::PrintStackTrace",
    ),
    read=_read,
    reach=REACH,
)
