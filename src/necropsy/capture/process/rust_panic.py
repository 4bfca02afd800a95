"""The message of a panic that ends a Rust program by abort(), while its functions are on the stack. 64 bits.

``std::panicking`` hands the message on as a value: a ``String`` (capacity, address, length) where it was put together,
or the address and the length of a constant. What is printed after it cannot overwrite either.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence

from necropsy.capture.process.memory import Mappings, Memory
from necropsy.model import Frame, Stack

_BEGINS = frozenset({"rust_begin_unwind", "std::panicking::begin_panic_handler", "core::panicking::panic_fmt"})
_MOST_FRAMES = 24
_MOST_BYTES = 4096
_LONGEST = 1000
_OF_ANOTHER = frozenset({"panic in a function that cannot unwind", "panic in a destructor during cleanup"})
"""What the second panic says that ends the program, because the first one came to where it must not."""
_CLASSES = (b"MOZ\0RUST", b"TSUR\0ZOM")
"""Of an exception that Rust has thrown: what its ``_Unwind_Exception`` begins with, in newer and older versions."""
_THROWN = struct.Struct("<8s6Q")
"""Class, cleanup, two words of the unwinder, the canary, and the value that was thrown with its table of methods."""
_STR, _STRING = 16, 24
"""Sizes of a ``&str`` and a ``String``."""
_SEARCHED = 64 << 20
_SHORTEST = 3


def message(memory: Memory, places: Mappings, frames: Sequence[Frame], stack: Stack | None) -> str | None:
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


def thrown(memory: Memory, places: Mappings, spans: Iterable[tuple[int, int]], said: str) -> str | None:
    """The panic in flight when ``said`` ended the program, or None if unclear; ``spans``: possible heap ranges."""
    if said not in _OF_ANOTHER:
        return None
    texts: set[str] = set()
    left = _SEARCHED
    for low, high in spans:
        data = memory.some(low, min(high - low, left))
        left -= len(data)
        for one in _CLASSES:
            at = data.find(one)
            while at >= 0:
                if at % 8 == 0 and len(data) - at >= _THROWN.size:
                    texts.update(_of_exception(memory, places, _THROWN.unpack_from(data, at)[1:]))
                at = data.find(one, at + 8)
        if left <= 0:
            break
    return texts.pop() if len(texts) == 1 else None


def _of_exception(memory: Memory, places: Mappings, words: Sequence[int]) -> Iterator[str]:
    cleanup, _, _, _, value, methods = words
    code, table = places.at(cleanup), memory.exactly(methods, 24)
    if code is None or code.writable or not code.is_file or table is None:
        return
    _, size, alignment = struct.unpack("<3Q", table)
    held = memory.exactly(value, size) if alignment == 8 and size in {_STR, _STRING} else None
    if held is None:
        return
    parts = struct.unpack(f"<{size // 8}Q", held)
    if size == _STR:
        yield from _text(memory, *parts)
    else:
        yield from _strings(memory, places, parts)


def _size_of(frames: Sequence[Frame]) -> int:
    """The bytes of the stack that the functions of the panic take; 0 where it is not one."""
    size, end = 0, 0
    for frame in frames[:_MOST_FRAMES]:
        if frame.stack_bytes is None:
            break
        size += frame.stack_bytes
        if frame.function is not None and frame.function.removeprefix("__rustc::") in _BEGINS:
            end = size
    return min(end, _MOST_BYTES)


def _strings(memory: Memory, places: Mappings, values: Sequence[int]) -> Iterator[str]:
    for capacity, address, length in zip(values, values[1:], values[2:], strict=False):
        if not _SHORTEST <= length <= capacity < 1 << 20:
            continue
        place = places.at(address) if 0x1000 <= address < 1 << 47 else None
        if place is not None and place.writable and not place.is_file:
            yield from _text(memory, address, length)


def _constants(memory: Memory, places: Mappings, values: Sequence[int]) -> Iterator[str]:
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
