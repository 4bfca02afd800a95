"""What a report needs is loaded while nothing happens: that costs little then, and time at the death."""

from __future__ import annotations

import time
from collections.abc import Iterator

AFTER_S = 100.0
"""Loading all takes some 0.1 s of CPU, and may take no more than a thousandth of the run."""
SOON_S = 1.0
"""What every report needs is worth its time once the run is longer than its own start."""
QUIET_S = 0.02
"""Nothing has happened for so long: nobody waits while a piece is loaded."""


class Preloader:
    """Loads one piece after the other while nothing else is to be done."""

    def __init__(self, pieces: Iterator[object]) -> None:
        """Each step of ``pieces`` loads one; in short runs only the first, and those after a step that yields true."""
        self._pieces: Iterator[object] | None = pieces
        self._start = time.monotonic()
        self._after = min(SOON_S, AFTER_S)
        self._hurries = False

    @property
    def wait_s(self) -> float | None:
        """How long nothing must happen before ``step`` is called; None where all is loaded."""
        if self._pieces is None:
            return None
        return 0.0 if self._hurries else max(self._start + self._after - time.monotonic(), QUIET_S)

    def hurry(self) -> None:
        """A death is being read by another process: all is loaded meanwhile."""
        self._hurries = True

    def step(self) -> None:
        """Load the next piece, if it is time to."""
        if self._pieces is None or not (self._hurries or time.monotonic() >= self._start + self._after):
            return
        try:
            soon = next(self._pieces)
        except StopIteration:
            self._pieces = None
        else:
            self._after = min(SOON_S, AFTER_S) if soon else AFTER_S
