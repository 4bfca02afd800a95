"""Check a dataset: a walk over its elements, judged by the rules of ``rules/data``."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from necropsy.errors import InputError, NoInputError
from necropsy.model import Document
from necropsy.validation import judging, process

Range = tuple[float | None, float | None]


def check_dataset(
    dataset: Any, spec: Any = None, *, ranges: Mapping[str, Range] | None = None, limit: int | None = None
) -> Document:
    """See ``necropsy.check_dataset``."""
    request: dict[str, Any] = {"spec": _wants(spec), "ranges": _ranges(ranges), "limit": _limit(limit)}
    target = dataset if isinstance(dataset, str) else _target(dataset)
    if target is not None:
        request["path"] = list(sys.path)
        return check_target(target, sys.executable, request=request)
    seen = _here(dataset, request)
    _refuse(seen)
    return judging.document(seen["dataset"], text=seen["dataset"].get("type"))


def check_target(
    target: str,
    python: str,
    *,
    limit: int | None = None,
    timeout: float | None = None,
    watch: process.Watch | None = None,
    request: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Document:
    """Check the dataset that ``target`` (``module:function``) makes, in a process of the interpreter ``python``.

    ``timeout``: seconds, including imports. ``environment``: the process's variables, ours by default. ``watch`` gets
    progress from time to time.

    Raises ``NoInputError`` (no such interpreter, module or function), ``InputError`` (not a dataset, empty, or its
    module's import failed), or ``NecropsyError`` (no process could be started).
    """
    asked = {"limit": _limit(limit), **(request or {}), "target": target}
    walked = process.walk(asked, python, timeout=timeout, watch=watch, environment=environment)
    _refuse(walked.seen)
    return judging.document(walked.seen["dataset"], text=target, run=walked.run, gaps=walked.gaps)


def _target(made: Any) -> str | None:
    """The name by which a child process can import this function; None for a local object."""
    if not callable(made) or hasattr(type(made), "__iter__"):
        return None
    module, name = getattr(made, "__module__", None), getattr(made, "__qualname__", "<")
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split("."):
        found = getattr(found, part, None)
    # Neither bound to an object nor made in another function: the same name means the same in another process.
    if found is not made:
        return None
    if module != "__main__":
        return f"{module}:{name}"
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return f"{Path(file).absolute()}:{name}" if file is not None and os.path.isfile(file) else None  # noqa: PTH113 - may be any text


def _here(dataset: Any, request: dict[str, Any]) -> dict[str, Any]:
    """In this process, because a live object cannot be passed on."""
    try:
        from necropsy.dataset import answering
        from necropsy.dataset.journal import NoJournal
    except ImportError as error:
        raise InputError(f"checking a dataset takes NumPy: {error}") from None
    return answering.of_object(dataset, request, NoJournal())


def _refuse(seen: Mapping[str, Any]) -> None:
    refused = seen.get("refused")
    if refused is not None:
        kind = NoInputError if refused["code"] == NoInputError.exit_code else InputError
        raise kind(refused["text"])


def _wants(spec: Any) -> list[list[Any]] | None:
    if spec is None:
        return None
    try:
        from necropsy.dataset.spec import of_structure
    except ImportError as error:
        raise InputError(f"checking a dataset takes NumPy: {error}") from None
    try:
        return [list(want) for want in of_structure(spec)]
    except TypeError as error:
        raise InputError(str(error)) from None


def _ranges(ranges: Mapping[str, Range] | None) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for path, pair in (ranges or {}).items():
        try:
            low, high = (None if one is None else _number(one) for one in pair)
        except (TypeError, ValueError):
            raise InputError(f"the range of {path!r} is not a pair of numbers: {pair!r}") from None
        if low is not None and high is not None and low > high:
            raise InputError(f"the range of {path!r} is empty: {low} is more than {high}")
        found[path] = [low, high]
    return found


def _number(one: Any) -> float | int:
    value = one.item() if hasattr(one, "item") else one
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(one)
    return value


def _limit(limit: int | None) -> int | None:
    if limit is not None and limit < 1:
        raise InputError(f"the limit is the number of elements to check, at least 1: {limit}")
    return limit
