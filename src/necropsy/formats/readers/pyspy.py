"""``py-spy dump``: Python threads of a live process, innermost call first. Format: py-spy 0.3, 0.4, src/dump.rs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from necropsy.formats import backtrace
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.lazy_re import regex
from necropsy.model import Crash, Environment, Exit, Frame, Thread

REACH = 4000
_UNKNOWN = 8
_HEAD = 5
"""Lines above the first thread in which the process and its Python are named."""

_PROCESS = regex(r"Process (?P<pid>\d+): (?P<command>\S.*)$")
_PYTHON = regex(r"Python v(?P<version>\d+\.\d+[.\w+]*)(?: \((?P<executable>[^)]+)\))?")
_THREAD = regex(
    r"Thread (?P<tid>0x[0-9A-Fa-f]+|\d+) \((?P<state>active|idle)(?P<gil>\+gil)?\)(?:: \"(?P<name>[^\"]*)\")?$"
)
_FRAME = regex(r"(?P<function>\S.*?) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")
_DETAIL = regex(r"(?:Arguments|Locals):$|\w[\w.]*: ")
_ADDRESS = regex(r"0x[0-9a-f]+$")
_PYTHON_FILE = regex(r"\.pyx?$|^<")


@dataclass
class _Thread:
    tid: int
    name: str | None
    idle: bool
    gil: bool
    native: list[Frame] = field(default_factory=list)
    python: list[Frame] = field(default_factory=list)


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    threads: list[_Thread] = []
    pid: int | None = None
    environment: Environment | None = None
    last, unknown = None, 0
    start = index
    for at in range(max(0, index - _HEAD), index):
        if _PROCESS.match(backtrace.bare(lines[at].text)):
            start = at
    for at in range(start, min(len(lines), index + REACH)):
        text = backtrace.bare(lines[at].text)
        if match := _THREAD.match(text):
            tid = backtrace.number(match["tid"]) or 0
            threads.append(_Thread(tid, match["name"], match["state"] == "idle", bool(match["gil"])))
        elif threads and (match := _FRAME.match(text)):
            _frame(threads[-1], match)
        elif not threads and (match := _PROCESS.match(text)):
            pid = int(match["pid"])
        elif not threads and (match := _PYTHON.match(text)):
            environment = Environment(python=match["version"], executable=match["executable"])
        elif not text:
            continue
        elif threads and _DETAIL.match(text):
            pass
        else:
            unknown += 1
            if unknown > _UNKNOWN:
                break
            continue
        last, unknown = at, 0
    if last is None or not threads:
        return None
    crash = Crash(
        pid=pid,
        exit=Exit(kind="running", text="read by py-spy"),
        threads=tuple(_thread(one) for one in threads),
        environment=environment,
    )
    return TextReport("py-spy", lines[start].number, lines[last].number, crash)


def _frame(thread: _Thread, match: re.Match[str]) -> None:
    """A frame of Python has a file and a line; a native one a library, or a source file where it is known."""
    function, file, line = match["function"], match["file"], match["line"]
    if _PYTHON_FILE.search(file) and line is not None:
        thread.python.append(backtrace.python(len(thread.python), function, file, int(line)))
        return
    address = backtrace.hexadecimal(function) if _ADDRESS.match(function) else None
    thread.native.append(
        backtrace.native(
            len(thread.native),
            None if address is not None else function,
            module=file if line is None else None,
            source=file if line is not None else None,
            line=int(line) if line is not None else None,
            address=address,
        )
    )


def _thread(one: _Thread) -> Thread:
    if not one.native:
        return Thread(tid=one.tid, name=one.name, python=tuple(one.python), holds_gil=one.gil or None)
    return backtrace.thread(one.native, tid=one.tid, name=one.name, python=tuple(one.python), holds_gil=one.gil or None)


READER = TextReader(
    kind="py-spy",
    triggers=("(active+gil)", "(idle+gil)", "(active)", "(idle)"),
    read=_read,
    reach=REACH,
)
