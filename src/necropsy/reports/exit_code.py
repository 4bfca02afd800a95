"""The exit code of a process in the numbers that a shell and Python show for it."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.resources import files

from necropsy.model import Exit

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the backport of the same parser
    import tomli as tomllib


@lru_cache(maxsize=1)
def _numbers() -> dict[str, int]:
    """Signals by name, as they are numbered on Linux."""
    table = tomllib.loads(files("necropsy.data").joinpath("signals.toml").read_text(encoding="utf-8"))
    return {one["name"]: one["number"] for one in table["signal"]}


def spelled(end: Exit | None) -> str | None:
    """``139 in a shell, -11 in Python``; None where the process did not end, or the number is not known."""
    if end is None:
        return None
    if end.ntstatus is not None:
        return f"{end.ntstatus.value}, shown as {end.ntstatus.signed} by Python"
    if end.kind == "exited":
        return str(end.code) if end.code is not None else None
    number = _numbers().get(end.signal or "") if end.kind == "signaled" else None
    return f"{128 + number} in a shell, -{number} in Python" if number is not None else None
