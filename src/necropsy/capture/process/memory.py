"""Memory that can be read by address, and registers: of a live process, of a core, of a minidump."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from necropsy.formats.processors import X86_64, Processor
from necropsy.model import Address


@dataclass(frozen=True)
class Registers:
    """The values by name."""

    values: Mapping[str, int]
    processor: Processor = X86_64

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    @property
    def pc(self) -> int:
        """The program counter."""
        return self.values[self.processor.counter]

    @property
    def sp(self) -> int:
        """The stack pointer."""
        return self.values[self.processor.pointer]

    @property
    def fp(self) -> int:
        """The frame pointer, where code keeps one."""
        return self.values[self.processor.frame]

    @property
    def thread_pointer(self) -> int:
        """Where the thread's own variables are; 0 where a core does not say it."""
        return self.values.get(self.processor.thread_pointer, 0)

    def as_noun(self) -> dict[str, Address]:
        """As the model says it, in the order in which debuggers show them."""
        shown = self.processor.shown
        return {name: Address(self.values[name]) for name in shown if name in self.values}


PAGE = 4096
_U64 = struct.Struct("<Q")


class Memory(ABC):
    """Reads memory; what is not mapped is ``None``, never an error."""

    processor: Processor = X86_64
    """The one whose code lies in it."""
    page = PAGE
    """Bytes of a page of it."""

    @abstractmethod
    def some(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``address``: as many as are mapped without a hole, perhaps none."""

    def exactly(self, address: int, size: int) -> bytes | None:
        """``size`` bytes from ``address``, or None where one of them is not mapped."""
        data = self.some(address, size)
        return data if len(data) == size else None

    def u64(self, address: int) -> int | None:
        """The 8 bytes at ``address`` as an unsigned number."""
        data = self.exactly(address, 8)
        return None if data is None else int(_U64.unpack(data)[0])

    def u32(self, address: int) -> int | None:
        """The 4 bytes at ``address`` as an unsigned number."""
        data = self.exactly(address, 4)
        return None if data is None else int.from_bytes(data, "little")

    def c_string(self, address: int, limit: int = 4096) -> str | None:
        """The text at ``address`` up to its NUL; None where none comes in ``limit`` bytes."""
        data = self.some(address, limit)
        end = data.find(b"\0")
        return None if end < 0 else data[:end].decode("utf-8", "replace")


class Mapped(Protocol):
    """A piece of memory that is mapped as one."""

    @property
    def low(self) -> int:
        """Its first address."""

    @property
    def high(self) -> int:
        """Its end."""

    @property
    def writable(self) -> bool:
        """It may be written."""

    @property
    def is_file(self) -> bool:
        """A file is mapped there."""

    @property
    def path(self) -> str | None:
        """Its file or name."""


class Mappings(Protocol):
    """What is mapped into a process, ascending."""

    def __iter__(self) -> Iterator[Mapped]:
        """All of it."""

    def at(self, address: int) -> Mapped | None:
        """The one that holds the address."""


def pieces(read: Callable[[int, int], bytes], address: int, size: int) -> bytes:
    """Up to ``size`` bytes from ``address``; ``read`` may return fewer than there are, and returns none at a hole."""
    found: list[bytes] = []
    while size > 0:
        piece = read(address, size)
        if not piece:
            break
        found.append(piece)
        address += len(piece)
        size -= len(piece)
    return found[0] if len(found) == 1 else b"".join(found)


class RecordingMemory(Memory):
    """Notes the pages of all small reads, which evidence was taken from; searches through large blocks are not."""

    def __init__(self, inner: Memory) -> None:
        self._inner = inner
        self.processor, self.page = inner.processor, inner.page
        self.pages: dict[int, None] = {}
        """The numbers of the pages, in the order in which they were read first."""

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        data = self._inner.some(address, size)
        if 0 < len(data) <= PAGE:
            first, last = address // PAGE, (address + len(data) - 1) // PAGE
            self.pages[first] = None
            if last != first:
                self.pages[last] = None
        return data


class MemoryCopy(Memory):
    """A copy of parts of a process's memory, for when the process has gone on or ended."""

    def __init__(self, inner: Memory, ranges: Iterable[tuple[int, int]]) -> None:
        """Copy the mapped pages of ``ranges``, which ascend and do not touch; each is ``[low, high)``."""
        self.processor, self.page = inner.processor, inner.page
        self._pieces: list[bytes] = []
        self._lows: list[int] = []
        for low, high in ranges:
            at = low
            while at < high:
                data = inner.some(at, high - at)
                if data:
                    self._lows.append(at)
                    self._pieces.append(data)
                at += len(data) or PAGE - at % PAGE

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``; a read ends where what was copied in one piece ends."""
        index = bisect_right(self._lows, address) - 1
        if index < 0 or size <= 0:
            return b""
        start = address - self._lows[index]
        return self._pieces[index][start : start + size]
