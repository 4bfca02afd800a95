"""A table of plain text as Markdown and as a page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from necropsy.reports import page


@dataclass(frozen=True, kw_only=True)
class Table:
    """What is shown: ``rows`` have as many cells as there are ``columns``."""

    title: str
    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    code: Collection[str] = ()
    """The columns whose cells are commands or come from outside: Markdown shows them as they are."""
    empty: str = ""
    """Shown instead of a table without rows."""


def as_markdown(table: Table) -> str:
    """The table alone."""
    names = table.columns
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for row in table.rows:
        cells = (_code(cell) if name in table.code else _plain(cell) for name, cell in zip(names, row, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def as_html(table: Table) -> str:
    """A page with the table."""
    values = {
        "heading": table.heading,
        "columns": table.columns,
        "rows": [list(zip(table.columns, row, strict=True)) for row in table.rows],
        "code": table.code,
        "empty": table.empty,
    }
    return page.render("table.html.j2", values, title=table.title, markdown=as_markdown(table) if table.rows else None)


def _code(cell: str) -> str:
    return "`" + cell.replace("`", "'").replace("|", "/") + "`" if cell else ""


def _plain(cell: str) -> str:
    for character in "\\`*_[]<>":
        cell = cell.replace(character, "\\" + character)
    return " ".join(cell.replace("|", "/").split())
