"""What the clerk says of a death: its report in the store, as text, and where the user wants it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from necropsy.model import Document

_PATIENCE_S = 60.0
_WIDTH = 100
_MOST_FRAMES = 40
_RUNNERS = re.compile(r"[\\/](_pytest|pluggy|xdist|execnet|python3[^\\/]*[\\/]unittest)[\\/]|^<frozen ")


def of_death(pid: int, folder: str | None) -> dict[str, Any]:
    """The report on the process ``pid``, as plain data.

    ``rule``, ``headline``, ``function``, ``frames`` (of Python, innermost first, without those of pytest), ``text``
    (lines), ``annotation`` (for GitHub). Without a report, ``gap`` says why there is none. ``folder``: where to write
    it, as JSON and as Markdown.
    """
    from necropsy import watch

    document = watch.report(pid, _PATIENCE_S)
    if document is None:
        return {}
    from necropsy.crashed import Crashed
    from necropsy.reports import brief

    document = _of_one(document, pid)
    found = Crashed.of(document)
    told: dict[str, Any] = {
        "rule": found.rule,
        "headline": str(found),
        "function": found.function,
        "frames": _of_the_user(found.python),
        "died": _moment(document, pid),
        "text": _without_headline(brief.render(document, width=_WIDTH)),
    }
    if folder is not None:
        try:
            _write(document, Path(folder))
        except OSError as error:
            told["gap"] = f"the report is not written to {folder}: {error.strerror or error}"
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from necropsy import github

        told["annotation"] = github.annotation(document, os.environ.get("GITHUB_WORKSPACE"))
        with contextlib.suppress(OSError):
            github.tell(document)
    return told


def _of_one(document: Document, pid: int) -> Document:
    """The document as if the process were all that there was: a worker is a child of its controller."""
    import msgspec

    own = [msgspec.structs.replace(one, role="command") for one in document.processes if one.pid == pid]
    reports = [one for one in document.reports if one.pid == pid]
    if not own or not reports:
        return document
    return msgspec.structs.replace(document, processes=tuple(own), reports=tuple(reports))


def _moment(document: Document, pid: int) -> float | None:
    """When it died, in seconds since the epoch: it is held until its report is written."""
    at = next((one.crash.at for one in document.reports if one.pid == pid), None)
    try:
        return datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp() if at else None
    except ValueError:
        return None


def _without_headline(text: str) -> list[str]:
    """The lines of a short report after its first paragraph."""
    _, _, rest = text.lstrip("\n").partition("\n\n")
    return [line for line in rest.splitlines() if line.strip()]


def _of_the_user(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The frames from the test on."""
    own: list[dict[str, Any]] = []
    for frame in frames:
        if _RUNNERS.search(frame["file"] or ""):
            if any(_is_plain(one) for one in own):
                break
            continue
        own.append(frame)
    return own[:_MOST_FRAMES]


def _is_plain(frame: dict[str, Any]) -> bool:
    """Not of the standard library, which may have been called by pytest itself."""
    return not str(frame["file"] or "").startswith(f"{sys.base_prefix}/lib/python{sys.version_info[0]}")


def _write(document: Document, folder: Path) -> None:
    """Both forms, with the same name. Raises OSError where the folder cannot be made or written to."""
    from necropsy import report_archive, serialize
    from necropsy.reports import markdown

    folder.mkdir(parents=True, exist_ok=True)
    place = folder / document.id
    serialize.write(document, place.with_suffix(".json"))
    with report_archive.private(place.with_suffix(".md")) as file:
        file.write(markdown.render(document).encode("utf-8", "replace"))
