"""What a death needs is loaded while nothing happens: that costs little then, and time at the death."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from itertools import chain

from necropsy.capture.linux import ptrace

AFTER_S = 100.0
"""Loading all takes some 0.1 s of CPU, and may take no more than a thousandth of the run."""
SOON_S = 1.0
"""What every report needs takes as long again, and is worth it once the run is longer than its own start."""
QUIET_S = 0.02
"""Nothing has happened for so long: nobody waits while a piece is loaded."""


class Idle:
    """Waits for what happens next, and loads one piece after the other while nothing does."""

    def __init__(self, *pieces: Iterator[object]) -> None:
        """``pieces``: each step of them loads one; the last go first.

        A step that yields true says that the next one is worth its time in short runs too, as is the very first.
        """
        self._pieces: Iterator[object] | None = chain(*reversed(pieces))
        self._start = time.monotonic()
        self._soon = True

    def wait(self) -> tuple[int, int]:
        """As ``ptrace.wait``."""
        while self._pieces is not None:
            found = ptrace.wait_at_once()
            if found is not None:
                return found
            left = self._start + (min(SOON_S, AFTER_S) if self._soon else AFTER_S) - time.monotonic()
            if signal.sigtimedwait({signal.SIGCHLD}, max(left, QUIET_S)) is None and left <= 0:
                try:
                    self._soon = bool(next(self._pieces))
                except StopIteration:
                    self._pieces = None
        return ptrace.wait()
