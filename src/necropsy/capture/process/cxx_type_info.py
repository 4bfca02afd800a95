"""C++ classes in memory: the name of an object's class and its bases, from the type information of the C++ runtime.

Layout: Itanium C++ ABI, 2.9.5 (``abi::__class_type_info`` and what derives from it).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.symbols import demangle_type

_DEEPEST, _MOST = 16, 64
"""How deep bases may be nested, and how many are read in all: in damaged memory a class can be its own base."""
_NAME = re.compile(r"\*?[A-Za-z0-9_.$]{1,2000}\Z")
_ONE_BASE, _SEVERAL_BASES = "N10__cxxabiv120__si_class_type_infoE", "N10__cxxabiv121__vmi_class_type_infoE"
_VIRTUAL = 1
"""Flag of a virtual base, whose offset is stored in the object."""


@dataclass(frozen=True)
class TypeInfo:
    """A ``std::type_info``: its demangled name, and each base with the offset of its part of the object in bytes."""

    name: str
    bases: tuple[tuple[TypeInfo, int], ...]
    is_whole: bool
    """All bases were read."""

    def derivation(self) -> Iterator[TypeInfo]:
        """The class itself and all that it derives from, the first base first."""
        yield self
        for base, _ in self.bases:
            yield from base.derivation()


class MappingLookup(Protocol):
    """Finds the mapping of an address."""

    def at(self, address: int) -> object | None:
        """The mapping that contains ``address``, or None."""


class TypeInfoReader:
    """Reads type information of one process."""

    def __init__(self, memory: Memory, maps: MappingLookup) -> None:
        self._memory, self._maps = memory, maps
        self._left = 0
        """How many more classes may be read for this one."""

    def at(self, address: int) -> TypeInfo | None:
        """The ``std::type_info`` at ``address``; None where there is none."""
        self._left = _MOST
        return self._read(address, 0)

    def _read(self, address: int, depth: int) -> TypeInfo | None:
        self._left -= 1
        head = self._memory.exactly(address, 16) if self._left >= 0 and depth <= _DEEPEST else None
        if head is None:
            return None
        vtable, name_at = struct.unpack("<QQ", head)
        text = self._memory.c_string(name_at, 2048)
        if text is None or not _NAME.match(text) or self._maps.at(vtable) is None:
            return None
        bases = tuple(self._bases(address, vtable, depth))
        found = tuple((base, offset) for base, offset in bases if base is not None and offset is not None)
        is_whole = all(base is not None and base.is_whole for base, _ in bases)
        return TypeInfo(_readable(text), found, is_whole)

    def _bases(self, address: int, vtable: int, depth: int) -> Iterator[tuple[TypeInfo | None, int | None]]:
        """Each base and its offset: the base is None if it cannot be read, the offset None if the base is virtual."""
        kind = self._kind(vtable)
        if kind is None:
            yield None, None
        elif kind == _ONE_BASE:
            base = self._memory.u64(address + 16)
            yield (self._read(base, depth + 1) if base else None), 0
        elif kind == _SEVERAL_BASES:
            head = self._memory.exactly(address + 16, 8)
            count = struct.unpack("<II", head)[1] if head else 0
            for index in range(min(count, _DEEPEST)):
                entry = self._memory.exactly(address + 24 + index * 16, 16)
                if entry is None:
                    yield None, None
                    return
                base, flags = struct.unpack("<Qq", entry)
                yield self._read(base, depth + 1), None if flags & _VIRTUAL else flags >> 8

    def _kind(self, vtable: int) -> str | None:
        """The vtable of a ``type_info`` is that of its own kind; the type information before it names the kind."""
        own = self._memory.u64(vtable - 8)
        name_at = self._memory.u64(own + 8) if own else None
        return self._memory.c_string(name_at, 64) if name_at else None


def _readable(text: str) -> str:
    if (known := demangle_type(text)) is not None:
        return known
    whole = f"_ZTS{text.removeprefix('*')}"
    from necropsy.formats import demangle_itanium

    return text if (name := demangle_itanium.readable(whole)) == whole else name
