"""One size of a stack that was tried: what was measured of it, and what that means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from necropsy.model import Experiment

FULL = 0.85
"""Share in use from which a stack counts as full; the rest is one large frame that did not fit."""


@dataclass
class Try:
    """One size: how often it was run, what came of it, what was measured."""

    size: int
    experiment: Experiment
    survives: bool
    measures: Mapping[str, float]
    decided: bool
    same: bool = True
    """It died as it does unchanged."""
    of: str | None = None
    """What it died of, in words, if not of a full stack."""

    def ignored(self, before: int) -> bool:
        """The stack that it had is the one from before, rather than the one that was asked for."""
        size = self.measures.get("size")
        return size is not None and abs(size - before) < abs(size - self.size)

    def grew(self, before: int) -> bool | None:
        """The larger stack was used up as well (True), or it died with much of it free (False)."""
        used, size = self.measures.get("used"), self.measures.get("size")
        if used is None or size is None:
            return None
        if used >= FULL * size and size > 1.5 * before:
            return True
        return False if used < FULL * size / 2 else None

    @property
    def meaning(self) -> str:
        """What this size shows, for the row of a report; empty where it shows nothing."""
        if self.survives:
            return "the stack was too small" if self.decided else "too few runs to say"
        if not self.experiment.crashed:
            return ""
        if self.of is not None and not self.same:
            return f"it gets past this, and dies of {self.of}"
        used, each, deep = self.measures.get("used"), self.measures.get("per_level"), self.depth
        if used is None:
            return "how much was in use is not known"
        deep = f", {deep}" + (f" of {each:,.0f} bytes" if each else "") if deep else ""
        return f"{size_text(int(used))} were in use{deep}"

    @property
    def depth(self) -> str | None:
        """How deep the recursion was: ``about 65,536 levels``."""
        used, depth, each = (self.measures.get(name) for name in ("used", "depth", "per_level"))
        # Of the deepest stacks only the two ends are walked.
        depth = used / each if used and each else depth
        return f"about {depth:,.0f} levels" if depth else None


def size_text(octets: int) -> str:
    """``8 MiB``, ``1.25 MiB``, ``512 KiB``, ``2,000 bytes``."""
    if octets >= 1 << 30 and octets % (1 << 30) == 0:
        return f"{octets >> 30} GiB"
    if octets < 1 << 20:
        return f"{octets >> 10} KiB" if octets % 1024 == 0 else f"{octets:,} bytes"
    # Two digits behind the point where they tell two bisected sizes apart.
    return f"{octets / (1 << 20):.2f}".rstrip("0").rstrip(".") + " MiB" if octets < 10 << 20 else _mib(octets)


def _mib(octets: int) -> str:
    return f"{octets / (1 << 20):,.1f} MiB".replace(".0 MiB", " MiB")
