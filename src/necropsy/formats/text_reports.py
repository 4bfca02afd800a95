"""What one stretch of text says of a death, and the readers of such stretches.

A log, a forum post or a terminal's content may hold several: a debugger's backtrace, the kernel's line, the sentence in
which a scheduler says how the job ended. Each kind has one reader below ``formats.readers``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from necropsy.formats.lines import Line
from necropsy.model import Crash


@dataclass(frozen=True)
class TextReport:
    """Lines ``first`` to ``last`` (numbers of the input, both inclusive) are ``kind`` of text that says ``crash``.

    ``crash`` was read from these lines alone; any part may be missing. ``whole``: they are a document rather than a
    log, so that known phrases in them are not messages of the program. ``writer``: who wrote them, where the log's
    collector says so. ``threads``: the numbers of threads in them, which other processes do not have. ``content``: a
    hash of their words.
    """

    kind: str
    first: int
    last: int
    crash: Crash
    whole: bool = False
    writer: str = ""
    threads: frozenset[str] = frozenset()
    content: str = ""


@dataclass(frozen=True)
class TextReader:
    """One kind of text.

    ``triggers`` are literals (at least 4 characters, case counts), one of which each such stretch holds.
    ``read(lines, index)`` gets the lines of one excerpt without holes and the index of a line with a trigger; it may
    look at most ``reach`` lines each way. It returns None where the text is not of its kind, accepts any text, takes
    time linear in it, and never raises.
    """

    kind: str
    triggers: tuple[str, ...]
    read: Callable[[Sequence[Line], int], TextReport | None]
    reach: int = 400


_OTHERS = re.compile(
    r"chrom(?:e|ium)|firefox|Web Content|Isolated Web|GPU Process|WebKit|gnome-|gjs$|gsd-|gvfs|nautilus|kwin|"
    r"plasma|kded|Xorg|Xwayland|sway$|systemd|dbus-|snapd|packagekitd|tracker-|cupsd|slack|teams|discord|spotify|steam|thunderbird|"
    r"soffice|evince|telegram|zoom$",
    re.IGNORECASE,
)


def is_foreign(name: str | None) -> bool:
    """The name is that of a desktop's or a system's own program. Any other may be a Python that renamed itself."""
    return bool(name and _OTHERS.match(name.strip()))
