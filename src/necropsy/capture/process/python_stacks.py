"""Python stacks of a stopped process, whatever reads them, and which native frame runs which Python frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from necropsy.model import Frame

EVALUATOR = "_PyEval_EvalFrameDefault"
MOST_FRAMES = 2048
ENTRY = -1
"""Mark in ``evaluated_by`` before the join: the native evaluator was entered for this frame."""


class PythonStackError(Exception):
    """Python stacks could not be read; the text says why."""


class PythonStacks(Protocol):
    """A reading of Python stacks that is under way."""

    holds_gil: int | None

    def collect(self, limit_s: float, pointers: Mapping[int, int] | None = None) -> dict[int, tuple[Frame, ...]]:
        """As ``Dump.collect``."""

    def stop(self) -> None:
        """End it, whatever it does."""


class Unreadable:
    """Python stacks that are not to be had, and why."""

    def __init__(self, why: str) -> None:
        self.holds_gil: int | None = None
        self._why = why

    def collect(self, limit_s: float, pointers: Mapping[int, int] | None = None) -> dict[int, tuple[Frame, ...]]:  # noqa: ARG002 - as ``PythonStacks`` has it
        """Raises PythonStackError."""
        raise PythonStackError(self._why)

    def stop(self) -> None:
        """Nothing runs."""


def join(frames: Sequence[Frame], evaluators: Sequence[int]) -> tuple[Frame, ...]:
    """Assign each Python frame, which has ``ENTRY`` where an evaluator was entered, to its native frame.

    CPython 3.11 and later run a Python-to-Python call in the running evaluator: one evaluator runs the frames up to the
    one that it was entered for. Where the numbers do not match, only the innermost frame is certain. ``evaluators``:
    indices of the native frames of ``_PyEval_EvalFrameDefault``, innermost first.
    """
    entries = sum(frame.evaluated_by == ENTRY for frame in frames)
    # Of a list that was cut, the innermost evaluators are those of its frames all the same.
    fits = entries < len(evaluators) if len(frames) >= MOST_FRAMES else entries == len(evaluators)
    if not fits:
        return tuple(
            msgspec.structs.replace(frame, evaluated_by=evaluators[0] if index == 0 and evaluators else None)
            for index, frame in enumerate(frames)
        )
    joined: list[Frame] = []
    at = 0
    for frame in frames:
        joined.append(msgspec.structs.replace(frame, evaluated_by=evaluators[at] if at < len(evaluators) else None))
        at += frame.evaluated_by == ENTRY
    return tuple(joined)
