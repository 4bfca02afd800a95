"""Recursion on a thread's stack as the model says it: native folds, and the Python frames that repeat with them."""

from __future__ import annotations

from necropsy.capture.process.place import Place
from necropsy.capture.process.unwound import Unwound
from necropsy.formats.fold import fold
from necropsy.model import Fold, Frame


def evaluators(unwound: Unwound) -> list[int]:
    """The indices of the innermost frames in which CPython evaluates Python code, innermost first."""
    return unwound.evaluators()


def folds(unwound: Unwound, python: tuple[Frame, ...] | None, most: int = 8) -> tuple[Fold, ...]:
    """The ``most`` folds that cover most frames, largest first; frames are the same where their function is.

    Args:
        unwound: the thread's whole native stack.
        python: its Python frames with ``evaluated_by`` joined.
        most: how many.

    """
    found = []
    for run in unwound.runs()[:most]:
        unit = unwound.unit(run)
        functions = tuple(place.function or _nameless(place) for place in unit)
        inside = [
            frame
            for frame in python or ()
            if frame.evaluated_by is not None and run.start <= frame.evaluated_by < run.start + run.frames
        ]
        found.append(
            Fold(
                period=run.period,
                times=run.times,
                functions=functions,
                bytes_per_period=run.bytes_per_period,
                start=run.start,
                modules=tuple(place.module for place in unit),
                python=_python_unit(inside),
            )
        )
    return tuple(found)


def _nameless(place: Place) -> str:
    """A function without a name: by its place in its library; what a compiler made at run time lies in none."""
    if place.module is None:
        return "[generated-code]"
    return f"{place.module}+{place.offset or place.pc:#x}"


def _python_unit(inside: list[Frame]) -> tuple[Frame, ...]:
    """The Python frames of one period; those between two others of the recursion, not the ones at its ends."""
    runs = fold([(frame.function, frame.source) for frame in inside])
    if not runs:
        return tuple(inside) if 0 < len(inside) < 4 else ()
    return tuple(inside[index] for index in runs[0].unit)
