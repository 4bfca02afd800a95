"""What a report says of one thread's stack: the same for all threads that stand alike."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.native_stack import NativeStack
from necropsy.formats.fold import fold
from necropsy.model import Fold, Frame

INNERMOST = 40
"""Functions that are looked at for what a thread was doing."""


@dataclass(frozen=True, slots=True)
class ThreadReport:
    """``total`` frames were read; ``frames`` are those kept, ``innermost`` the first functions' names.

    ``evaluators``: indices of the innermost frames in which CPython evaluates Python code. ``why``: what was not read.
    """

    total: int
    estimate: int | None
    complete: bool
    frames: tuple[Frame, ...]
    innermost: tuple[str | None, ...]
    evaluators: tuple[int, ...]
    folded: tuple[Folded, ...]
    largest: tuple[Frame, ...] = ()
    why: str | None = None


def of(unwound: NativeStack, frames: tuple[Frame, ...], *, with_largest: bool) -> ThreadReport:
    """What is reported of ``unwound``, of which ``frames`` are kept."""
    return ThreadReport(
        total=unwound.told(),
        estimate=unwound.estimate,
        complete=unwound.complete,
        frames=frames,
        innermost=tuple(place.function for place in unwound.places.first(INNERMOST)),
        evaluators=tuple(unwound.evaluators()),
        folded=folded(unwound),
        largest=unwound.largest() if with_largest else (),
        why=None if unwound.complete else _left_out(unwound),
    )


def _left_out(unwound: NativeStack) -> str | None:
    if unwound.why is None:
        return None
    said = f"{len(unwound):,} frames read, then {unwound.why}"
    if unwound.estimate is not None:
        said += f"; it has about {unwound.estimate:,} frames"
    if unwound.outer is not None:
        said += f", of which the outermost {len(unwound.outer):,} were read as well"
    return said


@dataclass(frozen=True, slots=True)
class Folded:
    """A fold, and behind which frame it ends."""

    fold: Fold
    end: int


def folded(unwound: NativeStack, most: int = 8) -> tuple[Folded, ...]:
    """The ``most`` folds that cover most frames, largest first; frames are the same where their function is."""
    found = []
    for run in unwound.runs()[:most]:
        unit = unwound.unit(run)
        fold = Fold(
            period=run.period,
            times=run.times,
            functions=tuple(place.function or nameless(place) for place in unit),
            bytes_per_period=run.bytes_per_period,
            start=run.start,
            modules=tuple(place.module for place in unit),
        )
        found.append(Folded(fold, run.start + run.frames))
    return tuple(found)


def with_python(found: tuple[Folded, ...], python: tuple[Frame, ...] | None) -> tuple[Fold, ...]:
    """The folds, with what repeats in ``python``, the thread's Python frames with ``evaluated_by`` joined."""
    if not python:
        return tuple(one.fold for one in found)
    return tuple(msgspec.structs.replace(one.fold, python=_python_unit(_inside(one, python))) for one in found)


def _inside(one: Folded, python: tuple[Frame, ...]) -> list[Frame]:
    start = one.fold.start or 0
    return [frame for frame in python if frame.evaluated_by is not None and start <= frame.evaluated_by < one.end]


def nameless(place: CodeLocation) -> str:
    """A function without a name: by its place in its library; code that was generated at run time has none."""
    if place.module is None:
        return "[generated-code]"
    return f"{place.module}+{place.offset or place.pc:#x}"


def _python_unit(inside: list[Frame]) -> tuple[Frame, ...]:
    """The Python frames of one period; those between two others of the recursion, not the ones at its ends."""
    runs = fold([(frame.function, frame.source) for frame in inside])
    if not runs:
        return tuple(inside) if 0 < len(inside) < 4 else ()
    return tuple(inside[index] for index in runs[0].unit)
