"""What a death needs is loaded while nothing happens: that costs little then, and time at the death."""

from __future__ import annotations

import time
from collections.abc import Iterator

AFTER_S = 100.0
"""Loading all takes some 0.1 s of CPU, and may take no more than a thousandth of the run."""
QUIET_S = 0.02
"""Nothing has happened for so long: nobody waits while a piece is loaded."""


class Idle:
    """Loads one piece after the other while nothing else is to be done."""

    def __init__(self, *, reading: Iterator[None], reporting: Iterator[None]) -> None:
        """Each step of the iterators loads one piece of what reading a death, or reporting it, needs."""
        self._pieces = [reading, reporting]
        self._begin = time.monotonic() + AFTER_S
        self._hurries = False

    @property
    def wait_s(self) -> float | None:
        """How long nothing must happen before ``step`` is called; None where all is loaded."""
        if not self._pieces:
            return None
        return 0.0 if self._hurries else max(self._begin - time.monotonic(), QUIET_S)

    def hurry(self) -> None:
        """A death is being read by another process: what its report needs is loaded meanwhile."""
        if not self._hurries and self._pieces:
            self._hurries = True
            self._pieces.reverse()

    def step(self) -> None:
        """Load the next piece, if it is time to."""
        if not self._pieces or not (self._hurries or time.monotonic() >= self._begin):
            return
        try:
            next(self._pieces[0])
        except StopIteration:
            del self._pieces[0]
            self._hurries = False
