"""Report to str: one function per format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:  # the command line asks for the formats' names at each start
    from necropsy.model import Document

Format = Literal["text", "json", "markdown", "html"]
FORMATS: tuple[str, ...] = get_args(Format)


def rendered(
    document: Document,
    form: str,
    *,
    color: bool = False,
    width: int = 80,
    full: bool = False,
    again: str | None = None,
    pages: Callable[[str], str | None] | None = None,
) -> str:
    """The document in one of ``FORMATS``, or in a format that ``reports.formats`` has for its kind.

    ``pages`` gives the rule pages for HTML. The other arguments are for text: it is short unless ``full``, and
    ``again`` is the command that shows everything.
    """
    if form == "json":
        from necropsy import serialize

        return serialize.dumps(document).decode()
    if form not in FORMATS:
        from necropsy.reports import formats

        return formats.render(document, form, pages)
    if document.kind in {"doctor", "audit"}:
        from necropsy.reports import findings

        return findings.render(document, form, color=color, pages=pages)
    if document.kind == "dataset":
        from necropsy.reports import dataset

        return dataset.render(document, form, color=color, width=width, pages=pages)
    if document.kind == "triage":
        from necropsy.reports import triage, triage_html

        if form == "html":
            return triage_html.render(document, pages)
        if form == "markdown":
            return triage.markdown(document)
        return triage.render(document, color=color, width=width, full=full)
    if document.kind == "fuzz" and form == "text" and not full:
        from necropsy.reports import fuzz

        return fuzz.render(document, color=color, width=width)
    if document.kind == "profile" and form != "text":
        from necropsy.reports import profile_html

        return profile_html.markdown(document) if form == "markdown" else profile_html.render(document, pages)
    if document.kind == "profile":
        from necropsy.reports import brief, profile

        died = brief.render(document, color=color, width=width, again=again) if document.reports else ""
        return died + profile.render(document, color=color, width=width)
    if form == "markdown":
        from necropsy.reports import markdown

        return markdown.render(document)
    if form == "html":
        from necropsy.reports.html import render

        return render(document, pages)
    if full:
        from necropsy.reports import text

        said = text.render(document, color=color, width=width)
    else:
        from necropsy.reports import brief

        said = brief.render(document, color=color, width=width, again=again)
    return said or "No process died in this run.\n"
