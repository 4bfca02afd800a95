"""Formats besides text, JSON, Markdown and HTML, each a file in the folder of its documents' kind.

A file named after the format has ``render(document, pages)``; ``pages`` finds rule pages. The folder ``crash`` is for
documents on crashes, and those of a triage; others have the name of the documents' kind.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line asks for the names at each start
    from necropsy.model import Document


_ON_CRASHES = frozenset({"run", "diagnosis", "profile", "reduction", "fuzz", "triage"})


def _folder(kind: str) -> str:
    return "crash" if kind in _ON_CRASHES else kind


def names(kind: str) -> tuple[str, ...]:
    """The formats that there are for documents of this kind only; none of them is loaded."""
    folder = os.path.join(os.path.dirname(__file__), _folder(kind))  # noqa: PTH118, PTH120 - at each start
    try:
        files = os.listdir(folder)  # noqa: PTH208 - as above
    except OSError:
        return ()
    return tuple(sorted(one[:-3] for one in files if one.endswith(".py") and not one.startswith("_")))


def render(document: Document, form: str, pages: Callable[[str], str | None] | None = None) -> str:
    """The document in one of the formats that ``names`` has for its kind; raises ``InputError`` for another one."""
    if form not in names(document.kind):
        from necropsy.errors import InputError

        known = ", ".join(("text", "json", "markdown", "html", *names(document.kind)))
        raise InputError(f"a document of kind {document.kind} has no form {form}: choose one of {known}")
    module = importlib.import_module(f"{__name__}.{_folder(document.kind)}.{form}")
    rendered: str = module.render(document, pages)
    return rendered
