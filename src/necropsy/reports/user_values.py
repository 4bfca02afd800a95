"""The values of the user's frame in a line: ``n = 0, batch: float32 [512, 3], mask: bool [0] (empty)``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.model import Argument, Frame

MOST = 6
"""Where the source line names none of them."""
_WORDS = {"not-contiguous": "not contiguous"}


def spelled(frame: Frame) -> str | None:
    """The values that the source line of ``frame`` names, and every array that is empty; else the first of them.

    None where no values were read.
    """
    shown = _shown(frame.values or (), frame.code)
    return ", ".join(map(spell, shown)) or None


def _shown(values: Sequence[Argument], code: str | None) -> Sequence[Argument]:
    mentioned = set(re.findall(r"[^\W\d]\w*", code or ""))
    chosen = [one for one in values if one.name in mentioned or "empty" in one.unusual]
    return chosen if any(one.name in mentioned for one in chosen) else values[:MOST]


def spell(one: Argument) -> str:
    """One value: ``n = 0`` or ``batch: float32 [512, 3]``."""
    if one.shape is None:
        return f"{one.name} = {one.value}"
    shape = ", ".join(map(str, one.shape))
    odd = ", ".join(_WORDS.get(each, each) for each in one.unusual if each != "huge")
    return f"{one.name}: {one.dtype} [{shape}]" + (f" ({odd})" if odd else "")
