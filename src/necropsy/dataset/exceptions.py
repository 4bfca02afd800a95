"""An exception of the user's pipeline, as plain data."""

from __future__ import annotations

import re
import traceback
from typing import Any

_MESSAGE = 2000
"""Characters."""


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
    """TensorFlow puts the traceback of a Python function into the text of its own error."""
    found = [match for match in re.finditer(r'File "([^"]+)", line (\d+), in (\S+)', text) if not _is_library(match[1])]
    if not found:
        return None
    return {"function": found[-1][3], "file": found[-1][1], "line": int(found[-1][2])}
