"""How much CPU time the readings of a running program may take, so that it does not notice them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class TimeBudget:
    """Of one kind of readings: some at once, and a share of all the time that passes."""

    lent_s: float
    """What they may take at the beginning, in seconds of CPU time."""
    share: float
    """What they may take of the time since, as a part of it."""
    clock: Callable[[], float] = time.monotonic
    spent_s: float = 0.0
    begun: float = field(init=False)

    def __post_init__(self) -> None:
        """The time passes from now on."""
        self.begun = self.clock()

    def spend(self, seconds: float) -> None:
        """They have taken so much."""
        self.spent_s += seconds

    def pause_s(self, more_s: float = 0.0) -> float:
        """How long to wait until they may go on; ``more_s``: this once they may take more. 0: not at all."""
        return max((self.spent_s - self.lent_s - more_s) / self.share - (self.clock() - self.begun), 0.0)
