"""Tables that grow, and how one of them is read."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the backport of the same parser
    import tomli as tomllib


@lru_cache(maxsize=32)
def table(name: str) -> Any:
    """The content of the TOML or JSON file ``name`` of this folder, read once. Callers do not change it."""
    text = files("necropsy.data").joinpath(name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else tomllib.loads(text)
