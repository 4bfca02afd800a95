"""Programs that are run instruction by instruction, and what their calls are: the truth that stacks are held against."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import capstone

import wine
from necropsy.capture.process.memory import Memory
from necropsy.capture.windows.modules import ModuleImages
from necropsy.formats import pe
from necropsy.formats.minidump_records import ModuleRecord

NAMES = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")


class Window(Memory):
    """One piece of memory."""

    def __init__(self, low: int = 0, data: bytes = b"") -> None:
        self.low, self.data = low, data

    def some(self, address: int, size: int) -> bytes:
        at = address - self.low
        return self.data[at : at + size] if 0 <= at < len(self.data) and size > 0 else b""


def module_of(path: Path, base: int | None = None) -> ModuleRecord:
    """An image as a dump would list it."""
    image = pe.in_bytes(path.read_bytes())
    return ModuleRecord(
        path=str(path),
        base=image.image_base if base is None else base,
        size=image.size_of_image,
        timestamp=image.timestamp,
        checksum=image.checksum,
        version=None,
        product_version=None,
        codeview=image.codeview,
    )


@dataclass(frozen=True)
class Step:
    """Before one instruction: the registers, the stack from its pointer on, and where each open call returns to."""

    registers: dict[str, int]
    stack: bytes
    returns: tuple[int, ...]
    """Innermost first; calls that were open when the stepping began are not in it."""


def steps(exe: Path, folder: Path) -> Iterator[Step]:
    """All that ``exe`` does between its two breakpoints."""
    out = folder / "steps"
    done = wine.run(wine.mingw(wine.TOOLS / "step.c"), wine.windows_path(out), wine.windows_path(exe))
    assert done.code32 == 0, done
    data = out.read_bytes()
    at, seen = 0, []
    while at < len(data):
        rip, *values, size = struct.unpack_from("<18Q", data, at)
        at += 144
        seen.append(({**dict(zip(NAMES, values, strict=True)), "rip": rip}, data[at : at + size]))
        at += size
    module = module_of(exe)
    images = ModuleImages([module], Window(), [exe.parent])
    memory = images.memory
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    calls: list[int] = []
    try:
        for (registers, stack), after in itertools.zip_longest(seen, seen[1:]):
            rip = registers["rip"]
            assert module.base <= rip < module.base + module.size
            yield Step(registers, stack, tuple(reversed(calls)))
            if after is None:
                return
            one = next(decoder.disasm(memory.some(rip, 15), rip, 1))
            if one.mnemonic == "call":
                calls.append(rip + one.size)
            elif one.mnemonic in {"ret", "iretq"}:
                calls.pop()
            elif (
                one.mnemonic == "jmp"
                and memory.some(rip - 3, 3) == b"\x41\x51\x52"
                and stack[8:16] == b"\x33" + b"\0" * 7
            ):
                # It has built what an interrupt leaves, by hand: push cs (0x33), push rip.
                calls.append(struct.unpack_from("<Q", stack)[0])
    finally:
        images.close()
