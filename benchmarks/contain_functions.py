"""What the worker processes of ``contain.py`` run; a worker imports this module, which therefore loads little."""

from __future__ import annotations

import ctypes
import os
from typing import Any

BAD = frozenset({100_000, 300_001, 500_002, 700_003, 900_004})
"""Records at which ``increment`` dies."""


def add(a: int, b: int = 1) -> int:
    return a + b


def same(value: Any) -> Any:
    return value


def increment(number: int) -> int:
    if number in BAD:
        ctypes.string_at(0)
    return number + 1


def crash() -> None:
    ctypes.string_at(0)


def process() -> int:
    return os.getpid()
