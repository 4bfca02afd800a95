"""Modules of processes that never ran: images that are written here, loaded somewhere, with a stack as wanted."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.process.memory import Memory
from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.symbolizer import Symbolizer
from necropsy.capture.windows.target import MemoryRegions
from necropsy.capture.windows.unwinder import StackWalker, WalkedStack
from necropsy.formats import pe
from necropsy.formats.minidump_records import CodeView, ModuleRecord
from necropsy.model import Address, Stack
from writers import pe as write

BASE = 0x7FF612340000
LOW = 0x2000_0000
"""Where stacks begin here."""


class Pieces(Memory):
    """Some pieces of memory, by address."""

    def __init__(self, pieces: Mapping[int, bytes] | None = None) -> None:
        self.pieces = dict(pieces or {})

    def some(self, address: int, size: int) -> bytes:
        for low, data in self.pieces.items():
            if low <= address < low + len(data) and size > 0:
                return data[address - low :][:size]
        return b""


def module(
    image: write.Writer, name: str = "made.dll", *, base: int = BASE, codeview: CodeView | None = None
) -> ModuleRecord:
    """The image as a dump lists it."""
    return ModuleRecord(
        path=f"C:\\somewhere\\{name}",
        base=base,
        size=image.size_of_image,
        timestamp=image.timestamp,
        checksum=image.checksum,
        version=None,
        product_version=None,
        codeview=codeview,
    )


@dataclass
class Function:
    """32 bytes of code: at 16 ends a call. ``size``: what its prologue takes; ``pushed``: registers, in order."""

    size: int = 40
    pushed: Sequence[str] = ()
    frame: str | None = None
    has_entry: bool = True
    code: bytes = b""

    @property
    def info(self) -> bytes:
        codes = [write.push(1 + index, name) for index, name in enumerate(self.pushed)]
        if self.size:
            codes.append(write.alloc(6, self.size))
        if self.frame:
            codes.append(write.set_frame(8))
        return write.unwind(8, codes[::-1], frame=self.frame)


SIZE = 32
CALL = b"\x90" * 11 + b"\xe8\0\0\0\0"


@dataclass
class Made:
    """An image of such functions, exported by their names."""

    functions: dict[str, Function]
    image: write.Writer = field(default_factory=write.Writer)
    text: int = 0

    def __post_init__(self) -> None:
        bodies = [(one.code or CALL).ljust(SIZE, b"\x90")[:SIZE] for one in self.functions.values()]
        self.text = self.image.section(".text", b"".join(bodies), write.CODE)
        infos, entries = b"", []
        start = self.image.next
        for index, one in enumerate(self.functions.values()):
            if one.has_entry:
                entries.append((self.text + SIZE * index, self.text + SIZE * (index + 1), start + len(infos)))
                infos += one.info + b"\0" * (-len(one.info) % 4)
        self.image.section(".xdata", infos)
        self.image.functions(entries)
        self.image.exports({name: self.text + SIZE * index for index, name in enumerate(self.functions)})

    def at(self, name: str, offset: int = 0, *, base: int = BASE) -> int:
        """An address in a function."""
        return base + self.text + SIZE * [*self.functions].index(name) + offset

    def after_call(self, name: str, *, base: int = BASE) -> int:
        """Where its call returns to."""
        return self.at(name, 16, base=base)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def walk(
    made: Made,
    stack: bytes,
    registers: Mapping[str, int],
    folder: Path | None,
    *,
    name: str = "made.dll",
    seconds: float = 30,
    regions: MemoryRegions | None = None,
    more: Mapping[int, bytes] | None = None,
) -> WalkedStack:
    """The walk of one thread; ``folder``: where the image is written to, None where it is not at hand."""
    if folder is not None:
        (folder / name).write_bytes(made.image.written())
    memory = Pieces({LOW: stack, **(more or {})})
    images = ModuleImages([module(made.image, name)], memory, [folder] if folder is not None else [])
    try:
        walker = StackWalker(images, Symbolizer(images), regions)
        values = {"rsp": LOW, "rbp": 0, **registers}
        return walker.walk(values, Stack(high=Address(LOW + len(stack))), time.monotonic() + seconds)
    finally:
        images.close()


def read(image: write.Writer) -> pe.Image:
    return pe.in_bytes(image.written())
