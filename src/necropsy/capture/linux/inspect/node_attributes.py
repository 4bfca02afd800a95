"""The attributes of a kernel's node, read from its ``NodeDef`` in memory: numbers, bools, dtypes, constants.

A kernel points to its ``NodeProperties``, and these hold the ``NodeDef``, whose attributes are a map of protobuf: an
array of chains, each link with the next one, a ``std::string`` and an ``AttrValue``, known by its type information.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from necropsy.capture.process.eager_tensor import DTYPES
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.object_summaries import CONSTANT, LONGEST_CONSTANT
from necropsy.model import Argument

_PROPERTIES = (8, 16, 24)
"""Where a kernel may have the pointer to its ``NodeProperties``."""
_DEFINITION_SIZE = 256
_MOST_CHAINS, _MOST_LINKS = 64, 16
_VALUE_AT = 40
_KIND_AT, _FIELD_AT = 28, 16
_LIST, _TEXT, _WHOLE, _FLOAT, _BOOL, _TYPE = 1, 2, 3, 4, 5, 6
"""``AttrValue``'s cases."""
_WHOLE_NUMBERS_AT = 40
"""Where a list has its whole numbers: how many, room for how many, where."""
_MOST_NUMBERS = 8
_UNKNOWN = "string"
"""The type of a text that is not told."""
_PRIVATE = "_"


def attributes(
    memory: Memory, kernel: int, classes_of: Callable[[int], tuple[str, ...]]
) -> tuple[Argument, ...] | None:
    """A kernel's attributes, or None if not found; ``classes_of``: class of the object at an address, and bases."""
    for at in _PROPERTIES:
        definition = (memory.u64(kernel + at) or 0) + 8
        if "tensorflow::NodeDef" not in classes_of(definition):
            continue
        data = memory.exactly(definition, _DEFINITION_SIZE) or b""
        for (table,) in struct.iter_unpack("<Q", data):
            found = dict(_entries(memory, table, classes_of)) if table % 8 == 0 and table > 1 << 16 else {}
            if found:
                return tuple(one for name, value in found.items() if (one := _argument(memory, name, value)))
    return None


def _entries(memory: Memory, table: int, classes_of: Callable[[int], tuple[str, ...]]) -> Iterator[tuple[str, int]]:
    chains = memory.some(table, 8 * _MOST_CHAINS)
    for (link,) in struct.iter_unpack("<Q", chains[: len(chains) & ~7]):
        for _ in range(_MOST_LINKS):
            if not link or link % 8 or "tensorflow::AttrValue" not in classes_of(link + _VALUE_AT):
                break
            name = _string(memory, link + 8)
            if name is not None:
                yield name, link + _VALUE_AT
            link = memory.u64(link) or 0  # noqa: PLW2901 - a chain


def _string(memory: Memory, at: int) -> str | None:
    head = memory.exactly(at, 16)
    begin, size = struct.unpack("<QQ", head) if head is not None else (0, 0)
    data = memory.exactly(begin, size) if 0 < size <= 100 else None
    text = data.decode() if data and data.isascii() else ""
    return text if text.isidentifier() else None


def _argument(memory: Memory, name: str, value: int) -> Argument | None:
    data = memory.exactly(value, _KIND_AT + 4)
    if data is None or name.startswith(_PRIVATE):
        return None
    kind, number = struct.unpack_from("<I", data, _KIND_AT)[0], struct.unpack_from("<q", data, _FIELD_AT)[0]
    if kind == _WHOLE:
        return Argument(name=name, type="int", value=str(number), unusual=("negative",) if number < 0 else ())
    if kind == _FLOAT:
        return Argument(name=name, type="float", value=f"{struct.unpack_from('<f', data, _FIELD_AT)[0]:.6g}")
    if kind == _BOOL:
        return Argument(name=name, type="bool", value=str(bool(number & 1)))
    if kind == _TEXT:
        return _constant(memory, name, number & ~3)
    if kind == _LIST:
        return _whole_numbers(memory, name, number)
    if kind == _TYPE and 0 < number & 0xFF < len(DTYPES):
        return Argument(name=name, type="DType", value=DTYPES[number & 0xFF])
    return None


def _constant(memory: Memory, name: str, at: int) -> Argument:
    """A text: shown where it is TensorFlow's own, as ``SAME`` is, or empty."""
    head = memory.exactly(at, 16)
    begin, size = struct.unpack("<QQ", head) if head is not None else (0, 1 << 32)
    if not size:
        return Argument(name=name, type="str")
    data = memory.exactly(begin, size) if size <= LONGEST_CONSTANT else None
    text = data.decode() if data and data.isascii() else ""
    return (
        Argument(name=name, type="str", value=text) if CONSTANT.fullmatch(text) else Argument(name=name, type=_UNKNOWN)
    )


def _whole_numbers(memory: Memory, name: str, at: int) -> Argument:
    head = memory.exactly(at + _WHOLE_NUMBERS_AT, 16)
    size, room, begin = struct.unpack("<iiQ", head) if head is not None else (0, 0, 0)
    data = memory.exactly(begin, 8 * size) if 0 < size <= min(room, _MOST_NUMBERS) else None
    numbers = struct.unpack(f"<{size}q", data) if data is not None else ()
    if not numbers or any(abs(one) >= 1 << 31 for one in numbers):
        return Argument(name=name, type="list")
    return Argument(name=name, type="list", dtype="int", shape=(size,), value=str(list(numbers)))
