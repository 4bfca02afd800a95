"""Sentences that say how a process ended: one line each, by the table ``data/endings.toml``."""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.formats.exit_phrases import crash_of, forms, found_in
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport

KIND = "ending"


def _read(lines: Sequence[Line], index: int) -> TextReport | None:
    line = lines[index]
    found = found_in(line)
    if found is None:
        return None
    form, match, end = found
    return TextReport(KIND, line.number, line.number, crash_of(form, match, end, line))


READER = TextReader(KIND, tuple(dict.fromkeys(form.must for form in forms())), _read, reach=0)
