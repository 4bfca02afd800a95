"""Local variables of the user's own frame that show what a call was given: numbers, and the shapes of arrays.

No contents of arrays and no text: a report is shown to others. ``--python-locals`` reads everything.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec

from necropsy import redact
from necropsy.capture.process.call_arguments import library_of, variables
from necropsy.capture.process.cpython_frames import Standing
from necropsy.capture.process.cpython_values import Values
from necropsy.capture.process.held_arrays import ArraySearch, is_shown
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.object_summaries import ObjectReader
from necropsy.model import Argument, Frame, HeldArray, Unusual, typed_frames

MOST = 12
_MOST_NAMES = 64
_OPTIMIZED = 1
"""Of ``co_flags``: the variables are in the frame, and not in a dict."""
_NAME = re.compile(r"[^\W\d]\w*")
_SCALARS = frozenset({"int", "bool", "NoneType", "None", "float"})
_OF_NUMPY = re.compile(r"numpy\.(?:u?int|float)\d+|numpy\.bool_?")
_OF_A_SHAPE: frozenset[Unusual] = frozenset({"empty", "not-contiguous"})


def own_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's own files, else of code that was typed in or passed with ``-c``."""
    files = (one for one in frames if library_of(one) is None and not (one.source or "<").startswith("<"))
    return next(files, None) or next(iter(typed_frames(frames)), None)


def standing_of(frame: Frame, standing: Sequence[Standing]) -> Standing | None:
    """The same frame in memory; None where it is not among those that were read."""
    at = frame.index
    one = standing[at] if 0 <= at < len(standing) else None
    # The line of a frame that autograph generated has been replaced by the user's: its function has kept its name.
    fits = one is not None and (one.line == frame.line or _last_name(one.function) == _last_name(frame.function))
    return one if fits else None


def _last_name(function: str | None) -> str:
    return (function or "").rpartition(".")[2].removeprefix("tf__")


def values(memory: Memory, known: Values, frame: Standing, code: str | None) -> tuple[Argument, ...] | None:
    """The variables of ``frame``, at most ``MOST``; None where they cannot be read.

    ``code``: its source line; the variables that it names come first, and in a module they are the only ones.
    """
    told = _all_told(memory, known, frame, code)
    return tuple(itertools.islice(told, MOST)) if told is not None else None


def arrays(memory: Memory, known: Values, frame: Standing) -> tuple[HeldArray, ...]:
    """The arrays and tensors in the variables of ``frame``, largest first; in a module, of those that its code uses."""
    objects = ObjectReader(memory, tagged=frame.layout.tagged)
    return ArraySearch(memory, known, objects).within(_shown(memory, known, objects, frame, None) or {})


def _all_told(memory: Memory, known: Values, frame: Standing, code: str | None) -> Iterator[Argument] | None:
    objects = ObjectReader(memory, tagged=frame.layout.tagged)
    found = _shown(memory, known, objects, frame, code)
    if found is None:
        return None
    told = (_told(objects, name, address) for name, address in found.items())
    return (one for one in told if one is not None)


def _shown(
    memory: Memory, known: Values, objects: ObjectReader, frame: Standing, code: str | None
) -> dict[str, int] | None:
    """The variables that may be shown, by name, those first that the line names; None where they cannot be read."""
    flags = memory.u32(frame.code + frame.layout.flags)
    if flags is None:
        return None
    mentioned = list(dict.fromkeys(_NAME.findall(code or "")))
    if flags & _OPTIMIZED:
        found = dict(variables(memory, objects, frame, parameters_only=False))
    else:
        found = _of_namespace(memory, known, objects, frame, mentioned)
    order = sorted(found, key=lambda name: mentioned.index(name) if name in mentioned else len(mentioned))
    return {name: found[name] for name in order if is_shown(name)}


def _of_namespace(
    memory: Memory, known: Values, objects: ObjectReader, frame: Standing, mentioned: list[str]
) -> dict[str, int]:
    """The variables of a module that the line names; without its text, those that the module's code uses."""
    namespace = memory.u64(frame.address + frame.layout.namespace)
    if not namespace or known.type_name(namespace) != "dict":
        return {}
    wanted = mentioned or [one for one in _used(memory, objects, frame) if one]
    return known.items(namespace, tuple(wanted[:_MOST_NAMES])) if wanted else {}


def _used(memory: Memory, objects: ObjectReader, frame: Standing) -> list[str | None]:
    names = memory.u64(frame.code + frame.layout.names)
    kind = objects.type_of(names) if names else None
    found = objects.items(names, kind) if names and kind is not None and kind.name == "tuple" else None
    return [objects.text(one) for one in found or ()]


def _told(objects: ObjectReader, name: str, address: int) -> Argument | None:
    """One variable, without contents; None where it is neither a number nor an array."""
    one = objects.argument(name, address)
    if one is None:
        return None
    if one.type in _SCALARS or _OF_NUMPY.fullmatch(one.type):
        masked = one.value is None or redact.variables({name: one.value})[name] != one.value
        return None if masked else one
    if one.dtype is None or one.shape is None or one.type in {"list", "tuple"}:
        return None
    unusual = tuple(each for each in one.unusual if each in _OF_A_SHAPE)
    return msgspec.structs.replace(one, value=None, unusual=unusual)
