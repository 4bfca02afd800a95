"""Type information that damaged or hostile memory makes up is read in bounded time."""

from __future__ import annotations

import struct

import pytest

from necropsy.capture.process.cxx_type_info import TypeInfoReader
from necropsy.capture.process.memory import Memory

CLASS, VTABLE, KIND, NAMES = 0x10000, 0x20000, 0x30000, 0x40000
SEVERAL = b"N10__cxxabiv121__vmi_class_type_infoE\0"


class Everywhere:
    """Something is mapped at each address."""

    def at(self, address: int) -> object:
        return address or object()


class MadeUp(Memory):
    """One class with ``count`` bases, each of which is that class again."""

    def __init__(self, count: int) -> None:
        self.reads = 0
        bases = b"".join(struct.pack("<Qq", CLASS, 0) for _ in range(min(count, 16)))
        self._parts = {
            CLASS: struct.pack("<QQII", VTABLE, NAMES, 0, count) + bases,
            VTABLE - 8: struct.pack("<Q", KIND),
            KIND: struct.pack("<QQ", 0, NAMES + 0x100),
            NAMES: b"4Loop\0" + bytes(0xFA) + SEVERAL,
        }

    def some(self, address: int, size: int) -> bytes:
        self.reads += 1
        found = (data[address - at :][:size] for at, data in self._parts.items() if at <= address < at + len(data))
        return next(found, b"")


@pytest.mark.parametrize("count", [2, 16, 1 << 31])
def test_a_class_that_is_its_own_base(count: int) -> None:
    memory = MadeUp(count)
    found = TypeInfoReader(memory, Everywhere()).at(CLASS)
    assert found is not None
    assert found.name == "Loop"
    assert not found.is_whole
    assert memory.reads < 2000
