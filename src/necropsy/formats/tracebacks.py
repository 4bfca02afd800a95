"""Python tracebacks and faulthandler's dumps: lines -> fields of a message.

Places are given as ``file``, ``source_line`` and ``function`` (the innermost frame) and as ``user_file``, ``user_line``
and ``user_function`` (the innermost frame outside of the standard library and the installed packages: the line that its
author can change).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.model import Message

LINES = 400
"""Lines of one traceback that are read; a recursion's is cut by Python itself (``[Previous line repeated ...]``)."""

_FRAME = re.compile(r'[\s|+]*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+))?$')
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: (?P<text>.*)|:)?$")
_THREAD = re.compile(r"(?P<current>Current thread|Thread) (?P<id>0x[0-9a-f]+)(?: \[(?P<name>[^\]]*)\])?")
_CONTEXT = "During handling of the above exception, another exception occurred:"
_CAUSE = "The above exception was the direct cause of the following exception:"
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|\\lib\\|^<frozen |^<string>|^<__array", re.IGNORECASE
)


@dataclass(frozen=True)
class Place:
    """One line of a Python stack."""

    file: str
    line: str
    function: str


def is_library(file: str) -> bool:
    """The file belongs to Python itself or to an installed package."""
    return _LIBRARY.search(file) is not None


def traceback(lines: Sequence[str], before: Sequence[str] = ()) -> dict[str, str]:
    """Fields of the traceback whose head is the line before ``lines``; ``before`` are the lines before the head.

    ``exception`` and ``text`` where its last line was found; ``frames`` counts its frames; ``chained`` is ``cause`` or
    ``context`` where it says that it follows from the traceback before it.
    """
    places: list[Place] = []
    fields: dict[str, str] = {}
    for line in lines:
        if match := _FRAME.match(line):
            places.append(Place(match["file"], match["line"], (match["function"] or "<module>").strip()))
            continue
        bare = line.strip()
        if not bare or line[0] in {" ", "\t"} or bare.startswith("[Previous line repeated"):
            # Source lines and the ~~~^^^ under them are indented as the frames are.
            continue
        if match := _EXCEPTION.match(bare):
            fields["exception"] = match["type"]
            if match["text"]:
                fields["text"] = match["text"]
        break
    if _CAUSE in "\n".join(before):
        fields["chained"] = "cause"
    elif _CONTEXT in "\n".join(before):
        fields["chained"] = "context"
    return fields | _places(list(reversed(places)))


def dump(lines: Sequence[str]) -> dict[str, str]:
    """Fields of a faulthandler dump: the innermost frame of the thread that it calls current, and the thread's id.

    ``no_frames`` is set where it says that the thread runs no Python; ``collecting`` where the garbage collector runs.
    """
    places: list[Place] = []
    fields: dict[str, str] = {}
    current = False
    for line in lines:
        if match := _THREAD.match(line.strip()):
            if current:
                break
            current = match["current"] == "Current thread"
            if current:
                fields["thread"] = match["id"]
        elif not current:
            continue
        elif match := _FRAME.match(line):
            places.append(Place(match["file"], match["line"], (match["function"] or "").strip()))
        elif line.strip() == "Garbage-collecting":
            fields["collecting"] = "yes"
        elif line.strip() == "<no Python frame>":
            fields["no_frames"] = "yes"
        elif not line.strip():
            break
    return fields | _places(places)


def _places(innermost_first: Sequence[Place]) -> dict[str, str]:
    if not innermost_first:
        return {}
    place = innermost_first[0]
    fields = {
        "file": place.file,
        "source_line": place.line,
        "function": place.function,
        "frames": str(len(innermost_first)),
    }
    user = next((one for one in innermost_first if not is_library(one.file)), None)
    if user is not None:
        fields |= {"user_file": user.file, "user_line": user.line, "user_function": user.function}
    return fields


def join(first: Message, last: Message) -> Message:
    """Two chained tracebacks as one message: the last exception is what ended the program, the first one began it."""
    fields = dict(last.fields)
    for name in ("exception", "text"):
        origin = first.fields.get(f"first_{name}", first.fields.get(name))
        if origin is not None:
            fields[f"first_{name}"] = origin
    if "user_file" not in fields:
        fields |= {name: value for name, value in first.fields.items() if name.startswith("user_")}
    return Message(kind=last.kind, text=last.text, where=last.where, line=last.line, fields=fields)
