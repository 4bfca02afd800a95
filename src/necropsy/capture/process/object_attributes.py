"""The entries of dicts and the attributes of Python objects in memory, of CPython 3.11 to 3.13."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.object_summaries import ObjectReader

_DICT_KEYS, _DICT_VALUES = 32, 40
_KEYS_HEAD = 32
_MOST_ENTRIES = 5_000
_DICT_BEFORE = 24
"""Before the object: its dict, or (3.12, with a bit set) the values alone."""
_VALUES_BEFORE = 32
"""Before the object, in 3.11: its values, where it has no dict."""
_MOST_VALUES = 30


def dict_entries(memory: Memory, objects: ObjectReader, address: int) -> Iterator[tuple[int, int]]:
    """The keys and values of the ``dict`` at ``address``; none of one whose values are kept elsewhere."""
    kind = objects.type_of(address)
    if kind is None or kind.name != "dict":
        return
    keys = memory.u64(address + _DICT_KEYS) or 0
    head = memory.exactly(keys, _KEYS_HEAD)
    if head is None:
        return
    size, form = head[9], head[10]
    (count,) = struct.unpack_from("<Q", head, 24)
    if size > 24 or form > 1 or not 0 < count <= _MOST_ENTRIES:
        return
    width = 24 if form == 0 else 16
    data = memory.exactly(keys + _KEYS_HEAD + (1 << size), width * count)
    for at in range(0, len(data or b""), width):
        key, value = struct.unpack_from("<QQ", data or b"", at + width - 16)
        if key and value:
            yield key, value


def attributes(memory: Memory, objects: ObjectReader, address: int) -> tuple[int, ...]:
    """The values of an object's attributes, in no order that means anything; none where they are not found."""
    kind = objects.type_of(address)
    before = memory.exactly(address - _VALUES_BEFORE, 16)
    if kind is None or before is None:
        return ()
    values, own = struct.unpack("<QQ", before)
    if own and not own & 1 and objects.type_of(own) is not None:
        entries = tuple(value for _, value in dict_entries(memory, objects, own))
        return entries or _values(memory, memory.u64(own + _DICT_VALUES) or 0)
    if own & 1:
        return _values(memory, own + 1)
    # 3.13 keeps them behind the object, how many they can be in the first byte.
    return _values(memory, values) or _inline(memory, address + kind.size)


def _values(memory: Memory, at: int) -> tuple[int, ...]:
    """``PyDictValues`` of 3.11 and 3.12: the byte before them is the size of the part that keeps their order."""
    prefix = memory.exactly(at - 1, 1) if at and at % 8 == 0 else None
    return _pointers(memory, at, prefix[0] - 2) if prefix is not None else ()


def _inline(memory: Memory, at: int) -> tuple[int, ...]:
    head = memory.exactly(at, 4)
    return _pointers(memory, at + 8, head[0]) if head is not None and head[2] == 1 and head[3] == 1 else ()


def _pointers(memory: Memory, at: int, count: int) -> tuple[int, ...]:
    if not 0 < count <= _MOST_VALUES + 6:
        return ()
    data = memory.exactly(at, 8 * count)
    return tuple(one for (one,) in struct.iter_unpack("<Q", data or b"") if one)
