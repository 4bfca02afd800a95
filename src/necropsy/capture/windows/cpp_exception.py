"""A C++ exception on Windows: its type and ``what()``, from the record that ``throw`` raised and the object behind it.

Microsoft's: code 0xE06D7363 with four parameters: a number that marks it, the object, its ``ThrowInfo`` and the base
of the image that the offsets in it count from. ``ThrowInfo`` leads to the list of types as which it may be caught,
the thrown type first (``ehdata.h`` of Visual C++; Microsoft Learn, *Exception Handling (x64)*; R. Chen, *Decoding the
parameters of a thrown C++ exception*). 32-bit x86 has three parameters, and addresses instead of offsets.
``std::exception`` holds a pointer to its text right after its vtable pointer. GCC's (MinGW): code 0x20474343, the
parameter is the unwind header (libgcc, ``unwind-seh.c``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.capture.process import cpp_exception
from necropsy.capture.process.memory import Memory
from necropsy.capture.windows.modules import ModuleImages
from necropsy.formats.demangle_msvc import type_name
from necropsy.formats.windows_exits import CPP_EXCEPTION
from necropsy.model import CppException, Stack

GNU_EXCEPTION = 0x20474343
"""``0x20`` and the letters *GCC*."""
_MAGIC = frozenset({0x19930520, 0x19930521, 0x19930522})
_PURE = 0x01994000
_THROW_INFO, _CATCHABLE = struct.Struct("<IIII"), struct.Struct("<IIiiiII")
_NARROW, _WIDE, _32_BITS = 3, 8, (1 << 32) - 1
"""Parameters of an exception of 32-bit code; bytes of an address of 64 bits."""
_MOST_TYPES = 64
_LONGEST_NAME, _LONGEST_WHAT = 2048, 4096
_AFTER_HEADER = 64
"""Where GCC's thrown object lies behind its unwind header: it has eight words on x64 Windows."""
_RECORD = struct.Struct("<IIQQI4xQQQQ")
"""``EXCEPTION_RECORD`` with its first four parameters."""
_SEARCHED = 1 << 20
_ERROR_OF_TORCH = "c10::Error"
_MESSAGE_OF_TORCH = 24
"""Its ``what()`` is its own: ``msg_`` comes first in it, behind ``std::exception`` (c10/util/Exception.h)."""
_STRING, _STRING_OF_32_BITS = struct.Struct("<16sQQ"), struct.Struct("<16sII")
_SHORT = 16
"""Bytes, with the NUL, that ``std::string`` of Visual C++ holds in itself."""


@dataclass(frozen=True)
class _Catchable:
    name: str
    offset: int


def of_record(
    code: int, parameters: Sequence[int], memory: Memory, images: ModuleImages | None = None
) -> CppException | None:
    """The C++ exception in a record, or None; unreadable parts are None. ``images`` have the names of types, too."""
    if code == GNU_EXCEPTION and parameters:
        found = _gnu(memory).at_header(parameters[0])
        return CppException(
            type=found.type if found is not None else None,
            what=found.what if found is not None else None,
            where="exception record",
        )
    if code != CPP_EXCEPTION:
        return None
    if len(parameters) < _NARROW or parameters[0] & _32_BITS not in _MAGIC | {_PURE}:
        return CppException(where="exception record")
    if len(parameters) == _NARROW:
        word = 4
        thrown, info, base = parameters[1] & _32_BITS, parameters[2] & _32_BITS, 0
    else:
        word = 8
        thrown, info, base = parameters[1:4]
    types = _types(memory, images, info, base, word)
    return CppException(
        type=types[0].name if types else None,
        what=_what(memory, types, thrown, word),
        where="exception record",
    )


def _types(memory: Memory, images: ModuleImages | None, info: int, base: int, word: int) -> tuple[_Catchable, ...]:
    """The types as which it may be caught, the thrown type first. ``word``: bytes of an address."""
    head = memory.exactly(info, _THROW_INFO.size)
    if head is None:
        return ()
    table = base + _THROW_INFO.unpack(head)[3]
    count = memory.exactly(table, 4)
    if count is None:
        return ()
    offsets = memory.some(table + 4, 4 * min(int.from_bytes(count, "little"), _MOST_TYPES))
    found: list[_Catchable] = []
    for (offset,) in struct.iter_unpack("<I", offsets[: len(offsets) & ~3]):
        row = memory.exactly(base + offset, _CATCHABLE.size)
        if row is None:
            break
        _, descriptor, inner, virtual, _, _, _ = _CATCHABLE.unpack(row)
        text = _name(memory, images, base + descriptor + 2 * word)
        if text is None or not text.startswith("."):
            break
        # A virtual base lies where the object says; its text is not looked for.
        found.append(_Catchable(type_name(text) or text, inner if virtual == -1 else -1))
    return tuple(found)


def _name(memory: Memory, images: ModuleImages | None, address: int) -> str | None:
    """The name in a type descriptor. It is writable, but never written: the file has it too."""
    text = memory.c_string(address, _LONGEST_NAME)
    loaded = images.at(address) if text is None and images is not None else None
    if loaded is None or loaded.image is None:
        return text
    return loaded.image.text(address - loaded.low)


def _what(memory: Memory, types: Sequence[_Catchable], thrown: int, word: int) -> str | None:
    read = memory.u64 if word == _WIDE else memory.u32
    if not types:
        return None
    first = types[0].name
    if first in {"char const*", "char*"}:
        pointer = read(thrown)
        return memory.c_string(pointer, _LONGEST_WHAT) if pointer else None
    if first == "std::string":
        return _string(memory, thrown, word)
    part = next((one for one in types if one.name == "std::exception" and one.offset >= 0), None)
    if part is not None and any(one.name == _ERROR_OF_TORCH for one in types):
        return _string(memory, thrown + part.offset + _MESSAGE_OF_TORCH, word) if word == _WIDE else None
    pointer = read(thrown + part.offset + word) if part is not None else None
    return (memory.c_string(pointer, _LONGEST_WHAT) or None) if pointer else None


def _string(memory: Memory, address: int, word: int) -> str | None:
    """``std::string`` of Visual C++ in a release build: the letters or a pointer to them, then size and capacity."""
    layout = _STRING if word == _WIDE else _STRING_OF_32_BITS
    head = memory.exactly(address, layout.size)
    if head is None:
        return None
    letters, size, capacity = layout.unpack(head)
    if size > capacity:
        return None
    if capacity >= _SHORT:
        data = memory.exactly(int.from_bytes(letters[:word], "little"), min(size, _LONGEST_WHAT))
        return None if data is None else data.decode("utf-8", "replace")
    return bytes(letters[:size]).decode("utf-8", "replace")


def on_stack(memory: Memory, stack: Stack, images: ModuleImages | None = None) -> CppException | None:
    """The thread's uncaught exception, or None.

    While a handler is looked for, and where none is found, nothing is unwound: the record of ``throw`` is still on the
    stack when the process ends itself.
    """
    if stack.pointer is None or stack.high is None:
        return None
    top = memory.some(stack.pointer, min(_SEARCHED, max(stack.high - stack.pointer, 0)))
    mark = CPP_EXCEPTION.to_bytes(4, "little")
    at = top.find(mark)
    while at >= 0:
        if (stack.pointer + at) % 8 == 0 and at + _RECORD.size <= len(top):
            _, _, _, _, count, *parameters = _RECORD.unpack_from(top, at)
            is_throw = count == 4 and parameters[0] in _MAGIC
            found = of_record(CPP_EXCEPTION, parameters, memory, images) if is_throw else None
            if found is not None and found.type is not None:
                return CppException(type=found.type, what=found.what, where="memory")
        at = top.find(mark, at + 4)
    return _gnu(memory).in_flight(stack)


class _Anything:
    """A mapping that can be written, and is of no file."""

    writable, is_file = True, False


class _Everywhere:
    """The list of mappings: an address is in one where its memory is available."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def at(self, address: int) -> _Anything | None:
        return _Anything() if self._memory.some(address, 1) else None


def _gnu(memory: Memory) -> cpp_exception.CppExceptionReader:
    return cpp_exception.CppExceptionReader(memory, _Everywhere(memory), None, object_after_header=_AFTER_HEADER)
