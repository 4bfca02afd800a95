"""Arrays and tensors that the variables of a running Python function hold: dtype, shape and bytes, never contents."""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from necropsy import redact
from necropsy.capture.process.cpython_values import Values
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.object_summaries import ObjectReader, Type
from necropsy.model import Argument, HeldArray, PythonPlace

MOST = 6
_SIZES = {
    "bool": 1,
    "bfloat16": 2,
    "longlong": 8,
    "ulonglong": 8,
    "longdouble": 16,
    "clongdouble": 32,
    "object": 8,
    "datetime64": 8,
    "timedelta64": 8,
}
_SIZED = re.compile(r"(?:q?u?int|float|complex)(\d{1,3})")
"""Types whose name has the size of one element, in bits."""
_MOST_OBJECTS, _MOST_ITEMS, _DEEPEST = 400, 128, 2
"""Objects that are looked at in all, and of one list, dict or object; how many of these are within each other."""
_WITHOUT = frozenset({"module", "function", "type", "method", "builtin_function_or_method", "str", "int", "float"})
"""Types whose objects are not looked into."""
_LARGEST = 1 << 47
"""The address space of a process: what is larger shows the same memory again and again, or was misread."""


class Running(NamedTuple):
    """Where a process is, and what the function there holds."""

    place: PythonPlace
    arrays: tuple[HeldArray, ...] = ()


class ArraySearch:
    """Finds the arrays of one function: its variables, and what lists, tuples, dicts and objects in these hold.

    Down to ``self.batches[0]``, and to no more than ``_MOST_OBJECTS`` objects: what is nearer comes first.
    """

    def __init__(self, memory: Memory, known: Values, objects: ObjectReader) -> None:
        """``known`` and ``objects`` read the same interpreter."""
        self._memory, self._known, self._objects = memory, known, objects

    def within(self, variables: Mapping[str, int]) -> tuple[HeldArray, ...]:
        """Those in the variables with these addresses, largest first.

        Several in one place with the same type and shape are one, with a count.
        """
        found: dict[tuple[str, str, str | None, tuple[int, ...]], list[HeldArray]] = {}
        waiting = deque(_Object(name, name, name, address, 0) for name, address in variables.items())
        seen: set[int] = set()
        for _ in range(_MOST_OBJECTS):
            if not waiting:
                break
            one = waiting.popleft()
            address = self._inside(one.address)
            kind = self._objects.type_of(address)
            if kind is None or address in seen:
                continue
            seen.add(address)
            if not kind.is_a("list", "tuple", "dict"):
                told = self._objects.argument(one.name, address)
                array = of_argument(told) if told is not None else None
                if array is not None:
                    found.setdefault((one.place, array.type, array.dtype, array.shape), []).append(array)
                    continue
            if one.depth < _DEEPEST and kind.name not in _WITHOUT:
                waiting.extend(self._parts(one, address, kind))
        told_of = (_together(key[0], arrays) for key, arrays in found.items())
        return tuple(sorted(told_of, key=lambda one: (-(one.bytes or 0), one.name)))

    def _inside(self, address: int) -> int:
        """What is in the cell of a variable that functions share; else the same."""
        kind = self._objects.type_of(address)
        return self._memory.u64(address + 16) or 0 if kind is not None and kind.name == "cell" else address

    def _parts(self, one: _Object, address: int, kind: Type) -> Iterator[_Object]:
        if kind.is_a("list", "tuple"):
            yield from self._items(one, address, kind)
        elif kind.is_a("dict"):
            for key, value in itertools.islice(self._known.entries(address), _MOST_ITEMS):
                text = self._known.text(key)
                if text is None or not redact.is_secret_name(text):
                    index = repr(text) if text is not None and is_shown(text) else self._number(key) or "..."
                    yield one.part(f"[{index}]", one.name, value)
        else:
            for key, value in itertools.islice(self._known.all_attributes(address), _MOST_ITEMS):
                name = self._known.text(key)
                if name is not None and is_shown(name):
                    yield one.part(f".{name}", f"{one.name}.{name}", value)

    def _items(self, one: _Object, address: int, kind: Type) -> Iterator[_Object]:
        """Of a long list the last ones, which were added last."""
        size = self._memory.u64(address + 16) or 0
        at = self._memory.u64(address + 24) if kind.is_a("list") else address + 24
        first = max(size - _MOST_ITEMS, 0)
        data = self._memory.exactly(at + 8 * first, 8 * (size - first)) if at and 0 < size < _LARGEST else None
        place = f"{one.each}[-{_MOST_ITEMS}:]" if first else one.each
        for index, (item,) in enumerate(struct.iter_unpack("<Q", data or b""), first):
            if kind.is_a("tuple") and not first:
                yield one.part(f"[{index}]", one.each, item)
            else:
                each = place if first else f"{place}[:]"
                yield _Object(f"{one.name}[{index}]", each, place, item, one.depth + 1)

    def _number(self, address: int) -> str | None:
        return self._known.int_of(address) if self._known.type_name(address) == "int" else None


class _Object(NamedTuple):
    name: str
    """How it is reached."""
    each: str
    """The same for all items of the lists on the way: ``pairs[:][0]``."""
    place: str
    """What several arrays together are called."""
    address: int
    depth: int

    def part(self, step: str, place: str, address: int) -> _Object:
        """What ``step`` leads to. Within the items of a list, the same part of each item belongs together."""
        each = self.each + step
        return _Object(self.name + step, each, place if self.each == self.name else each, address, self.depth + 1)


def is_shown(name: str) -> bool:
    """Whether a variable of this name may be told: it is not internal, and does not say that it is a secret."""
    return name.isidentifier() and not name.startswith("__") and not redact.is_secret_name(name)


def of_argument(one: Argument) -> HeldArray | None:
    """The array that is described; None of anything else, and of one whose size cannot be."""
    if one.shape is None or one.dtype is None:
        return None
    size = _size_of(one.dtype)
    octets = size * math.prod(one.shape) if size is not None else None
    if octets is not None and octets > _LARGEST:
        return None
    return HeldArray(name=one.name, type=one.type, dtype=one.dtype, shape=one.shape, bytes=octets)


def _together(place: str, arrays: Sequence[HeldArray]) -> HeldArray:
    first, count = arrays[0], len(arrays)
    if count == 1:
        return first
    octets = first.bytes * count if first.bytes is not None else None
    return msgspec.structs.replace(first, name=place, count=count, bytes=octets)


def _size_of(dtype: str) -> int | None:
    if dtype in _SIZES:
        return _SIZES[dtype]
    bits = _SIZED.fullmatch(dtype)
    return int(bits[1]) // 8 if bits is not None and int(bits[1]) % 8 == 0 else None
