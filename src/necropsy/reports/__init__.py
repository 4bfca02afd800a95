"""Report to str: one function per format."""

from __future__ import annotations

from typing import Literal, get_args

from necropsy.model import Document

Format = Literal["text", "json", "markdown", "html"]
FORMATS: tuple[str, ...] = get_args(Format)


def rendered(document: Document, form: str, *, color: bool = False, width: int = 80) -> str:
    """The document in one of ``FORMATS``; colour and width are the text's only."""
    if form == "json":
        from necropsy import record

        return record.dumps(document).decode()
    if document.kind in {"doctor", "audit"}:
        from necropsy.reports import findings

        return findings.render(document, form, color=color)
    if document.kind == "dataset":
        from necropsy.reports import dataset

        return dataset.render(document, form, color=color, width=width)
    if form == "markdown":
        from necropsy.reports import markdown

        return markdown.render(document)
    if form == "html":
        from necropsy.reports.html import render

        return render(document)
    from necropsy.reports import text

    return text.render(document, color=color, width=width) or "No process died in this run.\n"
