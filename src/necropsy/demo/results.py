"""What ``necropsy demo`` found, as JSON, Markdown or a page: a row for each example."""

from __future__ import annotations

import html
from collections.abc import Sequence

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One example: how it ended, what was found, and what of it is not as the catalogue says."""

    example: str
    about: str
    ended: str | None = None
    """A signal, ``exit N`` or ``survives``; None where it was not run."""
    rule: str | None = None
    confidence: str | None = None
    culprit: str | None = None
    op: str | None = None
    where: str | None = None
    """The line of Python: ``train.py:12``."""
    took_s: float | None = None
    """From the fatal signal to the finished report, in seconds."""
    skipped: str | None = None
    """Why it was not run."""
    faults: tuple[str, ...] = ()


_COLUMNS = ("Example", "Ended", "Found", "Where", "Report", "As it should be")


def rendered(results: Sequence[Result], form: str) -> str:
    """The rows as ``json``, ``markdown`` or ``html``; of examples that were not run, only what they are about."""
    if form == "json":
        wrong = sum(bool(one.faults) for one in results)
        skipped = sum(one.skipped is not None for one in results)
        whole = {"right": len(results) - wrong - skipped, "skipped": skipped, "examples": results}
        return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"
    names: tuple[str, ...] = _COLUMNS
    rows = [_cells(one) for one in results]
    if all(one.ended is None and one.skipped is None for one in results):
        names, rows = ("Example", "About"), [(one.example, one.about) for one in results]
    if form == "markdown":
        lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
        lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
        return "\n".join(lines) + "\n"
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>necropsy demo</title></head>\n'
        f"<body><main><h1>necropsy demo</h1>\n<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n"
        "</tbody></table></main></body></html>\n"
    )


def _cells(one: Result) -> tuple[str, ...]:
    if one.skipped is not None:
        return (one.example, "skipped", one.skipped, "", "", "")
    found = f"{one.rule} ({one.confidence})" if one.rule is not None else "nothing"
    where = ", ".join(filter(None, [one.culprit, f"op {one.op}" if one.op else None, one.where]))
    took = f"{one.took_s:.2f} s" if one.took_s is not None else ""
    return (one.example, one.ended or "", found, where, took, "; ".join(one.faults) or "yes")
