"""What a report says of one thread's stack: the same for all threads that stand alike."""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.capture.process import recursion_folds
from necropsy.capture.process.native_stack import NativeStack
from necropsy.capture.process.recursion_folds import Folded
from necropsy.model import Frame

INNERMOST = 40
"""Functions that are looked at for what a thread was doing."""


@dataclass(frozen=True, slots=True)
class ThreadReport:
    """``total`` frames were read; ``frames`` are those that are kept of them, ``innermost`` the first functions' names.

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
        folded=recursion_folds.folded(unwound),
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
