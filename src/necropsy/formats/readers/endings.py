"""Sentences that say how a process ended: one line each, by the table ``data/endings.toml``."""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.formats.endings import crash_of, forms, found_in
from necropsy.formats.lines import Line
from necropsy.formats.pieces import Piece, Reader

KIND = "ending"


def _read(lines: Sequence[Line], index: int) -> Piece | None:
    line = lines[index]
    found = found_in(line)
    if found is None:
        return None
    form, match, end = found
    return Piece(KIND, line.number, line.number, crash_of(form, match, end, line))


READER = Reader(KIND, tuple(dict.fromkeys(form.must for form in forms())), _read, reach=0)
