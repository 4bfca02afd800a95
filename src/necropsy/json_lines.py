"""The answers of a process that makes calls for this one: a JSON object on each line of its output."""

from __future__ import annotations

import json
import os
import select
import time
from typing import IO, Any

from necropsy.errors import NecropsyError


class Answers:
    """The lines of a process's output, one after the other. ``who`` names the process in errors."""

    def __init__(self, output: IO[bytes], who: str) -> None:
        self._file, self._who = output.fileno(), who
        self._rest = b""

    @property
    def has_line(self) -> bool:
        """A whole line has been read, and not been returned yet."""
        return b"\n" in self._rest

    def next(self, seconds: float) -> dict[str, Any]:
        """The next line. Raises NecropsyError where the process ended, or prints none within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not self.has_line:
            ready, _, _ = select.select([self._file], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._file, 1 << 16) if ready else b""
            if not part:
                why = "ended unexpectedly" if ready else f"did not answer within {seconds:.0f} s"
                raise NecropsyError(f"{self._who} {why}")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer
