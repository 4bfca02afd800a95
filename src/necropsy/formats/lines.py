"""One line of a log, behind whatever was written before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One line.

    ``number`` counts from 1 at the beginning of the input. ``text`` is the line without colours and without what a
    collector of logs put before it; its indentation is kept. ``message`` is what stands behind the log's own envelope
    (``2026-11-20 21:17:51.617250: F file.cc:42] ``), ``fields`` what the envelope says.
    """

    number: int
    text: str
    message: str
    fields: Mapping[str, str]
