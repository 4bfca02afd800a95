"""Python's faulthandler: the signal or Windows' exception, and the Python stack of every thread.

Formats: Modules/faulthandler.c and Python/traceback.c of CPython 3.3 to 3.14; 3.14 shows the C stack too. Dumps lack
the fault's address and, before 3.14, the native function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from necropsy.formats import backtrace
from necropsy.formats.exit_status import signal_name
from necropsy.formats.fold import fold
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.windows_exits import end_of
from necropsy.lazy_re import regex
from necropsy.model import Crash, Exit, Fault, Fold, Frame, Gap, Stack, Thread

KIND = "faulthandler"
_REACH = 3000
_FATAL, _WINDOWS, _TIMEOUT = "Fatal Python error: ", "Windows fatal exception: ", "Timeout ("
_OVER = regex(r"Timeout \(\d{1,4}:\d\d:\d\d(?:\.\d{1,6})?\)!")
"""``dump_traceback_later``: the process lives, and takes longer than it should."""
_SIGNALS = {
    "segmentation fault": 11,
    "aborted": 6,
    "bus error": 7,
    "illegal instruction": 4,
    "floating point exception": 8,
    "floating-point exception": 8,
    "bad system call": 31,
}
_EXCEPTIONS = {
    "access violation": 0xC0000005,
    "page error": 0xC0000006,
    "stack overflow": 0xC00000FD,
    "int divide by zero": 0xC0000094,
    "integer overflow": 0xC0000095,
    "float divide by zero": 0xC000008E,
    "float overflow": 0xC0000091,
}
_THREAD_BEGINS = regex(r"(?<!\s)\s+(?:Current thread|Thread) 0x[0-9a-fA-F]")
_HEAD = regex(
    r"[\s>|]{0,40}(?P<who>Current thread|Thread) (?P<id>0x[0-9a-fA-F]{1,16})(?: \[(?P<name>[^\]]{0,64})\])?"
    r"(?: \(most recent call first\):|:)"
)
_HEAD_C = regex(r"[\s>|]{0,40}Current thread's C stack trace \(most recent call first\):")
_FRAME = regex(
    r'[\s>|]{0,40}File "(?P<file>[^"]{0,1000})", line (?P<line>\d{1,9}|\?\?\?)(?:,? in (?P<function>.{1,300}))?$'
)
_FRAME_C = regex(
    r'[\s>|]{0,40}Binary file "(?P<file>[^"]{0,1000})"'
    r"(?:, at (?P<function>[^+\s]{0,1000})\+0x(?P<offset>[0-9a-f]{1,16}))? \[0x(?P<address>[0-9a-f]{1,16})\]"
)
_BETWEEN = regex(
    r"[\s>|]{0,40}(?:\.\.\.|<no Python frame>|<invalid frame>|<freed interpreter>|Garbage-collecting|"
    r"<truncated rest of calls>)?$"
)
_BEHIND = regex(r"[\s>|]{0,40}(?:Extension modules: |Python runtime state: |Extension modules \()")
_BLANKS = 3
"""Empty lines that may follow each other inside of a dump; people double them when they paste."""


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The dump that begins at the line with the signal's words, or at its first thread where that line is missing."""
    said = _said(lines[index].text)
    start = index + 1 if said is not None else index
    if said is None and _HEAD.match(lines[index].text) is None:
        return None
    last, threads, gaps = _dump(lines, start)
    if not threads and (said is None or said.startswith(_TIMEOUT)):
        return None
    end, stack = _end(said or "")
    if stack is not None:
        threads = tuple(_with_stack(one, stack) for one in threads) or (Thread(crashed=True, stack=stack),)
    if end is None and not threads:
        return None
    signal = end.signal if end is not None else None
    # All that is known of the fault is its signal; where the calls say more, that is worth telling.
    full = signal is not None and any(one.crashed and one.folds for one in threads)
    fault = Fault(signal=signal, handled_first=True) if signal is not None and full else None
    crash = Crash(exit=end, fault=fault, threads=threads or None, gaps=gaps)
    return TextReport(kind=KIND, first=lines[index].number, last=lines[max(last, index)].number, crash=crash)


def _said(text: str) -> str | None:
    for word in (_FATAL, _WINDOWS):
        at = text.find(word)
        if at >= 0:
            # A text that lost its line breaks goes on behind the signal's words.
            return _THREAD_BEGINS.split(text[at:], maxsplit=1)[0].strip()
    over = _OVER.search(text)
    return over[0] if over else None


def _end(said: str) -> tuple[Exit | None, Stack | None]:
    """The exit that the words mean.

    ``Fatal Python error:`` with other words is the interpreter's own, whose rules know how that ends. Windows'
    exceptions are printed before any handler runs: only those that are hardly ever handled count as an end.
    """
    if said.startswith(_TIMEOUT):
        return Exit(kind="timeout", text=said), None
    what = said.removeprefix(_FATAL).removeprefix(_WINDOWS).strip().rstrip(".").lower()
    if said.startswith(_FATAL):
        number = _SIGNALS.get(what)
        return (Exit(kind="signaled", signal=signal_name(number), text=said) if number else None), None
    code = _EXCEPTIONS.get(what)
    if code is None:
        return None, None
    return end_of(code, said), Stack(guard_hit=True) if code == _EXCEPTIONS["stack overflow"] else None


def _with_stack(thread: Thread, stack: Stack) -> Thread:
    return msgspec.structs.replace(thread, stack=stack) if thread.crashed else thread


# ---------------------------------------------------------------- the threads


class _Open:
    def __init__(self, match: re.Match[str]) -> None:
        self.crashed = match["who"] == "Current thread"
        self.name = match["name"] or None
        self.python: list[Frame] = []
        self.frames: list[Frame] = []
        self.cut = False

    def done(self) -> Thread:
        native = backtrace.thread(self.frames, cut=self.cut) if self.frames else Thread()
        return Thread(
            name=self.name,
            crashed=self.crashed,
            python=tuple(self.python),
            frames=native.frames,
            frames_total=native.frames_total,
            complete=native.complete,
            folds=native.folds or _recursion(self.python),
        )


def _recursion(python: Sequence[Frame]) -> tuple[Fold, ...]:
    """The Python calls that fill a dump: it shows the innermost 100, however many there are."""
    runs = fold([(frame.source, frame.line, frame.function) for frame in python]) if len(python) >= _DEEP else ()
    return tuple(
        Fold(
            period=run.period,
            times=run.times,
            functions=tuple(python[index].function or "?" for index in run.unit),
            start=run.start,
            python=tuple(python[index] for index in run.unit),
        )
        for run in runs[:1]
        if run.frames >= _MOSTLY * len(python)
    )


_DEEP, _MOSTLY = 90, 0.8
"""Frames of a dump that is full, and the part of them that a recursion takes at least."""


def _dump(lines: Sequence[Line], start: int) -> tuple[int, tuple[Thread, ...], tuple[Gap, ...]]:
    """The last line of the dump, and its threads; a C stack belongs to the current one."""
    threads: list[_Open] = []
    in_c = False
    last, blanks = start - 1, 0
    for position in range(start, min(len(lines), start + _REACH)):
        text = lines[position].text
        if not text.strip():
            blanks += 1
            if blanks > _BLANKS:
                break
            continue
        if match := _HEAD.match(text):
            threads.append(_Open(match))
            in_c = False
        elif _HEAD_C.match(text):
            in_c = True
        elif (match := _FRAME_C.match(text)) and in_c:
            _native(threads, match)
        elif (match := _FRAME.match(text)) and threads:
            frames = threads[-1].python
            number = int(match["line"]) if match["line"].isdecimal() else None
            frames.append(backtrace.python(len(frames), match["function"], match["file"], number))
        elif not _BEHIND.match(text) and not (threads and _BETWEEN.match(text)):
            break
        elif "..." in text or "truncated" in text:
            for one in threads[-1:]:
                one.cut = True
        blanks = 0
        last = position
    gaps = tuple(
        Gap(part="threads", why="faulthandler shows the innermost 100 Python frames of a thread")
        for one in threads[:1]
        if any(one.cut and one.python for one in threads)
    )
    return last, tuple(one.done() for one in threads), gaps


def _native(threads: list[_Open], match: re.Match[str]) -> None:
    current = next((one for one in threads if one.crashed), threads[-1] if threads else None)
    if current is None:
        return
    current.frames.append(
        backtrace.native(
            len(current.frames),
            match["function"],
            module=match["file"],
            address=backtrace.hexadecimal(match["address"]),
        )
    )


READER = TextReader(
    kind=KIND,
    triggers=("Fatal Python error: ", "Windows fatal exception: ", "Current thread 0x", "Timeout ("),
    read=read,
    reach=_REACH,
)
