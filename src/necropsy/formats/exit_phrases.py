"""The sentences of ``data/endings.toml``, which say how a process ended, and how a line is looked up in them.

Every pattern is anchored and every quantifier bounded: a line of any length costs one pass per form, and only for the
few whose literal it holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from necropsy.data import table
from necropsy.errors import UnknownCodeError
from necropsy.formats import windows_exits
from necropsy.formats.exit_readings import HIGHEST_SIGNAL, ExitReading, of_hex, of_number, of_wait_status, own_exit
from necropsy.formats.exit_status import exit_of, number, signal_name, signal_number
from necropsy.formats.lines import Line
from necropsy.formats.phrases import anchored
from necropsy.formats.statuses import statuses
from necropsy.lazy_re import regex
from necropsy.model import Crash, Exit, Message, Thread

_PLACES = 4
"""Places of its literal in one line that a form is tried at."""
_SHOWN = 240
"""Characters of a sentence that are kept."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form of one sentence; see the head of ``data/endings.toml`` for the fields."""

    id: str
    by: str
    must: str
    at: str
    pattern: re.Pattern[str]
    example: str
    reads: str
    source: str
    signal: str | None = None
    exit: str | None = None
    kind: str | None = None
    why: str | None = None
    native: bool = False
    known: bool = False
    least: int = 0

    def match(self, line: Line) -> re.Match[str] | None:
        """Where the sentence is in ``line``, or None."""
        text = line.message if self.at == "start" else line.text
        if self.at != "must":
            return (self.pattern.match if self.at == "start" else self.pattern.search)(text)
        place = -1
        for _ in range(_PLACES):
            place = text.find(self.must, place + 1)
            if place < 0:
                return None
            if match := self.pattern.match(text, place):
                return match
        return None


@lru_cache(maxsize=1)
def forms() -> tuple[Form, ...]:
    """All forms, in the table's order: the special ones stand before the general ones."""
    return tuple(_form(row) for row in table("endings.toml")["ending"])


def _form(row: dict[str, Any]) -> Form:
    at = row.get("at", "must")
    return Form(**{**row, "at": at, "pattern": regex(anchored(row, at))})


def found_in(line: Line) -> tuple[Form, re.Match[str], Exit] | None:
    """The first form that ``line`` holds, and the end that it tells of."""
    for form in forms():
        if form.must in line.text and (match := form.match(line)) is not None:
            end = _end(form, match, sentence(line.text, match))
            if end is not None:
                return form, match, end
    return None


def crash_of(form: Form, match: re.Match[str], end: Exit, line: Line) -> Crash:
    """What the sentence says: how it ended, which process, on what limit, and what ended it."""
    groups = {name: value for name, value in match.groupdict().items() if value is not None}
    limit = octets(groups["limit"]) if "limit" in groups else None
    if "limit_kib" in groups:
        limit = int(groups["limit_kib"]) << 10
    message = told(line, form.by, form.why or ("lost" if form.kind == "lost" else None), groups.get("test"))
    parameters: tuple[int, ...] = ()
    if "address" in groups:
        access = windows_exits.access_named(groups.get("access"))
        parameters = (0 if access is None else access, int(groups["address"], 16))
    return dead(
        end,
        parameters,
        pid=int(groups["pid"]) or None if "pid" in groups else None,
        memory_limit=limit,
        messages=(message,) if message is not None else None,
    )


def told(line: Line, by: str, why: str | None, test: str | None = None) -> Message | None:
    """The sentence as a message for the rules, where it says more than how the process ended."""
    if why is None:
        return None
    fields = {"by": by} | ({"why": why} if why != "lost" else {}) | ({"test": test} if test is not None else {})
    kind = _KINDS.get(why, "ended-from-outside")
    where = f"log line {line.number}"
    return Message(kind=kind, text=line.text.strip()[:_SHOWN], where=where, line=line.number, fields=fields)


_KINDS = {
    "memory": "memory-killed",
    "memory-limit": "memory-killed",
    "not-memory": "memory-not-it",
    "shared-memory": "shared-memory",
    "lost": "process-lost",
}


def dead(end: Exit, parameters: Sequence[int] = (), **parts: Any) -> Crash:
    """A crash that ended so, with a fault for a processor's status; an access violation needs its ``parameters``."""
    code = int(end.ntstatus.value, 16) if end.ntstatus is not None else None
    if code is None or (code == windows_exits.ACCESS_VIOLATION and not parameters):
        return Crash(exit=end, **parts)
    thread = windows_exits.crashed_thread(code)
    threads: tuple[Thread, ...] | None = (thread,) if thread is not None else None
    fault = windows_exits.fault_of(code, parameters)
    if fault is not None and fault.signal == "SIGTRAP":
        # The debug heap raises it too: that it was an instruction of the program's own nobody said.
        fault = msgspec.structs.replace(fault, code=None)
    return Crash(exit=end, fault=fault, threads=threads, **parts)


def sentence(text: str, match: re.Match[str]) -> str:
    """The line, or of a long one the part that was read."""
    text = text.strip()
    if len(text) <= _SHOWN:
        return text
    part = match[0].strip()
    return part if len(part) <= _SHOWN else part[:_SHOWN] + " ..."


def octets(text: str) -> int | None:
    """``2 GB``, ``512MiB``, ``1000000kb``, ``1024 megabytes`` in bytes; every unit is taken for a power of two."""
    match = re.match(r"(\d{1,14})(\.\d{1,4})? ?([kmgtKMGT]?)", text)
    return int(float(match[1] + (match[2] or "")) * _UNITS[match[3].lower()]) if match else None


# ---------------------------------------------------------------- one end


def _end(form: Form, match: re.Match[str], text: str) -> Exit | None:
    groups = match.groupdict()
    if form.kind is not None:
        return Exit(kind="timeout" if form.kind == "timeout" else "lost", text=text)
    if (spelled := groups.get("signal") or form.signal) is not None:
        value = signal_number(spelled)
        return Exit(kind="signaled", signal=signal_name(value), text=text) if value is not None else None
    reading = _reading(groups, form.exit)
    return exit_of(reading, text) if reading is not None and _counts(form, reading) else None


def _counts(form: Form, reading: ExitReading) -> bool:
    if form.known:
        return reading.kind == "status" and reading.value in statuses() and bool(statuses()[reading.value].causes)
    return reading.kind != "exit" or not (form.native or 0 <= reading.value < form.least)


def _reading(groups: dict[str, str | Any], constant: str | None) -> ExitReading | None:
    windows, wait = groups.get("windows"), groups.get("wait")
    spelled = windows or wait or groups.get("code") or constant
    if spelled is None:
        return None
    return reading_of(spelled, windows=windows is not None, wait=wait is not None)


def reading_of(spelled: str, *, windows: bool = False, wait: bool = False) -> ExitReading | None:
    """The likeliest reading of a number, or None. ``windows``: a Windows program shows it; ``wait``: waitpid(2)'s."""
    if re.fullmatch(r"[cC]0000[0-9A-Fa-f]{3}", spelled):
        spelled = f"0x{spelled}"
    value = number(spelled)
    if value is None:
        return None
    try:
        if wait:
            return of_wait_status(value, spelled)[0]
        if windows and -HIGHEST_SIGNAL <= value < 0:
            return own_exit(value)[0]
        return (of_hex if "x" in spelled.lower() and value >= 1 << 16 else of_number)(value, spelled)[0]
    except UnknownCodeError:
        return None
