"""What became worse since an older profile, and which conditions of `--fail-on` were met, line by line."""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.model import Document, Regression
from necropsy.reports.terminal import BOLD, YELLOW, Pen, clean, size, wrap

MOST = 15
"""Changes that a text shows."""
_BYTES = frozenset({"stack", "function", "memory", "address space"})
_NAMES = {"memory": "resident memory", "descriptors": "file descriptors", "mappings": "memory mappings"}


@dataclass(frozen=True)
class RegressionRow:
    """One regression in words; ``before`` is empty where it is new. ``inner``: a function of the stack above it."""

    what: str
    before: str
    after: str
    growth: str
    inner: bool


def rows(document: Document) -> list[RegressionRow]:
    """What became worse, in the order of the document."""
    return [_row(one) for one in document.comparison.regressions] if document.comparison is not None else []


def summary(document: Document) -> str:
    """One sentence; empty where nothing was compared."""
    if document.comparison is None:
        return ""
    of = f"{document.comparison.compared} peaks of {document.comparison.id or 'the older profile'}"
    count = sum(one.what != "function" for one in document.comparison.regressions)
    if not count:
        return f"Compared with {of}: nothing became worse."
    return f"Compared with {of}: {count} {'things' if count > 1 else 'thing'} became worse."


def draw(document: Document, width: int, pen: Pen) -> list[str]:
    """For a terminal."""
    lines: list[str] = []
    if document.comparison is not None:
        lines += ["", *wrap(clean(summary(document)), width, first="  ", rest="    ")]
        told = rows(document)
        for one in told[:MOST]:
            before = f", before {one.before}" if one.before else ", new"
            text = f"{one.what}: {one.after}{before}{f' ({one.growth})' if one.growth else ''}"
            lines += wrap(text, width, first="      " if one.inner else "    ", rest="        ")
        if len(told) > MOST:
            lines.append(f"    and {len(told) - MOST} more, which --json keeps")
    for check in document.failed_checks or ():
        text = f"failed: --fail-on {check.condition}: {check.seen}"
        lines += [pen(line, BOLD, YELLOW) for line in wrap(text, width, first="  ", rest="    ")]
    return lines


def _row(one: Regression) -> RegressionRow:
    def amount(value: int | None) -> str:
        return "" if value is None else size(value) if one.what in _BYTES else f"{value:,}"

    return RegressionRow(
        what=_what(one),
        before=amount(one.before),
        after=amount(one.after),
        growth=f"+{one.growth:.1%}" if one.growth is not None and one.what != "finding" else "",
        inner=one.what == "function",
    )


def _what(one: Regression) -> str:
    of = f" of {one.process}" if one.process is not None else ""
    if one.what == "stack":
        return f"stack of {one.name}{f' in {one.process}' if one.process is not None else ''}"
    if one.what == "function":
        return one.function or "a function without a name"
    if one.what == "finding":
        return f"{one.severity}s of {one.name}"
    return f"{_NAMES.get(one.what, one.what)}{of}"
