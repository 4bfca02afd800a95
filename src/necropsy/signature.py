"""Crash signatures ``rule|function|hash``: the same for the same cause at the same place.

The hash covers the rule (the general one if dumps do not show what the special one needs), how the process ended, and:

- **recursion** filled the stack: the set of functions that repeat; depth, order and what it ended on are chance;
- **large frames** filled it: the function with the largest one, and its callers;
- memory was **damaged earlier** and no native code of the user is on the stack: the running Python function;
- **otherwise** the innermost ``FRAMES`` distinct functions of the program, without those of the system, the C++ library
  and the interpreter or the interpreter's callers. A tree walked more deeply is the same crash;
- **no function of its own**: other functions, the calling Python function, and what was said (the exception's type, the
  missing library or symbol).

Tools see different amounts of the same crash, so only what all of them see counts. Inlined functions are left out,
since only debug information shows them. Names lose parameters, template arguments, clone suffixes and versions.
Addresses, lines, folders, ids and depths do not count. A nameless function is its library and offset.

Limits: the same source compiled with other inlining is another program, and a stripped library has offsets instead of
names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise, zip_longest

import msgspec

from necropsy.frame_filter import file_name, noise, noise_of_module, outside_of_python
from necropsy.model import Crash, Diagnosis, Fold, Frame, Thread
from necropsy.predicates import bare_name, signal_of

FRAMES = 5
"""How many different names of the crashed thread count; deeper ones differ between versions of the caller."""
_GENERAL = {"write-to-readonly": "invalid-write", "shared-memory-exhausted": "bus-error"}
"""The rule to use if the memory map or file systems are not visible, as in some dumps and cores."""
_EXHAUSTED = "stack-overflow-"
_ABOUT = {"missing-library": ("library",), "undefined-symbol": ("symbol",), "python-traceback": ("exception",)}
"""Message kinds, and the fields that distinguish their causes."""
_NOTICED = frozenset({"heap-corruption", "damaged-object"})
"""The damage happened earlier: which library function notices it, and how, is chance."""
_ENDS = {"abort", "start", "cpp-runtime", "interpreter"}
_COPY = re.compile(r"\.(?:localalias|clone|__uniq)\b.*")
_PLACED = re.compile(r"\+0x[0-9a-f]+$")


def signature(crash: Crash, verdict: Diagnosis | None) -> str:
    """The crash's signature. Two crashes with the same one have the same cause at the same place."""
    thread = crash.crashed_thread
    rule = _GENERAL.get(verdict.rule, verdict.rule) if verdict else "unknown"
    names = _names(thread, rule) if thread else ()
    frames = (thread.frames if thread else None) or ()
    if rule in _NOTICED and all(frame.owner != "native-code" for frame in frames):
        names = _python(verdict) or names
    if not names:
        names = (*(_foreign(thread) if thread else _blamed(verdict)), *_python(verdict), *_said(crash))
    place = names[0] if names else "?"
    digest = hashlib.sha256("\n".join((rule, _end(crash), *names)).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{rule}|{place}|{digest}"


def _end(crash: Crash) -> str:
    """The signal, from any source, or the status; fast-fail subcodes count as different ends."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    if status is not None and status.fast_fail is not None:
        return f"fast-fail {status.fast_fail.code}"
    if (signal := signal_of(crash)) is not None:
        return signal
    if crash.exit is None:
        return "unknown"
    return f"{crash.exit.kind} {status.value.lower() if status is not None else crash.exit.code}"


# ---------------------------------------------------------------- names


def _names(thread: Thread, rule: str) -> tuple[str, ...]:
    """The program's own functions that identify the crash."""
    frames = physical(thread.frames or ())
    if rule.startswith(_EXHAUSTED):
        if thread.folds and not rule.endswith("-large-frame"):
            return _recursive(thread)
        frames = _from_largest(thread, frames)
    return _first(_own(outside_of_python(frames)))


def _foreign(thread: Thread) -> tuple[str, ...]:
    """If no frame belongs to the program: named frames, without abort and thread-start functions."""
    frames = outside_of_python(physical(thread.frames or ()))
    return _first(plain(frame.function) for frame in frames if frame.function is not None and noise(frame) not in _ENDS)


def _first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:FRAMES]


def physical(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Drop inlined calls, which only debug information shows; unlike a recursion, they share their caller's address."""
    kept = []
    for frame, caller in zip_longest(frames, frames[1:]):
        if (
            caller is not None
            and caller.index == frame.index + 1
            and frame.address is not None
            and frame.address == caller.address
            and frame.function != caller.function
            and not frame.stack_bytes
        ):
            continue
        kept.append(msgspec.structs.replace(frame, source=None, line=None))
    return tuple(kept)


def _own(frames: tuple[Frame, ...]) -> Iterator[str]:
    """The program's own functions; a nameless one by its place."""
    for frame in frames:
        if noise(frame) is None and not noise_of_module(frame) and (name := _name(frame)) is not None:
            yield name


def _name(frame: Frame) -> str | None:
    if frame.function is not None:
        return plain(frame.function)
    if frame.module is None:
        return None  # made at run time, or no code at all: nothing of it stays the same
    at = f"+{frame.module_offset}" if frame.module_offset is not None else ""
    return f"{file_name(frame.module).lower()}{at}"


def plain(function: str) -> str:
    """The part of a name that every source knows: no parameters, template arguments or versions.

    Debug information has ``(anonymous namespace)`` where symbol tables have braces; compilers add leading underscores.
    """
    name = _COPY.sub("", bare_name(function)).replace("(anonymous namespace)", "{anonymous}")
    return name.lstrip("_") or name


def _recursive(thread: Thread) -> tuple[str, ...]:
    """The repeating part only: where a recursion ends is chance."""
    fold = max(thread.folds, key=lambda one: (one.times * (one.bytes_per_period or 0), one.times * one.period))
    inlined = _inlined(thread)
    frames = [frame for frame in _unit(fold) if frame.function not in inlined]
    own = {
        name for frame in frames if noise(frame) is None and not noise_of_module(frame) for name in (_placed(frame),)
    }
    return tuple(sorted(own or {_placed(frame) for frame in frames or _unit(fold)}))


def _unit(fold: Fold) -> list[Frame]:
    modules = fold.modules or (None,) * len(fold.functions)
    return [
        Frame(index=index, kind="native", function=function, module=module)
        for index, (function, module) in enumerate(zip(fold.functions, modules, strict=False))
    ]


def _placed(frame: Frame) -> str:
    function = frame.function or "?"
    return function.lower() if _PLACED.search(function) else plain(function)


def _inlined(thread: Thread) -> set[str]:
    """Functions that occur on the stack only as inlined calls.

    Where frames are left out, the last one before says nothing: its caller would show whether it is inlined.
    """
    frames = thread.frames or ()
    last = {one.index for one, caller in pairwise(frames) if caller.index != one.index + 1}
    real = {frame.function for frame in physical(frames) if frame.index not in last}
    return {frame.function for frame in frames if frame.function is not None and frame.function not in real}


def _from_largest(thread: Thread, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """From the largest frame outwards: what it called when the stack was full is chance."""
    sized = [frame for frame in (*thread.largest, *frames) if frame.stack_bytes]
    if not sized:
        return frames
    largest = max(sized, key=lambda frame: (frame.stack_bytes or 0, -frame.index))
    outer = tuple(frame for frame in frames if frame.index >= largest.index)
    return outer if outer and outer[0].index == largest.index else (largest, *outer)


def _python(verdict: Diagnosis | None) -> tuple[str, ...]:
    """The function and its file's name, because ``<module>`` alone is ambiguous."""
    place = verdict.culprit.python if verdict and verdict.culprit else None
    if place is None or place.function is None:
        return ()
    return (f"{file_name(place.file) if place.file else '?'}:{place.function.rsplit('.', 1)[-1]}",)


def _blamed(verdict: Diagnosis | None) -> tuple[str, ...]:
    """The culprit if no thread crashed, as in a hang."""
    function = verdict.culprit.function if verdict and verdict.culprit else None
    return (plain(function),) if function else ()


def _said(crash: Crash) -> tuple[str, ...]:
    """The exception's type, and the missing library or symbol."""
    found: dict[str, str] = {}
    for message in crash.messages or ():
        fields = _ABOUT.get(message.kind, ())
        found.update({name: file_name(message.fields[name]) for name in fields if name in message.fields})
    return tuple(found.values())
