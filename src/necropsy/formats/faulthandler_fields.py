"""faulthandler's dumps: lines -> fields of a message. The stacks themselves are read by ``readers.faulthandler``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.formats.tracebacks import TracebackPlace, fields_of

_FRAME = re.compile(r'[\s|+>]*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+))?$')
_THREAD = re.compile(r"(?P<current>Current thread|Thread) (?P<id>0x[0-9a-fA-F]+)(?: \[(?P<name>[^\]]*)\])?")


def dump(lines: Sequence[str]) -> dict[str, str]:
    """Fields below a dump's first line: the current thread's place, id, name, ``no_frames`` and ``collecting`` (GC)."""
    places: list[TracebackPlace] = []
    fields: dict[str, str] = {}
    current = False
    for line in lines:
        bare = line.strip()
        if match := _THREAD.match(bare):
            if current:
                break
            current = match["current"] == "Current thread" and "C stack trace" not in bare
            if current:
                fields["thread"] = match["id"]
                if match["name"]:
                    fields["thread_name"] = match["name"]
        elif not current:
            continue
        elif match := _FRAME.match(line):
            places.append(TracebackPlace(match["file"], match["line"], (match["function"] or "").strip()))
        elif bare == "Garbage-collecting":
            fields["collecting"] = "yes"
        elif bare == "<no Python frame>":
            fields["no_frames"] = "yes"
        elif not bare:
            break
    return fields | fields_of(places[::-1], None, "")
