"""Sentences in which a process reports the loss of another: ``BrokenProcessPool``, ``died with SIGSEGV``.

How a process ended is in ``data/endings.toml``; vaguer words are in ``data/lost_peers.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from necropsy.data import table
from necropsy.formats import exit_phrases
from necropsy.formats.exit_status import signal_number
from necropsy.formats.lines import Line, line
from necropsy.formats.log_prefixes import Unwrap
from necropsy.model import Exit, Message

_LAST = 5
"""Lines at the end of a log that are its last words."""
_MOST = 400
"""Lines of the last traceback that are looked at."""
_SHOWN = 240


@dataclass(frozen=True)
class Loss:
    """One sentence; ``end``: how the other ended, if stated; ``only_crashes``: too vague for one that was killed."""

    text: str
    pid: int | None = None
    end: Exit | None = None
    only_crashes: bool = False


def last_words(tail: str, traceback: Message | None) -> Iterator[Loss]:
    """What a log's end says of a lost process, the surest first; ``traceback`` is the last that ended this process."""
    unwrap = Unwrap()
    said = [line(0, words, unwrap) for words in _exceptions(traceback)]
    for row in (*reversed(_rows(tail, traceback)), *said):
        found = exit_phrases.found_in(row)
        if found is None:
            continue
        _, match, end = found
        pid = match.groupdict().get("pid")
        lost = end.kind == "lost"
        if lost or pid is not None or end.signal is not None or end.ntstatus is not None:
            yield Loss(exit_phrases.sentence(row.text, match), int(pid) if pid else None, None if lost else end)
    exception, text = (traceback.fields.get(name, "") for name in ("exception", "text")) if traceback else ("", "")
    for row in table("lost_peers.toml")["exception"]:
        if _is(row, exception) and not (row.get("bare") and text):
            yield Loss(_said(exception, text), only_crashes=not row.get("killed"))
    for words in last_lines(tail, traceback):
        if (
            any(pattern.search(words) for pattern in _words())
            and exit_phrases.found_in(line(1, words, Unwrap())) is None
        ):
            yield Loss(words, only_crashes=True)


def last_lines(tail: str, traceback: Message | None) -> list[str]:
    """The last exceptions of the traceback, the last line of the log."""
    rows = _rows(tail, None)
    return [*_exceptions(traceback), *(row.text.strip()[:_SHOWN] for row in rows[-1:])]


def _exceptions(traceback: Message | None) -> list[str]:
    """The exception that ended it, and the one that it began with."""
    fields = traceback.fields if traceback is not None else {}
    return [
        _said(fields[f"{first}exception"], fields.get(f"{first}text", ""))
        for first in ("", "first_")
        if f"{first}exception" in fields
    ]


def names(text: str, pid: int, signal: str | None) -> bool:
    """The text has the number of the process, or says that something ended by ``signal``, in any spelling."""
    if re.search(rf"(?<![\w.:]){pid}(?![\w.])", text) and pid >= _LEAST_PID:
        return True
    number = signal_number(signal) if signal is not None else None
    if signal is None or number is None:
        return False
    codes = rf"-{number}|{128 + number}"
    status = r"(?:exit|return|status|code|value|rc|failed|died|crashed|ended)[\w ]{0,20}[^\w-]{0,4}"
    return bool(
        re.search(rf"\b{signal}\b", text)
        or re.search(rf"(?i)\bsignal(?: number)?[^\w-]{{0,3}}{number}\b", text)
        or re.search(rf"(?i)\b{status}(?:{codes})\b(?!\.\d)", text)
    )


_LEAST_PID = 100
"""Smaller numbers occur in many texts."""


def _rows(tail: str, traceback: Message | None) -> list[Line]:
    """The lines of the last traceback, and the last few of the log, without prefixes."""
    unwrap = Unwrap()
    whole = [line(number, row, unwrap) for number, row in enumerate(tail.splitlines(), 1)]
    written = [row for row in whole if row.text.strip()]
    last = written[-_LAST:]
    if traceback is None or traceback.line is None:
        return last
    inside = [row for row in written if row.number >= (traceback.line or 0)][:_MOST]
    return [*inside, *(row for row in last if row.number < traceback.line)] if inside else last


def _said(exception: str, text: str) -> str:
    return (f"{exception}: {text}" if text else exception)[:_SHOWN]


@lru_cache(maxsize=1)
def _words() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(row["pattern"]) for row in table("lost_peers.toml")["words"])


def _is(row: dict[str, Any], exception: str) -> bool:
    name: str = row["name"]
    return exception == name or ("." not in name and exception.rpartition(".")[2] == name)
