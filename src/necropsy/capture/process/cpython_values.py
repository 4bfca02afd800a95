"""Plain Python values in memory: texts, numbers, tuples, lists, and the keys of dictionaries that are names.

CPython 3.8 to 3.13 on 64 bits (``internal/pycore_dict.h``, ``longobject.h``, ``cpython/unicodeobject.h``). Anything
unexpected is None.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from necropsy.capture.process.cpython_offsets import Layout
from necropsy.capture.process.memory import Memory

_MOST_ENTRIES = 1 << 14
"""Of a dictionary: a program with TensorFlow has some thousands of modules."""
_LONGEST = 2000
_TYPE_NAME, _TYPE_BASE = 24, 256
_TYPE_FLAGS, _TYPE_DICT_OFFSET = 168, 288
_HAS_MANAGED_DICT = 1 << 4
_CACHED_KEYS = 872
"""Of a class of 3.11: the keys that its objects share; 3.12 has it one pointer on."""
_OBJECT_HEAD = 16
_LARGEST_OBJECT = 1 << 20
MOST_BASES = 16
_MOST_ITEMS = 32
_DIGIT = 30


class Values:
    """Reads the values of one interpreter."""

    def __init__(self, memory: Memory, layout: Layout, minor: int) -> None:
        """``minor``: 11 for CPython 3.11."""
        self._memory, self._layout, self._minor = memory, layout, minor
        self._known: dict[int, str | None] = {}
        """Names that were keys, by their addresses: those of a module stay where they are."""

    # ------------------------------------------------------------ dictionaries

    def items(self, address: int, wanted: tuple[str, ...]) -> dict[str, int]:
        """The addresses of the values of these keys, which are names."""
        found: dict[str, int] = {}
        for key, value in self.entries(address):
            name = self._name(key, wanted)
            if name is not None:
                found[name] = value
        return found

    def entries(self, address: int) -> Iterator[tuple[int, int]]:
        """The keys and values of a dictionary, the newest first."""
        keys = self._memory.u64(address + 32)
        shared = self._memory.u64(address + 40)
        for key, value in self._entries(keys, shared or 0) if keys else ():
            if key and value:
                yield key, value

    def attributes(self, address: int, wanted: tuple[str, ...]) -> dict[str, int]:
        """The addresses of an object's own attributes of these names, of an ordinary class."""
        named = ((self._name(key, wanted), value) for key, value in self.all_attributes(address))
        return {name: value for name, value in named if name is not None}

    def all_attributes(self, address: int) -> Iterator[tuple[int, int]]:
        """The names and values of an object's own attributes, the newest first; none of a class without a dict."""
        kind = self._memory.u64(address + 8) or 0
        if self._minor <= 10:
            (offset,) = struct.unpack("<q", self._memory.exactly(kind + _TYPE_DICT_OFFSET, 8) or bytes(8))
            names = self._memory.u64(address + offset) if 0 < offset < _LARGEST_OBJECT else None
            yield from self.entries(names) if names else ()
            return
        before = self._memory.exactly(address - 32, 16)
        if before is None or not (self._memory.u64(kind + _TYPE_FLAGS) or 0) & _HAS_MANAGED_DICT:
            return
        values, names = struct.unpack("<QQ", before)
        if self._minor == 12:
            values, names = (names + 1, 0) if names & 1 else (0, names)
        elif self._minor >= 13:
            values = address + _OBJECT_HEAD
        if names:
            yield from self.entries(names)
            return
        keys = self._memory.u64(kind + (_CACHED_KEYS if self._minor == 11 else _CACHED_KEYS + 8))
        found = self._entries(keys, values) if keys and values else iter(())
        yield from ((key, value) for key, value in found if key and value)

    def _entries(self, keys: int, values: int) -> Iterator[tuple[int, int]]:
        """Entries of a ``PyDictKeysObject``, newest first; ``values``: a key-sharing dictionary's own values, or 0."""
        head = self._memory.exactly(keys, 40)
        if head is None:
            return
        if self._minor <= 10:
            (size,), (count,) = struct.unpack_from("<q", head, 8), struct.unpack_from("<q", head, 32)
            start, width, row = 40, 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4, struct.Struct("<8xQQ")
            indices = size * width
        else:
            count, start, indices = struct.unpack_from("<q", head, 24)[0], 32, 1 << min(head[9], 24)
            row = struct.Struct("<QQ") if head[10] else struct.Struct("<8xQQ")
        if not 0 < count <= _MOST_ENTRIES or not 0 < indices < 1 << 24:
            return
        data = self._memory.exactly(keys + start + indices, count * row.size)
        entries = list(row.iter_unpack(data)) if data is not None else []
        if values:
            stored = self._memory.exactly(values + (8 if self._minor >= 13 else 0), 8 * len(entries)) or b""
            entries = [(key, one) for (key, _), (one,) in zip(entries, struct.iter_unpack("<Q", stored), strict=False)]
        yield from reversed(entries)

    def _name(self, key: int, wanted: tuple[str, ...]) -> str | None:
        head = self._memory.exactly(key + 16, 8)
        length = int.from_bytes(head, "little") if head is not None else 0
        fits = [one for one in wanted if len(one) == length]
        if not fits:
            return None
        if key not in self._known:
            self._known[key] = self.text(key)
        text = self._known[key]
        return text if text in fits else None

    # ------------------------------------------------------------ plain values

    def tuple_of(self, address: int) -> tuple[int, ...] | None:
        """The addresses of the items of a tuple; None of anything else."""
        if self.type_name(address) != "tuple":
            return None
        size = self._memory.u64(address + 16)
        if size is None or size > _MOST_ITEMS:
            return None
        data = self._memory.exactly(address + 24, 8 * size) if size else b""
        return None if data is None else struct.unpack(f"<{size}Q", data)

    def list_of(self, address: int) -> tuple[int, ...] | None:
        """The addresses of the items of a list."""
        head = self._memory.exactly(address + 16, 16)
        size, at = struct.unpack("<QQ", head) if head is not None else (0, 0)
        data = self._memory.exactly(at, 8 * size) if 0 < size <= _MOST_ITEMS else b""
        return None if data is None or size > _MOST_ITEMS else struct.unpack(f"<{len(data) // 8}Q", data)

    def repr_of(self, address: int) -> str | None:
        """As ``repr()`` has it, of the plainest types."""
        kind = self.type_name(address)
        if kind == "str":
            text = self.text(address)
            return repr(text) if text is not None else None
        if kind == "int":
            return self.int_of(address)
        if kind == "float":
            data = self._memory.exactly(address + 16, 8)
            return repr(struct.unpack("<d", data)[0]) if data is not None else None
        if kind == "tuple":
            shown = [self.repr_of(one) for one in self.tuple_of(address) or ()]
            comma = "," if len(shown) == 1 else ""
            return f"({', '.join(map(str, shown))}{comma})" if None not in shown else None
        if kind == "list":
            shown = [self.repr_of(one) for one in self.list_of(address) or ()]
            return f"[{', '.join(map(str, shown))}]" if None not in shown else None
        return "None" if kind == "NoneType" else None

    def int_of(self, address: int) -> str | None:
        """A number of up to 60 bits, in digits."""
        data = self._memory.exactly(address + 16, 16)
        if data is None:
            return None
        tag, low, high = struct.unpack("<qII", data)
        tagged = self._minor >= 12
        count, negative = (tag >> 3, tag & 3 == 2) if tagged else (abs(tag), tag < 0)
        if count > 2:
            return None
        value = (low if count else 0) | (high << _DIGIT if count > 1 else 0)
        return str(-value if negative else value)

    def text(self, address: int) -> str | None:
        """A ``str``, shortened."""
        head = self._memory.exactly(address, 40) if self.type_name(address) == "str" else None
        if head is None:
            return None
        length, _hash, state = struct.unpack_from("<QqI", head, 16)
        width, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        coding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(width)
        if coding is None or not is_compact:
            return None
        start = address + (self._layout.ascii if is_ascii else self._layout.wide)
        data = self._memory.exactly(start, min(length, _LONGEST) * width)
        return None if data is None else data.decode(coding, "replace")

    # ------------------------------------------------------------ types

    def type_name(self, address: int) -> str | None:
        """The name of the type of the object at ``address``, as C has it."""
        kind = self._memory.u64(address + 8) if address and address % 8 == 0 else None
        return self.name_of_type(kind) if kind else None

    def name_of_type(self, kind: int) -> str | None:
        """The name of the type at ``kind``."""
        at = self._memory.u64(kind + _TYPE_NAME)
        name = self._memory.c_string(at, 200) if at else None
        return name if name and name.isprintable() else None

    def names_of_types(self, address: int) -> tuple[str, ...]:
        """The names of the object's type and of its bases up to ``object``; none where it is no object."""
        kind = self._memory.u64(address + 8) if address and address % 8 == 0 else None
        found: list[str] = []
        for _ in range(MOST_BASES):
            name = self.name_of_type(kind) if kind else None
            if kind is None or name is None:
                break
            found.append(name)
            kind = self._memory.u64(kind + _TYPE_BASE)
        return tuple(found) if found and found[-1] == "object" else ()
