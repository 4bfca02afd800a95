"""pystack's report of a core or a process: Python's and native frames of each thread, the outermost first.

Format of pystack 1.0 to 1.7 (src/pystack/traceback_formatter.py, src/pystack/__main__.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from necropsy.formats import backtrace
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.lazy_re import regex
from necropsy.model import Address, Crash, Exit, Fault, Frame, Thread

REACH = 4000
_UNKNOWN = 12

_THREAD = regex(
    r"Traceback for thread (?P<tid>\d+)(?: \((?P<name>[^)]*)\))? \[(?P<state>[^\]]*)\] \(most recent call last\):"
)
_FRAME = regex(
    r"\((?P<kind>Python|C)\) File \"(?P<file>[^\"]*)\", line (?P<line>\d+), in (?P<function>.+?)"
    r"(?P<inlined> \(inlined\))?(?: \((?P<module>[^()]+)\))?$"
)
_DIED_AT = regex(r"The process died due a segmentation fault accessing address: (?P<address>0x[0-9A-Fa-f]+)")
_DIED = regex(r"The process died due receiving signal (?P<signal>SIG\w+)(?: sent by pid (?P<sender>\d+))?")
_PID = regex(r"pid: (?P<pid>\d+) ppid: ")
_CORE = "Core file information:"
_OWN = regex(r"state: |uid: |executable: |Using executable |\* - |Arguments:|Locals:|\w[\w.]*: .")
_GIL = "Has the GIL"
_UNNAMED = {"???", ""}


@dataclass
class _Thread:
    tid: int
    name: str | None
    state: str
    rows: list[Frame] = field(default_factory=list)


@dataclass
class _Dump:
    threads: list[_Thread] = field(default_factory=list)
    signal: str | None = None
    address: int | None = None
    sender: int | None = None
    pid: int | None = None
    core: bool = False


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    dump = _Dump()
    last, unknown = None, 0
    for at in range(index, min(len(lines), index + REACH)):
        text = backtrace.bare(lines[at].text)
        if text.startswith(_CORE) and dump.threads:
            break
        own = _take(dump, text)
        if own or not text or lines[at].text.startswith("      ") or _OWN.match(text):
            unknown = 0 if own else unknown
            last = at if own or (last is not None and text) else last
        else:
            unknown += 1
        if unknown > _UNKNOWN or (at - index > backtrace.BEFORE and not dump.threads):
            break
    if last is None or not (dump.threads or dump.signal):
        return None
    return TextReport("pystack", lines[index].number, lines[last].number, _crash(dump))


def _take(dump: _Dump, text: str) -> bool:
    if match := _FRAME.match(text):
        if dump.threads:
            dump.threads[-1].rows.append(_frame(match))
        return bool(dump.threads)
    if match := _THREAD.match(text):
        dump.threads.append(_Thread(int(match["tid"]), match["name"], match["state"]))
    elif match := _DIED_AT.match(text):
        dump.signal, dump.address = "SIGSEGV", backtrace.hexadecimal(match["address"])
    elif match := _DIED.match(text):
        dump.signal = match["signal"]
        dump.sender = int(match["sender"]) if match["sender"] else None
    elif match := _PID.match(text):
        dump.pid = int(match["pid"])
    elif text.startswith(_CORE):
        dump.core = True
    else:
        return False
    return True


def _frame(match: re.Match[str]) -> Frame:
    line = int(match["line"])
    if match["kind"] == "Python":
        return backtrace.python(0, match["function"], match["file"], line)
    known = match["file"] not in _UNNAMED
    return backtrace.native(
        0,
        match["function"].split("@@", 1)[0],
        module=match["module"],
        source=match["file"] if known else None,
        line=line if known and line else None,
    )


def _crash(dump: _Dump) -> Crash:
    died = _died(dump)
    threads = tuple(_thread(one, crashed=one is died) for one in dump.threads)
    fault = None
    if dump.signal is not None:
        fault = Fault(
            signal=dump.signal,
            address=None if dump.address is None else Address(dump.address),
            sender=dump.sender,
            sent_by_itself=None if dump.sender is None else dump.sender == dump.pid,
        )
    lives = not dump.core and dump.signal is None
    return Crash(
        pid=dump.pid,
        exit=Exit(kind="running", text="read by pystack") if lives else None,
        fault=fault,
        threads=threads or None,
    )


def _died(dump: _Dump) -> _Thread | None:
    """The thread that crashed, which pystack does not name: the only one that does not wait, or that with the GIL."""
    if dump.signal is None:
        return None
    running = [one for one in dump.threads if backtrace.waits(_natives(one)) is None]
    if len(running) == 1:
        return running[0]
    holding = [one for one in running if _GIL in one.state]
    return holding[0] if len(holding) == 1 else None


def _natives(one: _Thread) -> list[Frame]:
    return [row for row in reversed(one.rows) if row.kind == "native"]


def _thread(one: _Thread, *, crashed: bool) -> Thread:
    rows = list(reversed(one.rows))
    natives: list[Frame] = []
    pythons: list[Frame] = []
    for row in rows:
        (pythons if row.kind == "python" else natives).append(row)
    frames = [_numbered(frame, index) for index, frame in enumerate(natives)]
    if crashed:
        frames, _ = backtrace.below_handler(frames)
    named = [_numbered(frame, index) for index, frame in enumerate(pythons)]
    thread = backtrace.thread(
        frames,
        tid=one.tid,
        name=one.name,
        crashed=crashed,
        python=tuple(named),
        holds_gil=_GIL in one.state or None,
    )
    return (
        thread
        if frames
        else Thread(tid=one.tid, name=one.name, crashed=crashed, python=tuple(named), holds_gil=thread.holds_gil)
    )


def _numbered(frame: Frame, index: int) -> Frame:
    from msgspec.structs import replace

    return replace(frame, index=index)


READER = TextReader(
    kind="pystack",
    triggers=("Traceback for thread ", "The process died due ", _CORE),
    read=_read,
    reach=REACH,
)
