"""The answer to a query as a table, for a terminal, for an issue or for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from necropsy.reports.terminal import clean, columns, without_commands

FORMATS = ("text", "json", "markdown")


def render(names: Sequence[str], rows: Sequence[Sequence[Any]], form: str = "text") -> str:
    """Rows below the names of their columns; JSON is a list with an object for each row."""
    if form == "json":
        found = [dict(zip(names, map(_plain, row), strict=True)) for row in rows]
        return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"
    table = [[clean(_shown(cell)) for cell in row] for row in (names, *rows)]
    if form == "markdown":
        lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table]
        return without_commands("\n".join([lines[0], "|" + " --- |" * len(names), *lines[1:]]) + "\n")
    widths = [max(columns(row[place]) for row in table) for place in range(len(names))]
    right = [all(isinstance(row[place], int | float | None) for row in rows) for place in range(len(names))]
    lines = []
    for row in table:
        cells = []
        for cell, width, numeric in zip(row, widths, right, strict=True):
            blank = " " * (width - columns(cell))
            cells.append(blank + cell if numeric else cell + blank)
        lines.append("  ".join(cells).rstrip())
    return without_commands("\n".join(lines) + "\n")


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(_plain(value)).split())
