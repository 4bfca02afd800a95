"""One line of a log, behind whatever was written before it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from necropsy.formats.log_prefixes import Unwrap

# TensorFlow 1.4 to 2.20; absl and glog, with the thread's number; c10 (PyTorch) in brackets; TensorFlow up to 1.3.
_ENVELOPE = re.compile(
    r"(?:(?P<date>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}): (?P<level>[IWEF]) "
    r"|(?P<level_absl>[IWEF])\d{4}(?:\d{4})? \d\d:\d\d:[\d.]{5,24} +\d+ "
    r"|\[(?P<level_c10>[IWEF])\d{4} \d\d:\d\d:[\d.]{5,24} "
    r"|^(?P<level_old>[IWEF]) (?=\S+:\d+\] ))"
    r"(?P<file>[^\s\]]+):(?P<line>\d+)\] ?"
)
_LEVELS = ("level", "level_absl", "level_c10", "level_old")
FATAL = (
    *(f"{digit}: F " for digit in range(10)),
    *(f"F{month:02}{day:02} " for month in range(13) for day in range(32)),
    *(f"F20{year:02}" for year in range(15, 60)),
    *(f"F {root}" for root in ("tensorflow", "external/", "third_party", "xla/", "./tensorflow", "C:\\", "c:\\")),
)
"""Literals one of which occurs in every envelope of level F; its line is read, whatever it says."""
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Line:
    """One line; ``number`` counts from 1 at the beginning of the input.

    ``text``: without colours and a collector's prefix; its indentation is kept. ``message``: what follows the log's own
    envelope (``2026-11-20 21:17:51.617250: F file.cc:42] ``), of which ``fields`` are the parts. ``writer``: the
    process that the collector named (``rank0``, ``web-1``); lines of several are mixed in one text.
    """

    number: int
    text: str
    message: str
    fields: Mapping[str, str]
    writer: str = ""


LONGEST = 4096
"""Characters of a message: only a line of JSON is longer, and phrases are not looked for in all of it."""


def line(number: int, row: str, unwrap: Unwrap) -> Line:
    """The line of a ``row`` that has no colours any more."""
    text, writer = unwrap(row)
    text = text.rstrip()
    if len(text) > LONGEST:
        return Line(number, text, text[:LONGEST].lstrip(), _NOTHING, writer)
    envelope = _ENVELOPE.search(text) if "] " in text else None
    if envelope is None:
        return Line(number, text, text.lstrip(), _NOTHING, writer)
    level = next(envelope[name] for name in _LEVELS if envelope[name])
    fields = {"level": level, "file": envelope["file"], "source_line": envelope["line"]}
    return Line(number, text, text[envelope.end() :], fields, writer)
