"""Functions on their way to a worker: by name where it can import them, else by value."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any

from necropsy.contain import wire

MARK = "__necropsy_contained__"
"""An attribute of the callables that ``contain`` makes: the function that they run."""


def original(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind a contained one; any other as it is."""
    # A method that is bound shows its function's attributes: what it is bound to would be lost.
    inner: Callable[..., Any] = function if isinstance(function, MethodType) else getattr(function, MARK, function)
    return inner


def define(function: Callable[..., Any]) -> bytes:
    """What ``resolve`` makes the function from, in another process. Raises TypeError where it cannot be pickled."""
    named = _name(function)
    if named is not None:
        return pickle.dumps(named, protocol=5)
    try:
        return wire.dumps(function)
    except Exception as error:
        shown = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"{shown} cannot be pickled for the worker process: {error}") from error


def resolve(definition: bytes) -> Callable[..., Any]:
    """The function; in the worker."""
    found = pickle.loads(definition)  # noqa: S301 - from the caller
    if isinstance(found, tuple):
        module, path = found
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    return original(found)


def _name(function: Callable[..., Any]) -> tuple[str, str] | None:
    """Module and path of a function that another process can import."""
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(path, str) or module == "__main__" or "<" in path:
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return (module, path) if found is not None and original(found) is function else None
