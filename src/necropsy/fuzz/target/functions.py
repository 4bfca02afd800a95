"""Loads a Python function as the target, and describes its parameters by their type hints.

What every target is loaded with is here as well: its names for calls, and why it cannot be called.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import inspect
import os
import re
import runpy
import sys
from typing import Any, Dict, Optional, Tuple

from necropsy.fuzz.target import guarding
from necropsy.fuzz.target.strategies import drawn, kind_of, without_given

_KINDS = (
    ("ragged", re.compile(r"(?:tensorflow|\btf)\b.*\bRaggedTensor\b")),
    ("sparse", re.compile(r"(?:tensorflow|\btf)\b.*\bSparseTensor\b")),
    ("torch", re.compile(r"torch\b.*\bTensor\b")),
    ("tensorflow", re.compile(r"(?:tensorflow|\btf)\b.*\b(?:Eager)?Tensor\b")),
    ("ndarray", re.compile(r"ndarray|NDArray|ArrayLike")),
    ("list(int)", re.compile(r"(?:[Ll]ist|[Ss]equence|[Ii]terable)\[int\]")),
    ("list(float)", re.compile(r"(?:[Ll]ist|[Ss]equence|[Ii]terable)\[float\]")),
    ("bytes", re.compile(r"\bbytes\b")),
    ("string", re.compile(r"\bstr\b")),
    ("bool", re.compile(r"\bbool\b")),
    ("int", re.compile(r"\bint\b")),
    ("float", re.compile(r"\bfloat\b")),
)
_TENSORFLOW = frozenset({"tensorflow", "ragged", "sparse"})
_ARRAYS = frozenset({"ndarray", "torch"}) | _TENSORFLOW

VARIABLE = "NECROPSY_FUZZ_LIBRARY"
_WORDS = 300


class RefusedError(Exception):
    """The target cannot be called; ``what``: ``framework``, ``library``, ``op`` or ``module``."""

    def __init__(self, what: str, text: str) -> None:
        self.what = what
        super().__init__(text)


def loaded(target: Dict[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """What the function takes, as JSON, and the names for calls of it.

    Raises:
        RefusedError: it cannot be loaded.

    """
    module, name = target["module"], target["function"]
    sys.path.insert(0, target["folder"])
    try:
        if module.endswith(".py"):
            sys.path.insert(0, os.path.dirname(module))
            found = runpy.run_path(module)
        else:
            found = vars(importlib.import_module(module))
    except ModuleNotFoundError as error:
        raise RefusedError("module", last_line(error)) from error
    except Exception as error:
        raise RefusedError("framework", last_line(error)) from error
    function = found.get(name)
    if not callable(function):
        raise RefusedError("module", "%s has no function %s" % (module, name))
    function, strategies = without_given(function)
    has_given = bool(strategies)
    if not has_given:
        strategies = without_given(found.get("test_" + name))[1]
    if target.get("sanitized") is not None and not is_mapped(target["sanitized"]):
        raise RefusedError("library", "it does not load the library that %s names while it is imported" % VARIABLE)
    parameters = _parameters(function)
    wanted = {one["name"]: strategies[one["name"]] for one in parameters or () if one["name"] in strategies}
    calls, undrawn = [], None
    try:
        calls = drawn(wanted) if wanted else []
    except Exception as error:  # noqa: BLE001 - a strategy runs code of its own
        undrawn = last_line(error)
    for one in parameters or ():
        if one["kind"] is None and one["name"] in wanted:
            one["kind"] = kind_of([call["arguments"][one["name"]] for call in calls])
    names = namespace(target=function, np=_imported("numpy"))
    kinds = {one["kind"] for one in parameters or ()}
    for library, short, of_it in (("tensorflow", "tf", _TENSORFLOW), ("torch", "torch", {"torch"})):
        if kinds & of_it:
            names[short] = _imported(library)
    names["__refusals__"] = (Exception,)
    takes_arrays = any(one["kind"] in _ARRAYS for one in parameters or ())
    if names["np"] is not None and guarding.is_loaded() and takes_arrays:
        names["__warm__"] = lambda: names.update(__held__=_empty_cache(names["np"]))
    offered = {"name": name, "parameters": parameters, "numpy": names["np"] is not None, "arrays": takes_arrays}
    return {"function": {**offered, "drawn": calls, "undrawn": undrawn, "has_given": has_given}}, names


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _empty_cache(np: Any) -> Any:
    """Take what NumPy keeps of freed arrays below 1 KiB: new arrays come from malloc(3) then, which can guard them."""
    return [np.empty(size, np.uint8) for size in range(1024) for _ in range(8)]


def _parameters(function: Any) -> Any:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [
        {
            "name": one.name,
            "kind": _kind(one.annotation),
            "by_name": one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY},
            "needed": one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD},
        }
        for one in found
    ]


def _kind(annotation: Any) -> Optional[str]:
    if annotation is inspect.Parameter.empty:
        return None
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "") + " " + str(annotation)
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), None)


def last_line(error: Exception) -> str:
    """The first line of what an error says, without the place in a graph and the current folder."""
    lines = re.sub(r"\{\{.*?\}\} *| \[Op:\w+\]", "", str(error)).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    with contextlib.suppress(OSError):
        text = text.replace(os.getcwd() + "/", "")
    return text[:_WORDS]


def is_mapped(path: str) -> bool:
    """Whether this process has loaded the library."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        return any(line.rstrip("\n").endswith(path) for line in file)


def namespace(**names: Any) -> dict[str, Any]:
    """The names that calls are made of."""
    return {"__builtins__": builtins, **names}
