"""The command line of timeout(1): after how many seconds it ends what it runs. GNU coreutils, BusyBox, uutils."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAMES = frozenset({"timeout", "gtimeout"})
_BOXES = frozenset({"busybox", "coreutils", "toybox"})
_WITH_VALUE = frozenset({"-s", "-k", "--signal", "--kill-after"})
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def limit_of(command: Sequence[str]) -> float | None:
    """The time limit in seconds; None where the command is not timeout(1), or has none (0)."""
    words = list(command)
    if words and words[0].rpartition("/")[2] in _BOXES:
        words = words[1:]
    if not words or words[0].rpartition("/")[2] not in _NAMES:
        return None
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            at += 1
            break
        at += 2 if words[at] in _WITH_VALUE else 1
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{0,9})?|\.\d{1,9})([smhd]?)", words[at]) if at < len(words) else None
    return (float(match[1]) * _UNITS[match[2]] or None) if match is not None else None
