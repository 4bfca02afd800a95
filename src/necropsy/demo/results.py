"""What ``necropsy demo`` found, as JSON, Markdown or a page: a row for each example."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from necropsy.reports import tables
from necropsy.reports.tables import Table


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
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


def rendered(results: Sequence[DemoResult], form: str) -> str:
    """The rows as ``json``, ``markdown`` or ``html``; of examples that were not run, only what they are about."""
    wrong = sum(bool(one.faults) for one in results)
    skipped = sum(one.skipped is not None for one in results)
    right = len(results) - wrong - skipped
    if form == "json":
        return as_json({"right": right, "skipped": skipped, "examples": results})
    if all(one.ended is None and one.skipped is None for one in results):
        return as_page(("Example", "About"), [(one.example, one.about) for one in results], form)
    summary = f"{right} of {len(results)} as they should be" + (f", {skipped} skipped." if skipped else ".")
    return as_page(_COLUMNS, [_cells(one) for one in results], form, summary)


def as_json(whole: object) -> str:
    """What msgspec can encode, for people to read."""
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def as_page(columns: Sequence[str], rows: Sequence[Sequence[str]], form: str, summary: str = "") -> str:
    """A table as ``markdown`` or ``html``, with a line below it."""
    heading = "TensorFlow crashes and what necropsy finds"
    table = Table(title="necropsy demo", heading=heading, columns=columns, rows=rows, note=summary)
    return tables.as_markdown(table) if form == "markdown" else tables.as_html(table)


def _cells(one: DemoResult) -> tuple[str, ...]:
    if one.skipped is not None:
        return (one.example, "skipped", one.skipped, "", "", "")
    found = f"{one.rule} ({one.confidence})" if one.rule is not None else "nothing"
    where = ", ".join(filter(None, [one.culprit, f"op {one.op}" if one.op else None, one.where]))
    took = f"{one.took_s:.2f} s" if one.took_s is not None else ""
    return (one.example, one.ended or "", found, where, took, "; ".join(one.faults) or "yes")
