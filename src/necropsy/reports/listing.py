"""The kept reports as a table: a line each, in the order in which they are given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from necropsy.model import Document
from necropsy.reports import wording
from necropsy.reports.layout import BOLD, DIM, Pen, clean, columns, cut, without_commands
from necropsy.reports.stack import fit_name

_ID_TIME = re.compile(r"\d{8}T\d{6}Z")
_VERDICT, _LEAST, _WIDE = 26, 12, 100


@dataclass(frozen=True)
class Row:
    """A kept report; ``document`` is None where the file could not be read, and ``problem`` then says why."""

    identity: str
    name: str
    worker: str | None = None
    document: Document | None = None
    problem: str | None = None


def render(rows: Sequence[Row], *, width: int | None = None, color: bool = False) -> str:
    """The table, in at most ``width`` columns; whole lines where that is None, as for a pipe."""
    pen = Pen(color=color)
    narrow = width is not None and width < _WIDE
    cells: list[tuple[str, ...]] = [_cells(row, "%m-%d %H:%M" if narrow else "%Y-%m-%d %H:%M") for row in rows]
    head: tuple[str, ...] = ("ID", "WHEN", "VERDICT", "CULPRIT", "COMMAND")
    if any(row.worker for row in rows):
        head = (*head[:2], "WORKER", *head[2:])
        cells = [(*one[:2], row.worker or "", *one[2:]) for one, row in zip(cells, rows, strict=True)]
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
    """Narrower columns: the verdict first gives way, then culprit and command share what is left."""
    *fixed, culprit, command = widths
    fixed[-1] = min(fixed[-1], _VERDICT)
    room = width - sum(fixed) - 2 * len(widths) + 2
    if culprit + command > room:
        culprit = min(culprit, max(_LEAST, room - min(command, room // 2)))
        command = max(_LEAST, room - culprit)
    return [*fixed, culprit, command]


def _cells(row: Row, moment: str) -> tuple[str, ...]:
    if row.document is None:
        return (row.name, _when(row.identity, moment), "(unreadable)", "", clean(row.problem or ""))
    document = row.document
    report = document.reports[0] if document.reports else None
    verdict = report.verdict if report else None
    if verdict is not None:
        said = verdict.rule
    elif report is not None:
        said = wording.end_in_a_word(report.crash)
    else:
        said = "healthy"
    more = f" +{len(document.reports) - 1}" if len(document.reports) > 1 else ""
    culprit = (verdict.culprit.function or verdict.culprit.module) if verdict and verdict.culprit else None
    program, *words = document.subject.command or (document.subject.path or "",)
    command = " ".join((program.rsplit("/", 1)[-1], *words))
    return (row.name, _when(row.identity, moment), said + more, clean(short_function(culprit or "")), clean(command))


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


def _when(identity: str, moment: str) -> str:
    match = _ID_TIME.match(identity)
    if match is None:
        return ""
    try:
        at = datetime.strptime(match.group(), "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return ""
    return at.astimezone().strftime(moment)
