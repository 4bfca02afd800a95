"""Who walks a thread's stack: by the unwind tables of x64 Windows, else by frame pointers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from necropsy.capture.windows import frame_pointer_unwinder
from necropsy.capture.windows.frame_pointer_unwinder import FramePointerUnwinder
from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.symbolizer import Symbolizer
from necropsy.capture.windows.target import ProcessSnapshot
from necropsy.capture.windows.unwinder import StackWalker
from necropsy.formats import arm64_code, x64_context
from necropsy.formats.minidump_records import MemoryInfos

Walker = StackWalker | FramePointerUnwinder
_POINTERS = ("rsp", "esp", "sp")
_COUNTERS = ("rip", "eip", "pc")
_READERS = {
    "x64": x64_context.registers,
    "x86": x64_context.registers_of_x86,
    "ARM64": arm64_code.context_registers,
}


class Unwinders:
    """The walkers of one process; a program of 32 bits has threads of both kinds, where a 64-bit one looked at it."""

    def __init__(self, stopped: ProcessSnapshot, images: ModuleImages, names: Symbolizer, *, on_windows: bool) -> None:
        """``on_windows``: otherwise the images are of formats that are not read here."""
        self._images, self._names, self._on_windows = images, names, on_windows
        self._regions = cast("MemoryInfos | None", stopped.regions or stopped.maps)
        self._made: dict[str, Walker] = {}

    def of(self, registers: Mapping[str, int]) -> Walker | None:
        """The one for a thread with these registers."""
        kind = next(
            (
                one
                for one in (frame_pointer_unwinder.X86, frame_pointer_unwinder.X64, frame_pointer_unwinder.ARM64)
                if one.counter in registers
            ),
            None,
        )
        if kind is None:
            return None
        if kind.name not in self._made:
            self._made[kind.name] = (
                StackWalker(self._images, self._names, self._regions)
                if kind is frame_pointer_unwinder.X64 and self._on_windows
                else FramePointerUnwinder(kind, self._images, self._names, self._regions, on_windows=self._on_windows)
            )
        return self._made[kind.name]


def registers_of(architecture: str, context: bytes) -> dict[str, int] | None:
    """The registers in a thread's context; of 32-bit code in a 64-bit process those that such code knows."""
    if architecture == "x64" and x64_context.is_of_x86(context):
        return x64_context.registers_of_x86(context)
    reader = _READERS.get(architecture)
    found = reader(context) if reader is not None and context else None
    return x64_context.narrowed(found, context) if found is not None and architecture == "x64" else found


def pointer_of(registers: Mapping[str, int] | None) -> int | None:
    """The stack pointer."""
    return next((registers[name] for name in _POINTERS if name in registers), None) if registers else None


def counter_of(registers: Mapping[str, int] | None) -> int | None:
    """The program counter."""
    return next((registers[name] for name in _COUNTERS if name in registers), None) if registers else None
