"""The kept reports as a table: a line each, in the order in which they are given."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from necropsy.model import Document
from necropsy.reports import tables, user_line, wording
from necropsy.reports.stack import fit_name
from necropsy.reports.tables import Table
from necropsy.reports.terminal import BOLD, DIM, Pen, clean, columns, cut, file_name, without_commands

_ID_TIME = re.compile(r"\d{8}T\d{6}Z")
_VERDICT, _LEAST, _WIDE = 26, 12, 100


@dataclass(frozen=True)
class ListingRow:
    """A kept report; ``document`` is None where the file could not be read, and ``problem`` then says why."""

    identity: str
    name: str
    worker: str | None = None
    document: Document | None = None
    problem: str | None = None
    number: int = 0
    """Its position among all kept reports; 1 is the newest."""
    seen: int = 1
    """Number of reports with this signature."""

    @property
    def rule(self) -> str | None:
        """The verdict's rule."""
        report = self.document.reports[0] if self.document is not None and self.document.reports else None
        return report.verdict.rule if report is not None and report.verdict is not None else None

    @property
    def signature(self) -> str | None:
        """The first report's signature."""
        return self.document.reports[0].signature if self.document is not None and self.document.reports else None


def grouped(rows: Sequence[ListingRow]) -> list[ListingRow]:
    """Of the rows with the same signature and worker the first, which counts them; rows without a verdict all stay."""
    first: dict[object, ListingRow] = {}
    for row in rows:
        key = (row.signature, row.worker) if row.rule is not None and row.signature else row.identity
        known = first.get(key)
        first[key] = replace(known, seen=known.seen + 1) if known is not None else row
    return list(first.values())


def render(rows: Sequence[ListingRow], *, width: int | None = None, color: bool = False) -> str:
    """The table, in at most ``width`` columns; whole lines where that is None, as for a pipe."""
    pen = Pen(color=color)
    narrow = width is not None and width < _WIDE
    cells: list[tuple[str, ...]] = [_cells(row, "%m-%d %H:%M" if narrow else "%Y-%m-%d %H:%M") for row in rows]
    head: tuple[str, ...] = ("ID", "WHEN", "CAUSE", "WHERE", "COMMAND")
    if any(row.worker for row in rows):
        head = (*head[:2], "WORKER", *head[2:])
        cells = [(*one[:2], row.worker or "", *one[2:]) for one, row in zip(cells, rows, strict=True)]
    if any(row.seen > 1 for row in rows):
        head = (*head[:2], "SEEN", *head[2:])
        cells = [(*one[:2], f"{row.seen}x", *one[2:]) for one, row in zip(cells, rows, strict=True)]
    if any(row.number for row in rows):
        head = ("#", *head)
        cells = [(str(row.number), *one) for one, row in zip(cells, rows, strict=True)]
    table = [head, *cells]
    widths = [max(columns(line[place]) for line in table) for place in range(len(head))]
    if width is not None:
        widths = _fit(widths, width)
    lines = []
    for place, line in enumerate(table):
        *fixed, culprit, command = (
            (fit_name if at == len(head) - 2 else cut)(cell, widths[at]) for at, cell in enumerate(line)
        )
        text = "  ".join(cell + " " * (widths[at] - columns(cell)) for at, cell in enumerate((*fixed, culprit)))
        whole = f"{text}  {command}".rstrip()
        whole = cut(whole, width) if width is not None else whole
        lines.append(pen(whole, DIM) if place == 0 else pen(whole[: widths[0]], BOLD) + whole[widths[0] :])
    return without_commands("\n".join(lines) + "\n")


def _fit(widths: list[int], width: int) -> list[int]:
    """Narrow the verdict first, then share the rest between culprit and command."""
    *fixed, culprit, command = widths
    fixed[-1] = min(fixed[-1], _VERDICT)
    room = width - sum(fixed) - 2 * len(widths) + 2
    if culprit + command > room:
        culprit = min(culprit, max(_LEAST, room - min(command, room // 2)))
        command = max(_LEAST, room - culprit)
    return [*fixed, culprit, command]


def _cells(row: ListingRow, moment: str) -> tuple[str, ...]:
    if row.document is None:
        return (row.name, _when(row.identity, moment), "(unreadable)", "", clean(row.problem or ""))
    document = row.document
    command = _command(document)
    report = document.reports[0] if document.reports else None
    verdict = report.verdict if report else None
    if verdict is not None:
        said = verdict.rule
    elif report is not None:
        said = wording.end_in_a_word(report.crash)
    else:
        said = "healthy"
    more = f" +{len(document.reports) - 1}" if len(document.reports) > 1 else ""
    return (row.name, _when(row.identity, moment), said + more, clean(_where(document)), clean(command))


def _command(document: Document) -> str:
    program, *words = document.subject.command or (document.subject.path or "",)
    return " ".join((program.rsplit("/", 1)[-1], *words))


def _where(document: Document) -> str:
    """The Python line if known, or else the native function or its library."""
    report = document.reports[0] if document.reports else None
    own = user_line.of_report(report) if report is not None else None
    if own is not None:
        return own.short
    culprit = report.verdict.culprit if report is not None and report.verdict is not None else None
    if culprit is None:
        return ""
    line = culprit.python
    if line is not None and line.file:
        return f"{file_name(line.file)}:{line.line}"
    return short_function(culprit.function or culprit.module or "")


def as_json(rows: Sequence[ListingRow]) -> str:
    """A list with an object for each row; times are in UTC, as ISO 8601 writes them."""
    return json.dumps([_plain(row) for row in rows], indent=2) + "\n"


def _plain(row: ListingRow) -> dict[str, object]:
    made = made_at(row.identity)
    document = row.document
    return {
        "number": row.number,
        "id": row.identity,
        "made": made.isoformat() if made is not None else None,
        "rule": row.rule,
        "where": _where(document) or None if document is not None else None,
        "command": list(document.subject.command or ()) if document is not None else None,
        "worker": row.worker,
        "signature": row.signature,
        "seen": row.seen,
        "problem": row.problem,
    }


def as_markdown(rows: Sequence[ListingRow]) -> str:
    """A table of Markdown."""
    return tables.as_markdown(_table(rows))


def as_html(rows: Sequence[ListingRow]) -> str:
    """A page with the table."""
    return tables.as_html(_table(rows, shown=True))


_COLUMNS = ("#", "ID", "When", "Seen", "Cause", "Where", "Command")


def _table(rows: Sequence[ListingRow], *, shown: bool = False) -> Table:
    """``shown``: add the command that shows the full report."""
    return Table(
        title="necropsy: reports",
        heading="Kept reports",
        columns=(*_COLUMNS, *(["Full report"] if shown else [])),
        rows=[(*_cells_of_page(row), *([f"necropsy show {row.name} --full"] if shown else [])) for row in rows],
        code=("Full report",) if shown else _COLUMNS,
        empty="No such reports are kept.",
    )


def _cells_of_page(row: ListingRow) -> tuple[str, ...]:
    name, when, said, where, command = _cells(row, "%Y-%m-%d %H:%M")
    return (str(row.number), name, when, f"{row.seen}x", said, where, command)


def short_function(function: str) -> str:
    """The last part of a C++ name: the namespaces and the parameters cost more room than they tell here."""
    if function.startswith("<"):
        return function
    name = re.sub(r"\{anonymous\}|\(anonymous namespace\)", "", function)
    before = ""
    while name != before:
        before, name = name, re.sub(r"<[^<>]*>", "", name)
    name = name.replace("operator()", "operator").split("(", 1)[0]
    return next((part for part in reversed(name.split("::")) if part), function)


def made_at(identity: str) -> datetime | None:
    """When a report was made, in UTC, by its id."""
    match = _ID_TIME.match(identity)
    if match is None:
        return None
    try:
        return datetime.strptime(match.group(), "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _when(identity: str, moment: str) -> str:
    at = made_at(identity)
    return at.astimezone().strftime(moment) if at is not None else ""
