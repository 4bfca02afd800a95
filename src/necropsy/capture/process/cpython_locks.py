"""The Python lock that a thread waits for, and which thread holds it.

A lock of ``threading`` or ``multiprocessing`` is an object with a pointer to a semaphore of the C library, for which
the thread waits in the kernel. So the object is the one on the waiting thread's own stack whose pointer is the futex's
address. An RLock and a lock of ``multiprocessing`` keep their owner; a plain Lock does not, but the frame that runs the
body of ``with lock:`` has the lock's ``__exit__`` on its evaluation stack.

CPython 3.8 to 3.13 on 64 bits: ``Modules/_threadmodule.c``, ``Modules/_multiprocessing/semaphore.c``, and for the
evaluation stack ``Objects/exception_handling_notes.txt``, before 3.11 the frame's blocks (``cpython/frameobject.h``).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from necropsy.capture.process.cpython_frames import Standing
from necropsy.capture.process.cpython_values import Values
from necropsy.capture.process.memory import Memory

_SEARCHED = 8 << 10
"""Bytes of the native stack from its pointer: between the kernel and the function that was given the lock."""
_ALIGNED = 16
_SEMAPHORE = 16
"""Of all three kinds of object: behind its head."""
_TABLE, _BYTES_SIZE, _BYTES = 40, 16, 32
_LONGEST_TABLE = 1 << 20
_VALUE_STACK, _BLOCKS_BEFORE_VARIABLES, _BLOCK = 64, 240, 12
_MOST_BLOCKS, _MOST_SLOTS = 20, 256
_METHOD_NAME, _METHOD_SELF = 16, 24
_RECURSIVE = 0
_JOINING = frozenset({"join", "_wait_for_tstate_lock"})
_THREADING = re.compile(r"(?:^|/)threading\.py$")


Kind = Literal["threading.Lock", "threading.RLock", "multiprocessing.Lock", "multiprocessing.RLock"]


@dataclass(frozen=True)
class PythonLock:
    """A lock of Python's: ``owner`` as ``threading.get_ident()`` has it, ``count`` how often it has taken the lock."""

    address: int
    kind: Kind
    owner: int | None = None
    count: int | None = None


def on_stack(memory: Memory, values: Values, pointer: int, semaphore: int) -> PythonLock | None:
    """The lock of Python's whose semaphore a thread waits for; None where there is none. ``pointer``: to its stack."""
    data = memory.some(pointer, _SEARCHED)
    words = dict.fromkeys(word for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]))
    for word in words:
        if word and word % _ALIGNED == 0 and memory.u64(word + _SEMAPHORE) == semaphore:
            found = _lock_at(memory, values, word)
            if found is not None:
                return found
    return None


def _lock_at(memory: Memory, values: Values, address: int) -> PythonLock | None:
    name = values.type_name(address)
    if name == "_thread.lock":
        return PythonLock(address, "threading.Lock")
    data = memory.exactly(address + _SEMAPHORE, 32)
    if data is None:
        return None
    if name == "_thread.RLock":
        owner, count = struct.unpack_from("<QQ", data, 8)
        return PythonLock(address, "threading.RLock", owner if count else None, count)
    if name == "_multiprocessing.SemLock":
        owner, count, most, kind = struct.unpack_from("<Qiii", data, 8)
        if most != 1:
            return None  # a semaphore, which anybody may release
        shown: Kind = "multiprocessing.RLock" if kind == _RECURSIVE else "multiprocessing.Lock"
        return PythonLock(address, shown, owner if count > 0 else None, count)
    return None


def joined(memory: Memory, values: Values, innermost: Standing | None) -> int | None:
    """The thread whose end is waited for in ``Thread.join``, as ``threading.get_ident()`` has it."""
    if innermost is None or innermost.function is None or not _THREADING.search(innermost.source or ""):
        return None
    if innermost.function.rpartition(".")[2] not in _JOINING:
        return None
    thread = memory.u64(innermost.address + innermost.layout.variables)  # its first parameter
    ident = values.attributes(thread, ("_ident",)).get("_ident") if thread else None
    number = values.int_of(ident) if ident and values.type_name(ident) == "int" else None
    return int(number) if number is not None else None


# ---------------------------------------------------------------- the bodies of with statements


def held_by_with(memory: Memory, values: Values, frames: Iterable[Standing]) -> Iterator[int]:
    """The addresses of the plain locks that these frames hold: each runs the body of a ``with`` statement on one."""
    for frame in frames:
        for slot in _live(memory, frame):
            if slot % 8 or not slot or values.type_name(slot) != "builtin_function_or_method":
                continue
            name = memory.c_string(memory.u64(memory.u64(slot + _METHOD_NAME) or 0) or 0, 16)
            of = memory.u64(slot + _METHOD_SELF)
            if name == "__exit__" and of and values.type_name(of) == "_thread.lock":
                yield of


def _live(memory: Memory, frame: Standing) -> tuple[int, ...]:
    """The evaluation stack that an exception would leave: as it was when the ``with`` or ``try`` began."""
    base, depth = _of_blocks(memory, frame) if frame.layout.counts else _of_table(memory, frame)
    if not base or not 0 < depth <= _MOST_SLOTS:
        return ()
    data = memory.exactly(base, 8 * depth)
    return struct.unpack(f"<{depth}Q", data) if data is not None else ()


def _of_blocks(memory: Memory, frame: Standing) -> tuple[int, int]:
    """Up to 3.10 a frame keeps its blocks, each with the depth of the stack at its beginning."""
    blocks = frame.address + frame.layout.variables - _BLOCKS_BEFORE_VARIABLES
    count = memory.u32(blocks - 8) or 0
    if not 0 < count <= _MOST_BLOCKS:
        return 0, 0
    return memory.u64(frame.address + _VALUE_STACK) or 0, memory.u32(blocks + (count - 1) * _BLOCK + 8) or 0


def _of_table(memory: Memory, frame: Standing) -> tuple[int, int]:
    """Since 3.11 the code object has a table of them."""
    layout = frame.layout
    slots = memory.u32(frame.code + layout.first_line + 4)  # co_nlocalsplus
    table, instruction = memory.u64(frame.code + _TABLE), memory.u64(frame.address + layout.instruction)
    size = memory.u64(table + _BYTES_SIZE) if table else None
    if slots is None or not table or instruction is None or size is None or size > _LONGEST_TABLE:
        return 0, 0
    data = memory.exactly(table + _BYTES, size) or b""
    # The pointer is at the call's own instruction or, behind caches, at its last unit: both lie in the same range.
    depth = depth_at(data, (instruction - frame.code - layout.instructions) // 2)
    return frame.address + layout.variables + 8 * slots, depth


def depth_at(table: bytes, at: int) -> int:
    """The depth of the stack with which the handler of the instruction ``at`` (2 bytes each) is entered; 0 without."""
    numbers: list[int] = []
    value = 0
    for byte in table:
        value = (0 if byte & 0x80 else value << 6) | byte & 0x3F
        if not byte & 0x40:
            numbers.append(value)
            value = 0
            if len(numbers) == 4:
                start, size, _handler, depth = numbers
                if start <= at < start + size:
                    return depth >> 1
                numbers = []
    return 0
