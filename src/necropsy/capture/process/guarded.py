"""Guards around the parts of a reading: an error in one costs that part and is told, nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.model import Gap

T = TypeVar("T")


class Gaps:
    """Runs the parts; an error in one costs that part only."""

    def __init__(self, known: tuple[Gap, ...]) -> None:
        self.list = list(known)

    def part(self, name: str, read: Callable[[], T]) -> T | None:
        """What ``read`` returns, or None and a gap."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - the report is worth more than any one part of it
            self.add(name, _why(error))
            return None

    def add(self, part: str, why: str) -> None:
        """Say that ``part`` is missing."""
        gap = Gap(part=part, why=why)
        if gap not in self.list:
            self.list.append(gap)


def _why(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"{error.name or error} is not installed"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, PythonStackError):
        return str(error)
    return f"{type(error).__name__}: {error}"
