"""What one stretch of text says of a death, and who can read such a stretch.

A log, a forum post or a terminal's content holds several: a debugger's backtrace, the kernel's line, the sentence in
which a scheduler says how the job ended. Each kind has one reader below ``formats.readers``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from necropsy.formats.lines import Line
from necropsy.model import Crash


@dataclass(frozen=True)
class TextReport:
    """Lines ``first`` to ``last`` (numbers of the input, both inclusive) are ``kind`` of text that says ``crash``.

    Every part of ``crash`` may be missing; what is there was read from these lines alone. ``whole``: these lines are a
    document of another kind than a log; what looks like a known phrase in them is no message that the program wrote.
    """

    kind: str
    first: int
    last: int
    crash: Crash
    whole: bool = False


@dataclass(frozen=True)
class TextReader:
    """One kind of text.

    ``triggers`` are literals (at least 4 characters, case counts); each such stretch of text holds one in the line at
    which ``read`` is to look. ``read(lines, index)`` is given the lines of one excerpt without holes and the index of
    a line that holds a trigger; it may look at most ``reach`` lines each way. None: it is not that kind.
    Takes any text whatsoever, in time linear in it, and never raises.
    """

    kind: str
    triggers: tuple[str, ...]
    read: Callable[[Sequence[Line], int], TextReport | None]
    reach: int = 400
