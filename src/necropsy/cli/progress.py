"""A line on the terminal that says what a command is waiting for, written over again and again."""

from __future__ import annotations

import os
import sys
import time

from necropsy.console import SLOW_S, understands_escapes, whole_width, write


class ProgressLine:
    """What a command is doing, once that takes longer than two seconds; quiet with CI or NO_COLOR set."""

    def __init__(self) -> None:
        quiet = os.environ.get("CI") or os.environ.get("NO_COLOR") or sys.stderr is None
        self.wanted = not quiet and os.isatty(2) and understands_escapes(2)
        self._since: dict[str, float] = {}
        self._shown = False

    def importing(self, name: str) -> None:
        """``importing tensorflow, 5 s``."""
        now = time.monotonic()
        seconds = now - self._since.setdefault(name, now)
        if seconds >= SLOW_S:
            self.show(f"importing {name}, {seconds:.0f} s")

    def show(self, text: str) -> None:
        """Write ``text`` over the last one."""
        self._shown = True
        clean = "".join(char if char.isprintable() else "?" for char in text)
        write(f"\r\x1b[K{clean[: (whole_width(2) or 80) - 1]}")

    def wipe(self) -> None:
        """Leave an empty line behind."""
        if self._shown:
            self._shown = False
            write("\r\x1b[K")
