"""``list``, ``show`` and ``open``: reports that exist already, found, read and rendered."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal, get_args

from necropsy import capsule, record, store
from necropsy.errors import InputError, NecropsyError, NoInputError
from necropsy.model import Document
from necropsy.reports import listing

Format = Literal["text", "json", "markdown", "html"]
FORMATS: tuple[str, ...] = get_args(Format)


def rendered(document: Document, form: str, *, color: bool = False, width: int = 80) -> str:
    """The document in one of ``FORMATS``; colour and width are the text's only."""
    if form == "json":
        return record.dumps(document).decode()
    if form == "markdown":
        from necropsy.reports import markdown

        return markdown.render(document)
    if form == "html":
        from necropsy.reports.html import render

        return render(document)
    from necropsy.reports import text

    return text.render(document, color=color, width=width)


def place() -> Path:
    """The reports folder, be it there or not.

    Raises:
        NoInputError: there is no home folder, and NECROPSY_OUTPUT names none.

    """
    found = store.folder()
    if found is None:
        raise NoInputError("there is no home folder, so no reports are kept; NECROPSY_OUTPUT=DIR names a place")
    return found


def table(*, width: int | None, color: bool) -> str:
    """The kept reports, newest first; a sentence where there are none. A damaged one is a line that says so.

    Raises:
        NoInputError: there is no such folder, or it may not be read.

    """
    folder = place()
    rows = []
    for path in store.kept(folder):
        identity = store.identity_of(path)
        document, problem = None, None
        try:
            document = capsule.read(path)
        except NecropsyError as error:
            problem = str(error)
        rows.append(listing.Row(identity, store.short(identity), store.worker_of(path), document, problem))
    if not rows:
        return f"No reports are kept in {folder} yet: `necropsy run` keeps one of each death.\n"
    return listing.render(rows, width=width, color=color)


def save_core(path: Path, target: Path, pid: int | None) -> str:
    """Unpack a kept report's core to ``target``; what to do with it, in a line.

    Raises:
        NoInputError: there is none.
        UnreadableReportError: the file is damaged.
        NecropsyError: ``target`` cannot be written.

    """
    try:
        capsule.write_core(path, target, pid)
    except OSError as error:
        raise NecropsyError(f"cannot write {target}: {error.strerror or error}") from error
    reports = capsule.read(path).reports
    environments = [one.crash.environment for one in reports if pid is None or one.crash.pid == pid]
    program = next((one.executable for one in environments if one is not None and one.executable), "PROGRAM")
    return f"Look at it with: gdb {shlex.quote(program)} {shlex.quote(str(target))}"


def opened(path: Path) -> Document:
    """The document of a kept report or of a JSON document.

    Raises:
        NoInputError: the file is missing or may not be read.
        InputError: it is none of them.

    """
    if capsule.is_capsule(path):
        return capsule.read(path)
    try:
        with path.open("rb") as file:
            data = file.read(capsule.LARGEST + 1)
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > capsule.LARGEST:
        raise InputError(f"{path} is no report of necropsy's")
    return record.loads(data)
