"""The words of a panic that ends a Rust program by abort(), while its functions still stand on the stack. 64 bits.

``std::panicking`` hands the message on as a value: a ``String`` (capacity, address, length) where it was put together,
or the address and the length of a constant. What is printed after it cannot overwrite either.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

from necropsy.capture.process.constants import Places
from necropsy.capture.process.memory import Memory
from necropsy.model import Frame, Stack

_BEGINS = frozenset({"rust_begin_unwind", "std::panicking::begin_panic_handler", "core::panicking::panic_fmt"})
_MOST_FRAMES = 24
_MOST_BYTES = 4096
_LONGEST = 1000
_SHORTEST = 3


def message(memory: Memory, places: Places, frames: Sequence[Frame], stack: Stack | None) -> str | None:
    """What the panic of the thread with these frames, innermost first, says; None where that is not clear."""
    if stack is None or stack.pointer is None:
        return None
    size = _size_of(frames)
    data = memory.some(stack.pointer, size)
    values = [value for (value,) in struct.iter_unpack("<Q", data[: len(data) & ~7])]
    for texts in (set(_strings(memory, places, values)), set(_constants(memory, places, values))):
        if texts:
            return texts.pop() if len(texts) == 1 else None
    return None


def _size_of(frames: Sequence[Frame]) -> int:
    """The bytes of the stack on which the functions lie that serve the panic; 0 where it is none."""
    size, end = 0, 0
    for frame in frames[:_MOST_FRAMES]:
        if frame.stack_bytes is None:
            break
        size += frame.stack_bytes
        if frame.function is not None and frame.function.removeprefix("__rustc::") in _BEGINS:
            end = size
    return min(end, _MOST_BYTES)


def _strings(memory: Memory, places: Places, values: Sequence[int]) -> Iterator[str]:
    for capacity, address, length in zip(values, values[1:], values[2:], strict=False):
        if not _SHORTEST <= length <= capacity < 1 << 20:
            continue
        place = places.at(address) if 0x1000 <= address < 1 << 47 else None
        if place is not None and place.writable and not place.is_file:
            yield from _text(memory, address, length)


def _constants(memory: Memory, places: Places, values: Sequence[int]) -> Iterator[str]:
    for address, length in itertools.pairwise(values):
        if not _SHORTEST <= length <= _LONGEST:
            continue
        place = places.at(address) if 0x1000 <= address < 1 << 47 else None
        if place is not None and not place.writable and place.is_file:
            # The other constant of a panic is the name of a source file.
            yield from (text for text in _text(memory, address, length) if not text.endswith(".rs"))


def _text(memory: Memory, address: int, length: int) -> Iterator[str]:
    data = memory.exactly(address, min(length, _LONGEST))
    if data is None:
        return
    text = data.decode("utf-8", "ignore")
    if len(text.encode()) >= len(data) - 3 and all(char.isprintable() or char in "\n\t" for char in text):
        yield text
