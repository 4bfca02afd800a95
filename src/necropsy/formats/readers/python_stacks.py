"""Stacks of every thread as pystack and py-spy print them, Python's and native frames merged.

Formats: pystack 1.3 to 1.6 (traceback_formatter.py, __main__.py), the innermost frame last; py-spy 0.3 and 0.4
(dump.rs), the innermost first. Values of variables are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from necropsy.formats import backtrace
from necropsy.formats.exit_status import signal_number
from necropsy.formats.lines import Line
from necropsy.formats.pieces import Piece, Reader
from necropsy.model import Address, Crash, Exit, Fault, Frame, Thread

PYSTACK, PY_SPY = "pystack", "py-spy"
_REACH = 4000
_BLANKS = 2

_DIED = re.compile(
    r"\s{0,40}The process died due (?:to )?(?:a segmentation fault accessing address: (?P<address>0x[0-9a-f]{1,16})|"
    r"receiving signal (?P<signal>SIG\w{1,8})(?: sent by pid (?P<sender>\d{1,10}))?)"
)
_PID = re.compile(r"\s{0,40}pid: (?P<pid>\d{1,10}) ppid: ")
_THREAD = re.compile(
    r"\s{0,40}Traceback for thread (?P<tid>\d{1,10})(?: \((?P<name>[^)]{0,64})\))? ?(?P<state>\[[^\]]{0,80}\])? ?"
    r"\(most recent call last\):"
)
_EMPTY = re.compile(r"\s{0,40}The frame stack for thread (?P<tid>\d{1,10}) is empty")
_PYTHON = re.compile(
    r'\s{0,40}\(Python\) File "(?P<file>[^"]{0,1000})", line (?P<line>\d{1,9}), in (?P<function>.{1,300})'
)
_C = re.compile(
    r'\s{0,40}\(C\) File "(?P<file>[^"]{0,1000})", line (?P<line>\d{1,9}), in (?P<function>.{1,2000}?)'
    r"(?: \(inlined\))?(?: \((?P<module>[^()]{0,400})\))?$"
)
_INSIDE = re.compile(
    r"\s{0,40}(?:\* - Unable to merge native stack|(?:Arguments|Locals):$|In interpreter |In the main interpreter)"
)

_SPY_THREAD = re.compile(
    r"\s{0,40}Thread (?P<tid>\d{1,10}|0x[0-9A-Fa-f]{1,16}) \((?P<state>active|idle|active\+gil|idle\+gil)\)"
    r'(?:: "(?P<name>[^"]{0,64})")?\s*$'
)
_SPY_FRAME = re.compile(r"\s{4}(?P<function>\S.{0,1000}?) \((?P<place>[^()]{1,400}?)(?::(?P<line>\d{1,9}))?\)$")
_SPY_VALUE = re.compile(r"\s{8}(?:\s{4})?\S")
_SPY_PROCESS = re.compile(r"\s{0,40}Process (?P<pid>\d{1,10}): ")
_IS_PYTHON = re.compile(r"\.py$|^<")


@dataclass
class _Open:
    """A thread whose frames are being read, in the order in which they are printed."""

    tid: int | None
    name: str | None
    holds_gil: bool
    python: list[tuple[str, str, int]] = field(default_factory=list)
    native: list[tuple[str | None, str | None, str | None, int | None]] = field(default_factory=list)
    """Function, library, source file, line."""

    def done(self, *, innermost_first: bool, crashed: bool) -> Thread:
        python = self.python if innermost_first else self.python[::-1]
        native = self.native if innermost_first else self.native[::-1]
        frames = [
            backtrace.native(index, function, module=module, source=source, line=line)
            for index, (function, module, source, line) in enumerate(native)
        ]
        return backtrace.thread(
            frames,
            tid=self.tid,
            name=self.name,
            crashed=crashed,
            python=_frames(python),
            holds_gil=True if self.holds_gil else None,
        )


def _frames(python: Sequence[tuple[str, str, int]]) -> tuple[Frame, ...]:
    return tuple(backtrace.python(index, name, file, line) for index, (name, file, line) in enumerate(python))


def _rows(lines: Sequence[Line], start: int) -> Iterator[tuple[int, str]]:
    """The lines from ``start`` on, without their empty ones, up to where too many of these follow each other."""
    blanks = 0
    for index in range(start, min(len(lines), start + _REACH)):
        text = lines[index].text.rstrip()
        blanks = 0 if text else blanks + 1
        if blanks > _BLANKS:
            return
        if text:
            yield index, text


# ---------------------------------------------------------------- pystack


def _pystack(lines: Sequence[Line], index: int) -> Piece | None:
    threads: list[_Open] = []
    died: re.Match[str] | None = None
    last, source_lines = -1, 0
    for at, text in _rows(lines, index):
        if match := _DIED.match(text):
            died = match
        elif (match := _THREAD.match(text)) or (match := _EMPTY.match(text)):
            state = match.groupdict().get("state") or ""
            threads.append(_Open(int(match["tid"]), match.groupdict().get("name"), "Has the GIL" in state))
        elif not threads:
            if at > index:
                break
            return None
        elif match := _PYTHON.match(text):
            threads[-1].python.append((match["function"], match["file"], int(match["line"])))
            source_lines = 0
        elif match := _C.match(text):
            threads[-1].native.append(_c_frame(match))
        elif not _INSIDE.match(text):
            # The line of source below a frame of Python, or the values of its variables; both are indented.
            source_lines += 1
            if not text.startswith("      ") or not threads[-1].python or source_lines > 200:
                break
        last = at
    if last < 0 or not (threads or died):
        return None
    pid = _pid_before(lines, index)
    fault = _fault(died, pid)
    victim = _victim(threads, pid) if fault is not None else None
    crash = Crash(
        pid=pid,
        exit=Exit(kind="signaled", signal=fault.signal) if fault else Exit(kind="running"),
        fault=fault if fault is not None and (fault.address is not None or fault.sender is not None) else None,
        threads=tuple(one.done(innermost_first=False, crashed=one is victim) for one in threads) or None,
    )
    return Piece(kind=PYSTACK, first=lines[index].number, last=lines[last].number, crash=crash)


def _c_frame(match: re.Match[str]) -> tuple[str | None, str | None, str | None, int | None]:
    known = match["file"] not in {"???", ""} and match["line"] != "0"
    return match["function"], match["module"], match["file"] if known else None, int(match["line"]) if known else None


def _fault(died: re.Match[str] | None, pid: int | None) -> Fault | None:
    if died is None:
        return None
    if died["address"]:
        return Fault(signal="SIGSEGV", address=Address(int(died["address"], 16)))
    if signal_number(died["signal"]) is None:
        return None
    sender = int(died["sender"]) if died["sender"] else None
    itself = sender == pid if sender is not None and pid is not None else None
    return Fault(signal=died["signal"], sender=sender, sent_by_itself=itself)


def _pid_before(lines: Sequence[Line], index: int) -> int | None:
    for line in reversed(lines[max(0, index - 8) : index]):
        if match := _PID.match(line.text):
            return int(match["pid"])
    return None


def _victim(threads: Sequence[_Open], pid: int | None) -> _Open | None:
    """The thread that died. pystack does not say it: the only one, the one with the GIL, else the main one."""
    holders = [one for one in threads if one.holds_gil]
    if len(threads) == 1 or len(holders) == 1:
        return (holders or list(threads))[0]
    return next((one for one in threads if one.tid == pid), None)


# ---------------------------------------------------------------- py-spy


def _py_spy(lines: Sequence[Line], index: int) -> Piece | None:
    threads: list[_Open] = []
    last = -1
    for at, text in _rows(lines, index):
        if match := _SPY_THREAD.match(text):
            tid = int(match["tid"]) if match["tid"].isdecimal() else None
            threads.append(_Open(tid, match["name"], "gil" in match["state"]))
        elif threads and (match := _SPY_FRAME.match(text)):
            _spy_frame(threads[-1], match)
        elif not threads or not _SPY_VALUE.match(text):
            break
        last = at
    if not any(one.python or one.native for one in threads):
        return None
    before = (_SPY_PROCESS.match(line.text) for line in lines[max(0, index - 4) : index])
    crash = Crash(
        pid=next((int(match["pid"]) for match in before if match), None),
        exit=Exit(kind="running"),
        threads=tuple(one.done(innermost_first=True, crashed=False) for one in threads),
    )
    return Piece(kind=PY_SPY, first=lines[index].number, last=lines[last].number, crash=crash)


def _spy_frame(thread: _Open, match: re.Match[str]) -> None:
    place, line = match["place"], match["line"]
    if _IS_PYTHON.search(place):
        thread.python.append((match["function"], place, int(line or 0)))
    elif line is not None:
        thread.native.append((match["function"], None, place, int(line)))
    else:
        nameless = match["function"].startswith("0x")
        thread.native.append((None if nameless else match["function"], place, None, None))


READERS = (
    Reader(
        kind=PYSTACK,
        triggers=("Traceback for thread ", "The process died due ", "The frame stack for thread "),
        read=_pystack,
        reach=_REACH,
    ),
    Reader(
        kind=PY_SPY,
        triggers=("(idle)", "(active)", "(active+gil)", "(idle+gil)"),
        read=_py_spy,
        reach=_REACH,
    ),
)
