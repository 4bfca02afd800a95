"""Python's tracebacks, and the dumps of faulthandler: lines -> fields of a message.

``file``, ``source_line`` and ``function`` are the innermost frame; ``user_file``, ``user_line`` and ``user_function``
the innermost one outside the standard library and installed packages, which the author can change.

Formats: Lib/traceback.py of CPython 2.7 to 3.14 (carets and exception groups since 3.11), ``RemoteTraceback`` of
multiprocessing and concurrent.futures, Ray's ``RayTaskError``, PyTorch's ``Original Traceback``, loguru, and the
same in one line with escaped line breaks, as structured logs have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from necropsy.lazy_re import regex
from necropsy.model import Message

KIND = "python-traceback"
BEFORE, LINES = 4, 2000
"""Lines before its head and behind it that are read of one traceback with all that is in it ..."""
_FRAMES = 400
"""... and of one exception in it; a recursion's is cut by Python itself (``[Previous line repeated ...]``)."""
HEAD = "Traceback (most recent call last):"

_FRAME = regex(r'[\s|+>\u2502]*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+))?$')
# The type as Python prints it, with its module, `<locals>` and what Ray puts in brackets; no blank before the colon.
_EXCEPTION = regex(r"(?P<type>[A-Za-z_][\w.]*(?:\.<locals>\.[\w.]+|\([\w.]+\))?)(?:: (?P<text>.*)|:)?$")
_REPEATED = regex(r"\s*\[Previous line repeated (\d+) more times?\]")
_HEAD = regex(r"(?P<margin>[ \t]*(?:[|+] )?)(?:Exception Group )?Traceback \(most recent call last\):")
_PACKAGE = regex(r"(?:site|dist)-packages[/\\\\](?P<package>\w+)")
_SUBS = regex(r"[ |]*\+[-+]*-{8,} (?:\d+|\.\.\.) -{8,}$")
_CONTEXT = "During handling of the above exception, another exception occurred:"
_CAUSE = "The above exception was the direct cause of the following exception:"
_IN_PROCESS = regex(r"Process (?P<process>[\w.:-]{1,80}):$")
_IN_THREAD = regex(r"Exception in thread (?P<thread>[^:]{1,80}(?: \([^)]{1,80}\))?):")
_DUMP_THREAD = regex(r"(?P<current>Current thread|Thread) (?P<id>0x[0-9a-fA-F]+)(?: \[(?P<name>[^\]]*)\])?")
_IGNORED = regex(r"Exception ignored (?:in|on|while)\b")
_LIBRARY = regex(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/|\\lib\\|^<frozen |^<string>|^<__array", re.IGNORECASE
)
_STRAYS = 3
"""Lines of other threads that may stand inside of a traceback."""


@dataclass(frozen=True)
class TracebackPlace:
    """One line of a Python stack."""

    file: str
    line: str
    function: str
    code: str = ""
    """The source line, where the traceback shows it."""


@dataclass(frozen=True)
class TracebackStack:
    """The frames of an exception, outermost first, their number before equal ones were folded, its ``last`` line."""

    places: tuple[TracebackPlace, ...]
    total: int
    exception: str | None
    text: str
    last: int


def is_library(file: str) -> bool:
    """The file belongs to Python itself or to an installed package."""
    return _LIBRARY.search(file) is not None


def is_exception(name: str) -> bool:
    """It may be the name of an exception: a class's, or one of the few old ones (``socket.timeout``, ``cv2.error``)."""
    last = name.rsplit(".", 1)[-1]
    return any(char.isupper() for char in last) or last.endswith(("error", "timeout"))


def read(lines: Sequence[str], index: int) -> tuple[dict[str, str], int]:
    """Fields of the traceback whose head is ``lines[index]``, and the index of its last line.

    ``exception`` and ``text`` where its last line was found; ``frames`` counts its frames. ``chained``: how it follows
    from the one before: ``cause``, ``context``, or ``original`` (that one only wrapped it). ``caller_file``: the
    innermost of another package than the innermost frame's. ``remote``: sent by another process; ``process`` and
    ``thread``: which one ended of it; ``ignored``: Python went on. Of an exception group, ``first_exception`` and
    ``first_text`` are its first leaf's, ``parts`` counts the leaves.
    """
    head = lines[index]
    before = [line.strip(" \t|") for line in lines[max(0, index - BEFORE) : index]]
    fields = _relations(head, before)
    inline = head.partition(HEAD)[2]
    if "\\n" not in inline and _FRAME.match(inline):
        # The line break behind the head was lost.
        rows = [*lines[:index], head[: -len(inline)], inline, *lines[index + 1 : index + LINES]]
        fields, last = read(rows, index)
        return fields, max(index, last - 1)
    if "\\n" in inline:
        rows = inline.replace("\\r", "").replace('\\\\"', '"').replace('\\"', '"').split("\\n")
        stack = _stack(rows, 0, "")
        stack = TracebackStack(stack.places, stack.total, stack.exception, stack.text.rstrip('"}], '), index)
    else:
        match = _HEAD.match(head)
        stack = _stack(lines, index, match["margin"] if match else "")
        if stack.last + 1 < len(lines) and _is_wrapper(stack.exception):
            # Ray prints the worker's traceback, without a head, below the type that it wraps it in.
            inner = _stack(lines, stack.last, match["margin"] if match else "")
            if inner.exception and inner.places:
                fields |= _named("outer_", stack)
                stack = inner
    fields |= _named("", stack) | _places(stack.places[::-1], stack.total)
    leaves, last = _leaves(lines, stack.last)
    if leaves:
        fields |= _named("first_", leaves[0]) | {"parts": str(len(leaves))}
        if "user_file" not in fields:
            fields |= {name: value for name, value in _places(leaves[0].places[::-1], 0).items() if "user_" in name}
    return fields, last


def _relations(head: str, before: Sequence[str]) -> dict[str, str]:
    """What the words around the head say: of which process or thread, and how it is chained to the one before."""
    fields: dict[str, str] = {}
    said = "\n".join(before)
    if "Original " + HEAD in head:
        fields["chained"] = "original"
    elif _CAUSE in said:
        fields["chained"] = "cause"
    elif _CONTEXT in said:
        fields["chained"] = "context"
    nearest = next((one for one in reversed(before) if one), "")
    if nearest == '"""':
        fields["remote"] = "yes"
    if match := _IN_PROCESS.match(nearest):
        fields["process"] = match["process"]
    elif match := _IN_THREAD.match(nearest):
        fields["thread"] = match["thread"]
    elif _IGNORED.match(nearest):
        fields["ignored"] = "yes"
    return fields


def _named(prefix: str, stack: TracebackStack) -> dict[str, str]:
    if stack.exception is None:
        return {}
    return {f"{prefix}exception": stack.exception} | ({f"{prefix}text": stack.text} if stack.text else {})


def _is_wrapper(exception: str | None) -> bool:
    return exception is not None and "RayTaskError" in exception


def _stack(lines: Sequence[str], index: int, margin: str) -> TracebackStack:
    places: list[TracebackPlace] = []
    total = strays = behind = 0
    begun = index
    flush = False
    last = index
    for at in range(index + 1, min(len(lines), index + 1 + _FRAMES)):
        line = _without(lines[at], margin)
        if line is None:
            break
        if match := _FRAME.match(line):
            places.append(TracebackPlace(match["file"], match["line"], (match["function"] or "<module>").strip()))
            total += 1
            flush, behind, begun = line.startswith("File"), 0, at
        elif flush and _is_source(lines, at, behind):
            behind += 1
        elif match := _REPEATED.match(line):
            total += int(match[1]) if len(match[1]) < 10 else 0
        elif places and at == begun + 1 and line.strip() and line[0] in " \t":
            places[-1] = replace(places[-1], code=line.strip())
        elif line.strip() and line[0] not in " \t":
            # Source lines and the ~~~^^^ under them are indented as the frames are; the exception is not.
            if _goes_on(lines, at, margin) and strays < _STRAYS and not (places and _is_wrapper(line.split(":")[0])):
                strays += 1
                continue
            if (match := _EXCEPTION.match(line.strip())) and is_exception(match["type"]):
                text = (match["text"] or "").strip() or _next_text(lines, at, margin)
                return TracebackStack(tuple(places), total, match["type"], text, at)
            break
        last = at
    return TracebackStack(tuple(places), total, None, "", last)


def _without(line: str, margin: str) -> str | None:
    """The line without its group's margin; None where it lacks it: the group has ended."""
    if not margin:
        return line
    if margin.strip():
        bare = line[len(margin) :]
        return bare if line[: len(margin)].strip() in {"|", "+"} and not bare.startswith("--") else None
    return line[len(margin) :] if not line[: len(margin)].strip() else line


def _is_source(lines: Sequence[str], at: int, behind: int) -> bool:
    """The line is ``behind`` others below a frame in a traceback that lost its indentation: it is source text."""
    bare = lines[at].strip()
    if not bare or behind >= _MOST_SOURCE:
        return False
    if at + 1 < len(lines) and lines[at + 1].startswith('File "'):
        return True
    match = _EXCEPTION.match(bare)
    return not (match is not None and is_exception(match["type"])) and HEAD not in bare


_MOST_SOURCE = 4
"""Lines of source, and of carets, that stand below one frame."""


def _goes_on(lines: Sequence[str], at: int, margin: str) -> bool:
    """The line at ``at`` was written in between: a frame follows, with at most its source before it."""
    for line in lines[at + 1 : at + 4]:
        below = _without(line, margin)
        if below is None or below[:2] != "  ":
            return False
        if below.startswith('  File "') and _FRAME.match(below):
            return True
    return False


def _next_text(lines: Sequence[str], at: int, margin: str) -> str:
    """The first words of an exception whose text begins with a line break."""
    for line in lines[at + 1 : at + 3]:
        bare = (_without(line, margin) or "").strip()
        if bare and lines[at].rstrip().endswith(":"):
            return bare if HEAD not in bare and bare not in {_CAUSE, _CONTEXT} else ""
    return ""


def _leaves(lines: Sequence[str], index: int) -> tuple[list[TracebackStack], int]:
    """The exceptions in the group at ``index`` that are not groups, and the last line of it all."""
    leaves: list[TracebackStack] = []
    last = index
    begin: int | None = None
    for at in range(index + 1, min(len(lines), index + 1 + LINES)):
        if not lines[at].lstrip().startswith(("|", "+")):
            break
        if _SUBS.match(lines[at]):
            leaves += _leaf(lines, begin, at)
            begin = at
        elif begin is not None and lines[at].strip(" |+-") == "" and "+--" in lines[at]:
            leaves += _leaf(lines, begin, at)
            begin = None
        last = at
    leaves += _leaf(lines, begin, last + 1)
    if not leaves:
        return [], index
    return leaves, last


def _leaf(lines: Sequence[str], begin: int | None, end: int) -> Iterator[TracebackStack]:
    if begin is None:
        return
    bare = [re.sub(r"^[ ]*[|] ?", "", line) for line in lines[begin + 1 : end]]
    heads = [at for at, line in enumerate(bare) if HEAD in line]
    stack = _stack(bare, heads[-1], "") if heads else _stack(["", *bare], 0, "")
    if stack.exception is not None and not (heads and "Exception Group" in bare[heads[-1]]):
        yield stack


def _places(innermost_first: Sequence[TracebackPlace], total: int) -> dict[str, str]:
    if not innermost_first:
        return {}
    place = innermost_first[0]
    fields = {
        "file": place.file,
        "source_line": place.line,
        "function": place.function,
        "code": place.code,
        "frames": str(max(total, len(innermost_first))),
    }
    user = next((one for one in innermost_first if not is_library(one.file)), None)
    if user is not None:
        fields |= {
            "user_file": user.file,
            "user_line": user.line,
            "user_function": user.function,
            "user_code": user.code,
        }
    caller = next((one for one in innermost_first if package_of(one.file) not in {None, package_of(place.file)}), None)
    if caller is not None and package_of(place.file) is not None:
        fields |= {"caller_file": caller.file, "caller_line": caller.line, "caller_function": caller.function}
    return {name: value for name, value in fields.items() if value}


def package_of(file: str) -> str | None:
    """The package that a file belongs to, by the folder into which it was installed."""
    match = _PACKAGE.search(file)
    return match["package"] if match else None


def fields_of(places: Sequence[TracebackPlace], exception: str | None, text: str) -> dict[str, str]:
    """The same fields for a stack in another form; ``places`` outermost first."""
    stack = TracebackStack(tuple(places), len(places), exception, text, 0)
    return _named("", stack) | _places(stack.places[::-1], stack.total)


def join(first: Message, last: Message) -> Message:
    """Two chained tracebacks as one message: the last exception is what ended the program, the first one began it."""
    fields = dict(last.fields)
    if fields.get("chained") == "original":
        # The one before only says that it was raised in a worker; it may have come with a chain of its own.
        for name in ("exception", "text"):
            if name in first.fields:
                fields[f"outer_{name}"] = first.fields[name]
    else:
        for name in ("exception", "text"):
            origin = first.fields.get(f"first_{name}", first.fields.get(name))
            if origin is not None:
                fields[f"first_{name}"] = origin
        if fields.get("first_exception") == fields.get("exception") and fields.get("first_text") == fields.get("text"):
            # Raised anew where another process had sent it.
            fields = {name: value for name, value in fields.items() if name not in {"first_exception", "first_text"}}
    if "user_file" not in fields or (first.fields.get("remote") and "user_file" in first.fields):
        fields |= {name: value for name, value in first.fields.items() if name.startswith("user_")}
    for name in ("remote", "process", "thread"):
        if name in first.fields:
            fields.setdefault(name, first.fields[name])
    return Message(kind=last.kind, text=last.text, where=last.where, line=last.line, fields=fields)


def dump_fields(lines: Sequence[str]) -> dict[str, str]:
    """Fields below the first line of faulthandler's dump, whose stacks ``readers.faulthandler`` reads.

    The current thread's place, id and name; ``no_frames``; ``collecting``, while garbage was collected.
    """
    places: list[TracebackPlace] = []
    fields: dict[str, str] = {}
    current = False
    for line in lines:
        bare = line.strip()
        if match := _DUMP_THREAD.match(bare):
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
