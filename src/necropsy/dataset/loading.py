"""The function that makes a dataset, by the name that the user gives."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any


class NotFoundError(Exception):
    """There is no such file, module or function."""


class NotLoadedError(Exception):
    """It is there, but importing it failed; the text says how."""


def load(target: str) -> Any:
    """What ``module:name`` or ``file.py:name`` names.

    Raises:
        NotFoundError: there is no such file, module or name.
        NotLoadedError: the import raised an exception.

    """
    module, name = split(target)
    found = _import(module)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NotFoundError(f"{module} has no {name}") from None
    return found


def split(target: str) -> tuple[str, str]:
    """The module (or file) and the name in it.

    Raises:
        NotFoundError: that is not of the form MODULE:FUNCTION.

    """
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
    """The module in a file. It is not __main__: what a script does only when it is run is not done."""
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
