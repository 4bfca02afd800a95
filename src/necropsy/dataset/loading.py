"""The user's code: the function that makes a dataset, by its name, and its exceptions as plain data."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from typing import Any

_MESSAGE = 2000
"""Characters."""


class NotFoundError(Exception):
    """There is no such file, module or function."""


class NotLoadedError(Exception):
    """It is there, but importing it failed; the text says how."""


def load(target: str) -> Any:
    """The object named by ``module:name`` or ``file.py:name``; raises ``NotFoundError`` or ``NotLoadedError``."""
    module, name = split(target)
    found = _import(module)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NotFoundError(f"{module} has no {name}") from None
    return found


def split(target: str) -> tuple[str, str]:
    """The module or file, and the name in it; raises ``NotFoundError`` unless it has the form MODULE:FUNCTION."""
    module, colon, name = target.rpartition(":")
    if not colon or not module or not all(part.isidentifier() for part in name.split(".")):
        raise NotFoundError(f"{target!r} is not of the form MODULE:FUNCTION")
    return module, name


def _import(module: str) -> Any:
    is_file = module.endswith(".py")
    if is_file and not os.path.isfile(module):
        raise NotFoundError(f"{module} does not exist")
    try:
        return _from_file(module) if is_file else importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not is_file and error.name is not None and (module + ".").startswith(error.name + "."):
            raise NotFoundError(f"the module {error.name} was not found") from None
        raise NotLoadedError(f"importing {module} failed: {type(error).__name__}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        raise NotLoadedError(f"importing {module} failed: {type(error).__name__}: {_line(error)}") from error


def _from_file(path: str) -> Any:
    """Not as __main__, so code for running as a script is skipped."""
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


def raised(error: BaseException, index: int | None) -> dict[str, Any]:
    """An exception as plain data, with the line of the user's code that it came from."""
    message = str(error)[:_MESSAGE]
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not _is_library(one.filename)]
    place = own[-1] if own else None
    found = None
    if place is not None:
        found = {"function": place.name, "file": place.filename, "line": place.lineno}
    else:
        found = _in_message(str(error))
    return {"type": type(error).__name__, "message": message, "index": index, "times": 1, "place": found}


def _is_library(file: str) -> bool:
    parts = file.replace("\\", "/")
    return "/site-packages/" in parts or "/necropsy/dataset/" in parts or "/lib/python" in parts or parts[:1] == "<"


def _in_message(text: str) -> dict[str, Any] | None:
    """TensorFlow's errors contain the traceback of a Python function as text."""
    found = [match for match in re.finditer(r'File "([^"]+)", line (\d+), in (\S+)', text) if not _is_library(match[1])]
    if not found:
        return None
    return {"function": found[-1][3], "file": found[-1][1], "line": int(found[-1][2])}
