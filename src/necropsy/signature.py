"""Is it the same crash or another one?

A signature is ``rule|function|hash``: readable at the front, exact at the end. Two crashes with the same one have the
same cause at the same place. It is made of the rule (the general one, where the
special one takes what dumps do not show), of how the process ended, and of names:

- where a **stack ran out by recursion**, of the functions that repeat, as a set: in which of them, at what depth and on
  top of what it ended is chance;
- where it ran out by **large frames**, of the function with the largest one, and its callers;
- **else** of the innermost functions of the program's own, ``FRAMES`` different ones at most. What belongs to the
  system, the C++ library or the interpreter is left out, and so is who called the latter. A function that was named
  already is not named again: a tree that is walked more deeply makes no other crash;
- where memory was **damaged earlier** and no native code of the user's own is on the stack, of the function of Python
  that was running;
- where there is **none of its own** otherwise, of the others, of the function of Python that led there, and of what was
  said: the exception's type, the library or the symbol that was not found.

The same crash looks different to who sees more or less of it, and that must not count. So of functions inlined into
others none takes part: debug information alone shows them. Of a name only what all sources know does: no parameters,
template arguments, suffixes of the compiler's copies, versions. Addresses, lines, folders, ids and depths are not
looked at. A function without a name is its library and the place in it, which stays as long as the library does.

It cannot see through everything: the same source compiled with other inlining is another program, and a library
that was stripped of the names of its own functions has places where it had names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest

import msgspec

from necropsy.frame_filter import file_name, noise, noise_of_module, outside_of_python
from necropsy.model import Crash, Diagnosis, Fold, Frame, Thread
from necropsy.predicates import bare_name, signal_of

FRAMES = 5
"""How many different names of the crashed thread count; deeper ones differ between versions of the caller."""
_GENERAL = {"write-to-readonly": "invalid-write", "shared-memory-exhausted": "bus-error"}
"""What the rule is where the memory map or the file systems are not to be seen, as in some dumps and cores."""
_EXHAUSTED = "stack-overflow-"
"""What the names of the rules on a full stack begin with."""
_ABOUT = {"missing-library": ("library",), "undefined-symbol": ("symbol",), "python-traceback": ("exception",)}
"""Kinds of messages, and which of their fields tell causes apart."""
_NOTICED = frozenset({"heap-corruption", "damaged-object"})
"""The damage was done earlier: which function of a library notices it, and in what words, is chance."""
_ENDS = {"abort", "start", "cpp-runtime", "interpreter"}
_COPY = re.compile(r"\.(?:localalias|clone|__uniq)\b.*")
_PLACED = re.compile(r"\+0x[0-9a-f]+$")
"""The end of what represents a function without a name."""


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
    """How it ended: the signal, from any source; else the status. A fast-fail is another one by its subcode."""
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
    """What the program's own functions are called that the crash is known by."""
    frames = physical(thread.frames or ())
    if rule.startswith(_EXHAUSTED):
        if thread.folds and not rule.endswith("-large-frame"):
            return _recursive(thread)
        frames = _from_largest(thread, frames)
    return _first(_own(outside_of_python(frames)))


def _foreign(thread: Thread) -> tuple[str, ...]:
    """Where nothing is the program's own: what has a name, and is no way to give up or to begin."""
    frames = outside_of_python(physical(thread.frames or ()))
    return _first(plain(frame.function) for frame in frames if frame.function is not None and noise(frame) not in _ENDS)


def _first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:FRAMES]


def physical(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames without those that only debug information shows: inlined calls stand at their caller's address.

    A recursion has the same address again as well, but it is the same function.
    """
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
    """What the program's own functions are called; a nameless one by its place."""
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
    """The part of a name that every source of names knows: no parameters, template arguments or versions.

    Debug information tells the scope of an unnamed namespace where a symbol table writes it in braces; compilers and
    systems put underscores before names.
    """
    name = _COPY.sub("", bare_name(function)).replace("(anonymous namespace)", "{anonymous}")
    return name.lstrip("_") or name


def _recursive(thread: Thread) -> tuple[str, ...]:
    """What repeats, without a beginning: where exactly a recursion ends is chance."""
    fold = max(thread.folds, key=lambda one: (one.times * (one.bytes_per_period or 0), one.times * one.period))
    inlined = _inlined(thread)
    frames = [frame for frame in _unit(fold) if frame.function not in inlined]
    own = {
        name for frame in frames if noise(frame) is None and not noise_of_module(frame) for name in (_placed(frame),)
    }
    return tuple(sorted(own or {_placed(frame) for frame in frames or _unit(fold)}))


def _unit(fold: Fold) -> list[Frame]:
    """One period, as frames."""
    modules = fold.modules or (None,) * len(fold.functions)
    return [
        Frame(index=index, kind="native", function=function, module=module)
        for index, (function, module) in enumerate(zip(fold.functions, modules, strict=False))
    ]


def _placed(frame: Frame) -> str:
    function = frame.function or "?"
    return function.lower() if _PLACED.search(function) else plain(function)


def _inlined(thread: Thread) -> set[str]:
    """The functions that stand on the stack only inlined into others."""
    frames = thread.frames or ()
    real = {frame.function for frame in physical(frames)}
    return {frame.function for frame in frames if frame.function is not None and frame.function not in real}


def _from_largest(thread: Thread, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """From the largest frame on: what it called when the stack was full is chance."""
    sized = [frame for frame in (*thread.largest, *frames) if frame.stack_bytes]
    if not sized:
        return frames
    largest = max(sized, key=lambda frame: (frame.stack_bytes or 0, -frame.index))
    outer = tuple(frame for frame in frames if frame.index >= largest.index)
    return outer if outer and outer[0].index == largest.index else (largest, *outer)


def _python(verdict: Diagnosis | None) -> tuple[str, ...]:
    """The line's function of Python, with its file's name: ``<module>`` alone is everybody's."""
    place = verdict.culprit.python if verdict and verdict.culprit else None
    if place is None or place.function is None:
        return ()
    return (f"{file_name(place.file) if place.file else '?'}:{place.function.rsplit('.', 1)[-1]}",)


def _blamed(verdict: Diagnosis | None) -> tuple[str, ...]:
    """No thread crashed, as in a hang: who is blamed for it."""
    function = verdict.culprit.function if verdict and verdict.culprit else None
    return (plain(function),) if function else ()


def _said(crash: Crash) -> tuple[str, ...]:
    """What an exception was about: its type, and the library or the symbol that was not found."""
    found: dict[str, str] = {}
    for message in crash.messages or ():
        fields = _ABOUT.get(message.kind, ())
        found.update({name: file_name(message.fields[name]) for name in fields if name in message.fields})
    return tuple(found.values())
