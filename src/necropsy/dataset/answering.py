"""A request for a walk, answered: plain data in, plain data out."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

from necropsy.dataset.journal import LOADING, Journal, NoJournal
from necropsy.dataset.loading import NotFoundError, NotLoadedError, load, raised
from necropsy.dataset.sources import NotADatasetError, Source, source_of
from necropsy.dataset.spec import Want
from necropsy.dataset.walk import Walk

BAD_DATA, NO_INPUT = 65, 66


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """``{"dataset": ...}`` as ``necropsy.model.Dataset`` is written, or ``{"refused": {"code", "text"}}``."""
    journal = Journal(request["journal"]) if request.get("journal") else NoJournal()
    journal.note(0, 1, LOADING)
    try:
        made = load(request["target"])
    except NotFoundError as error:
        return _refused(NO_INPUT, str(error))
    except NotLoadedError as error:
        return _refused(BAD_DATA, str(error))
    return of_object(made, request, journal)


def of_object(made: Any, request: dict[str, Any], journal: Any) -> dict[str, Any]:
    """The same for a dataset, or a function that makes it."""
    if callable(made) and not hasattr(type(made), "__iter__"):
        try:
            made = made()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises is a finding
            return {"dataset": {"ended": "error", "raised": raised(error, None)}}
    return walked(made, request, journal)


def walked(dataset: Any, request: dict[str, Any], journal: Any) -> dict[str, Any]:
    """The same for a dataset that is at hand."""
    deadline = request.get("deadline")
    try:
        source: Source = source_of(dataset)
        if request.get("single"):
            source.one_by_one()
        walk = Walk(
            source,
            _wants(request.get("spec")),
            {path: (low, high) for path, (low, high) in (request.get("ranges") or {}).items()},
            limit=request.get("limit"),
            seconds=None if deadline is None else deadline - time.time(),
            journal=journal,
            memory=request.get("memory") or available(),
            snapshot=_snapshot(request["snapshot"]) if request.get("snapshot") else None,
        )
        return {"dataset": walk.run()}
    except NotADatasetError as error:
        return _refused(BAD_DATA, str(error))


def _snapshot(path: str) -> Callable[[dict[str, Any]], None]:
    """Writes findings so far to ``path``, all that remains if the process dies."""

    def write(seen: dict[str, Any]) -> None:
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump({"dataset": seen}, file)
        os.replace(path + ".part", path)

    return write


def _wants(rows: list[list[Any]] | None) -> list[Want] | None:
    if rows is None:
        return None
    wants = [Want(*row) for row in rows]
    return [want._replace(shape=None if want.shape is None else tuple(want.shape)) for want in wants]


def _refused(code: int, text: str) -> dict[str, Any]:
    return {"refused": {"code": code, "text": " ".join(text.split())}}


_LIMITS = ("/sys/fs/cgroup/max", "/sys/fs/cgroup/memory/limit_in_bytes")


def available() -> int | None:
    """Bytes: the limit of the control group where it is below the machine's memory; None where neither is known."""
    found = []
    for path in _LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=None)
