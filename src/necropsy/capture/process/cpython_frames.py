"""Python stacks by our own reading of the interpreter's objects: for cores, which py-spy cannot read, and deep stacks.

CPython 3.8 to 3.13 on x86-64, see ``cpython_offsets``. The table of lines is that of ``Objects/locations.md``, before
3.11 those of ``Objects/lnotab_notes.txt``.
"""

from __future__ import annotations

import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from necropsy.capture.process.cpython_offsets import CSTACK, Layout
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.python_stacks import ENTRY, MOST_FRAMES, PythonStackError
from necropsy.model import Frame

_MOST_INTERPRETERS, _MOST_THREADS = 64, 20_000
_LONGEST_TEXT, _LONGEST_TABLE = 4096, 1 << 20
_BYTES_HEAD = 32
_NO_LINE = -128
BEYOND = 1 << 30
"""The last column of an expression that continues on the next line."""


@dataclass(frozen=True)
class _Code:
    address: int
    function: str | None
    source: str | None
    first_line: int
    lines: bytes


@dataclass(frozen=True)
class Standing:
    """A frame that stands in memory: where it and its code object lie, and what runs in it."""

    address: int
    code: int
    layout: Layout
    function: str | None
    source: str | None
    line: int | None


class FrameReader(ABC):
    """Reads the Python stacks of one process; stands where a ``PythonStacks`` stands."""

    def __init__(self, memory: Memory) -> None:
        self.holds_gil: int | None = None
        """Not looked at."""
        self._memory = memory
        self._codes: dict[int, _Code | None] = {}
        self._lines: dict[tuple[int, bytes], int | None] = {}
        """A recursion stands at the same few instructions thousands of times, and a table may be a mebibyte long."""

    @abstractmethod
    def _find(self) -> tuple[int, Layout]:
        """Address of the interpreter's state, and its layout. Raises PythonStackError where there is none."""

    def stop(self) -> None:  # noqa: B027 - not one that subclasses forgot: there is nothing to stop
        """Nothing runs."""

    def collect(self, limit_s: float, pointers: Mapping[int, int] | None = None) -> dict[int, tuple[Frame, ...]]:
        """The Python frames of each thread by its id, innermost first; those read within ``limit_s`` seconds.

        Raises PythonStackError where there is no interpreter of a known version, or its state is missing.
        """
        deadline = time.monotonic() + limit_s
        stacks: dict[int, tuple[Frame, ...]] = {}
        runtime, self._layout = self._find()
        for thread in self._threads(runtime):
            if time.monotonic() > deadline:
                break
            tid, frame = self._id_of(thread, pointers or {}), self._innermost(thread)
            if tid and frame:
                stacks[tid] = tuple(self._frames(frame, deadline, time.monotonic))
        if not stacks:
            raise PythonStackError("the interpreter's threads are not in the core")
        return stacks

    def stack_of(self, tid: int, pointers: Mapping[int, int], limit_s: float) -> tuple[Frame, ...]:
        """As ``collect``, of one thread; empty without Python. Raises as ``collect``.

        ``limit_s``: of CPU time. A busy machine makes this wait longer, and must not make it read less.
        """
        runtime, self._layout = self._find()
        thread = next((one for one in self._threads(runtime) if self._id_of(one, pointers) == tid), None)
        address = self._innermost(thread) if thread is not None else None
        return tuple(self._frames(address, time.thread_time() + limit_s, time.thread_time)) if address else ()

    def standing(self, tid: int, pointers: Mapping[int, int], most: int) -> tuple[Standing, ...]:
        """The thread's innermost ``most`` frames with their addresses; none without Python. Raises as ``collect``."""
        runtime, self._layout = self._find()
        thread = next((one for one in self._threads(runtime) if self._id_of(one, pointers) == tid), None)
        return self.standing_in(thread, most) if thread is not None else ()

    def standing_in(self, thread: int, most: int) -> tuple[Standing, ...]:
        """As ``standing``, of the thread with this state; after ``located``."""
        address = self._innermost(thread)
        found: list[Standing] = []
        layout = self._layout
        for _ in range(2 * most):
            data = self._memory.exactly(address, layout.frame_size) if address else None
            if address is None or data is None or len(found) == most:
                break
            if layout.owner is None or data[layout.owner] != CSTACK:
                one = self._standing(address, data)
                if one is None:
                    break
                found.append(one)
            address = int.from_bytes(data[layout.previous : layout.previous + 8], "little")
        return tuple(found)

    def frame_at(self, address: int) -> Standing | None:
        """The frame at ``address``, as of a coroutine that waits; after ``located``."""
        data = self._memory.exactly(address, self._layout.frame_size)
        return self._standing(address, data) if data is not None else None

    def columns(self, frame: Standing) -> tuple[int, int] | None:
        """The first and last column of a frame's instruction on its line, in bytes; after ``located``.

        The last is beyond the line's end if the expression continues on the next line. None before 3.11.
        """
        code, layout = self._code(frame.code), self._layout
        instruction = self._memory.u64(frame.address + layout.instruction)
        if layout.counts or code is None or instruction is None:
            return None
        return columns_of(code.lines, instruction - code.address - layout.instructions)

    def _standing(self, address: int, data: bytes) -> Standing | None:
        layout = self._layout
        code = self._code(int.from_bytes(data[layout.code : layout.code + 8], "little"))
        if code is None:
            return None
        return Standing(address, code.address, layout, code.function, code.source, self._line(code, data))

    def located(self) -> tuple[int, Layout]:
        """Address of the interpreter's state, and its layout. Raises as ``collect``."""
        runtime, self._layout = self._find()
        return runtime, self._layout

    @property
    def layout(self) -> Layout:
        """How the interpreter's objects are laid out; after ``located``."""
        return self._layout

    def threads(self, runtime: int) -> Iterator[int]:
        """The states of its threads by their addresses, the newest of each interpreter first; after ``located``."""
        return self._threads(runtime)

    def native_id(self, thread: int) -> int | None:
        """The kernel's number of the thread with this state; None before 3.11, which does not keep it."""
        return self._id_of(thread, {})

    def forget(self) -> None:
        """The process has run on since the last reading."""
        self._codes.clear()
        self._lines.clear()

    def frames_of(self, thread: int, limit_s: float = 0.1) -> Iterator[Frame]:
        """What runs in the thread with this state, innermost first; after ``located``."""
        address = self._innermost(thread)
        return self._frames(address, time.monotonic() + limit_s, time.monotonic) if address else iter(())

    def place(self, code: int, last: int) -> tuple[str | None, str | None, int | None] | None:
        """Function, file and line of the instruction ``last`` of a code object; None where there is none.

        ``last`` is ``tb_lasti``: bytes, also up to 3.9; 3.10 alone counts instructions.
        """
        found = self._code(code) if code else None
        if found is None:
            return None
        if self._layout.in_bytes:
            line = oldest_line_of(found.lines, found.first_line, last)
        elif self._layout.counts:
            line = old_line_of(found.lines, found.first_line, last)
        else:
            line = line_of(found.lines, found.first_line, last)
        return found.function, found.source, line

    def _threads(self, runtime: int) -> Iterator[int]:
        layout, u64 = self._layout, self._memory.u64
        interpreter = u64(runtime + layout.interpreters)
        seen: set[int] = set()
        for _ in range(_MOST_INTERPRETERS):
            if not interpreter:
                return
            thread = u64(interpreter + layout.threads)
            # What does not point back to its interpreter is no thread of it: then the layout is another one.
            while thread and thread not in seen and u64(thread + layout.thread_interpreter) == interpreter:
                seen.add(thread)
                if len(seen) > _MOST_THREADS:
                    return
                yield thread
                thread = u64(thread + layout.thread_next)
            interpreter = u64(interpreter + layout.interpreter_next)

    def _id_of(self, thread: int, pointers: Mapping[int, int]) -> int | None:
        layout = self._layout
        if layout.native_id is not None:
            return self._memory.u64(thread + layout.native_id)
        return pointers.get(self._memory.u64(thread + layout.thread_pointer) or 0)

    def _innermost(self, thread: int) -> int | None:
        layout = self._layout
        if layout.frame_via is not None:
            thread = self._memory.u64(thread + layout.frame_via) or 0
        return self._memory.u64(thread + layout.frame) if thread else None

    def _frames(self, address: int, deadline: float, clock: Callable[[], float]) -> Iterator[Frame]:
        """The frames from ``address`` outwards until ``deadline``; one that entered the evaluator bears ``ENTRY``."""
        layout = self._layout
        seen: set[int] = set()
        last: Frame | None = None
        while address and address not in seen and len(seen) < 2 * MOST_FRAMES and clock() <= deadline:
            seen.add(address)
            data = self._memory.exactly(address, layout.frame_size)
            if data is None:
                break
            following = int.from_bytes(data[layout.previous : layout.previous + 8], "little")
            if layout.owner is not None and data[layout.owner] == CSTACK:
                if last is not None:
                    last = msgspec.structs.replace(last, evaluated_by=ENTRY)
                address = following
                continue
            code = self._code(int.from_bytes(data[layout.code : layout.code + 8], "little"))
            if code is None:
                break
            if last is not None:
                yield last
            if last is not None and last.index + 1 >= MOST_FRAMES:
                return
            enters = layout.counts or (layout.is_entry is not None and data[layout.is_entry])
            last = Frame(
                index=0 if last is None else last.index + 1,
                kind="python",
                function=code.function,
                source=code.source,
                line=self._line(code, data),
                evaluated_by=ENTRY if enters else None,
            )
            address = following
        if last is not None:
            yield last

    def _line(self, code: _Code, frame: bytes) -> int | None:
        at = self._layout.instruction
        key = code.address, frame[at : at + 8]
        if key not in self._lines:
            self._lines[key] = self._look_up_line(code, frame)
        return self._lines[key]

    def _look_up_line(self, code: _Code, frame: bytes) -> int | None:
        layout = self._layout
        if layout.counts:
            # Its own line stands behind the number where somebody traces the frame.
            number, traced = struct.unpack_from("<ii", frame, layout.instruction)
            if layout.in_bytes:
                return oldest_line_of(code.lines, code.first_line, number)
            return traced or old_line_of(code.lines, code.first_line, number * 2)
        (instruction,) = struct.unpack_from("<Q", frame, layout.instruction)
        return line_of(code.lines, code.first_line, instruction - code.address - layout.instructions)

    def _code(self, address: int) -> _Code | None:
        if address not in self._codes:
            self._codes[address] = self._read_code(address)
        return self._codes[address]

    def _read_code(self, address: int) -> _Code | None:
        layout = self._layout
        data = self._memory.exactly(address, max(layout.lines, layout.name, layout.file_name) + 8)
        if data is None:
            return None
        (first,) = struct.unpack_from("<i", data, layout.first_line)
        name, source, table = (
            struct.unpack_from("<Q", data, at)[0] for at in (layout.name, layout.file_name, layout.lines)
        )
        return _Code(address, self._text(name), self._text(source), first, self._bytes(table))

    def _bytes(self, address: int) -> bytes:
        size = self._memory.u64(address + 16) or 0
        return self._memory.exactly(address + _BYTES_HEAD, size) or b"" if size <= _LONGEST_TABLE else b""

    def _text(self, address: int) -> str | None:
        """A ``str`` as the compiler makes it: compact, one to four bytes a letter."""
        head = self._memory.exactly(address, 40)
        if head is None:
            return None
        length, _hash, state = struct.unpack_from("<QqI", head, 16)
        width, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        coding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(width)
        if coding is None or not is_compact or length > _LONGEST_TEXT:
            return None
        start = address + (self._layout.ascii if is_ascii else self._layout.wide)
        data = self._memory.exactly(start, length * width)
        return None if data is None else data.decode(coding, "replace")


def oldest_line_of(table: bytes, first_line: int, offset: int) -> int | None:
    """The line of the instruction at ``offset`` (bytes) by 3.9's ``co_lnotab`` (``PyCode_Addr2Line``), or None."""
    line, end = first_line, 0
    for at in range(0, len(table) - 1, 2):
        end += table[at]
        if end > offset:
            break
        line += table[at + 1] - 256 if table[at + 1] > 127 else table[at + 1]
    return line if offset >= 0 else None


def old_line_of(table: bytes, first_line: int, offset: int) -> int | None:
    """The line of the instruction at ``offset`` (bytes) by 3.10's ``co_linetable``: how many bytes, lines to go on."""
    line, end = first_line, 0
    for at in range(0, len(table) - 1, 2):
        delta = table[at + 1] - 256 if table[at + 1] > 127 else table[at + 1]
        line += delta if delta != _NO_LINE else 0
        end += table[at]
        if 0 <= offset < end:
            return None if delta == _NO_LINE else line
    return None


def line_of(table: bytes, first_line: int, offset: int) -> int | None:
    """The line of the instruction at ``offset`` (bytes) by ``co_linetable`` (``Objects/locations.md``), or None."""
    line, start, at = first_line, 0, 0
    while at < len(table):
        kind, size = table[at] >> 3 & 15, (table[at] & 7) + 1
        at += 1
        if kind in {13, 14}:
            delta, at = _signed(table, at)
            line += delta
            for _ in range(3 if kind == 14 else 0):
                _, at = _number(table, at)
        elif kind < 13:
            line += kind - 10 if kind >= 10 else 0
            at += 2 if kind >= 10 else 1
        start += size * 2
        if offset < start:
            return None if kind == 15 or offset < 0 else line
    return None


def columns_of(table: bytes, offset: int) -> tuple[int, int] | None:
    """The columns of the instruction at ``offset`` (bytes) by ``co_linetable``: in bytes of its line, from 0.

    The second is ``BEYOND`` where the expression ends on a later line; None where the table has no columns for it.
    """
    start = at = 0
    while at < len(table) and offset >= 0:
        kind, size = table[at] >> 3 & 15, (table[at] & 7) + 1
        at += 1
        first, last, lines = -1, -1, 0
        if kind in {13, 14}:
            _, at = _signed(table, at)
            if kind == 14:
                lines, at = _number(table, at)
                first, at = _number(table, at)
                last, at = _number(table, at)
                first, last = first - 1, last - 1
        elif kind < 10:
            first = kind << 3 | table[at] >> 4
            last = first + (table[at] & 15)
            at += 1
        elif kind < 13:
            first, last = table[at], table[at + 1]
            at += 2
        start += size * 2
        if offset < start:
            known = first >= 0 and (lines or first < last)
            return (first, BEYOND if lines else last) if known else None
    return None


def _number(table: bytes, at: int) -> tuple[int, int]:
    """Six bits a byte, the least first; the bit 64 says that more follow."""
    value = shift = 0
    while at < len(table):
        byte = table[at]
        at += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return value, at


def _signed(table: bytes, at: int) -> tuple[int, int]:
    value, at = _number(table, at)
    return (-(value >> 1) if value & 1 else value >> 1), at
