"""Python stacks by our own reading of the interpreter's objects: for cores, which py-spy cannot read.

CPython 3.11 on x86-64 only: from 3.10 to 3.14 each version has other layouts. Those of 3.11 are in its headers
``internal/pycore_runtime.h``, ``internal/pycore_interp.h``, ``cpython/pystate.h``, ``internal/pycore_frame.h``,
``cpython/code.h`` and ``cpython/unicodeobject.h``; the table of lines in ``Objects/locations.md``.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from necropsy.capture.linux.libraries import python_version
from necropsy.capture.linux.memory import Memory
from necropsy.capture.linux.modules import MappedFiles
from necropsy.capture.linux.pystack import ENTRY, MOST_FRAMES, PySpyError
from necropsy.model import Frame

_INTERPRETERS_HEAD = 40
_INTERPRETER_NEXT, _THREADS_HEAD = 0, 16
_THREAD_NEXT, _THREAD_CFRAME, _THREAD_NATIVE_ID = 8, 56, 160
_CFRAME_CURRENT = 8
_FRAME = struct.Struct("<QQQQQQQQiBB")
"""f_func, f_globals, f_builtins, f_locals, f_code, frame_obj, previous, prev_instr, stacktop, is_entry, owner."""
_FIRST_LINE, _FILE_NAME, _QUALIFIED_NAME, _LINE_TABLE, _INSTRUCTIONS = 72, 112, 128, 136, 184
_MOST_INTERPRETERS, _MOST_THREADS = 64, 20_000
_LONGEST_TEXT, _LONGEST_TABLE = 4096, 1 << 20


@dataclass(frozen=True)
class _Code:
    address: int
    function: str | None
    source: str | None
    first_line: int
    lines: bytes


class FrameReader:
    """Reads the Python stacks of one process; stands where a ``pystack.Dump`` stands."""

    def __init__(self, memory: Memory, files: MappedFiles) -> None:
        self.holds_gil: int | None = None
        """Not looked at."""
        self._memory, self._files = memory, files
        self._codes: dict[int, _Code | None] = {}

    def _find(self) -> int:
        """The address of the interpreter's state."""
        version = python_version(self._memory, self._files)
        if version is None:
            raise PySpyError("no Python interpreter is mapped")
        if version.split(".")[:2] != ["3", "11"]:
            raise PySpyError(f"Python stacks are read from cores of CPython 3.11 only, this is one of {version}")
        found = (file.symbol("_PyRuntime") for file in self._files.files if "python" in file.name)
        runtime = next((at for at in found if at is not None), None)
        if runtime is None:
            raise PySpyError("the interpreter's symbols are not to be had")
        return runtime

    def stop(self) -> None:
        """Nothing runs."""

    def collect(self, limit_s: float, pointers: Mapping[int, int] | None = None) -> dict[int, tuple[Frame, ...]]:  # noqa: ARG002 - as ``pystack.PythonStacks`` has it
        """The Python frames of each thread by its id, innermost first; in ``limit_s`` seconds or what is read by then.

        Raises:
            PySpyError: there is no interpreter, not one of a version that can be read, or its state is not in the core.

        """
        deadline = time.monotonic() + limit_s
        stacks: dict[int, tuple[Frame, ...]] = {}
        for tid, cframe in self._threads(self._find()):
            if time.monotonic() > deadline:
                break
            stacks[tid] = tuple(self._frames(cframe))
        if not stacks:
            raise PySpyError("the interpreter's threads are not in the core")
        return stacks

    def _threads(self, runtime: int) -> Iterator[tuple[int, int]]:
        """Id and ``_PyCFrame`` of each thread of each interpreter."""
        interpreter = self._memory.u64(runtime + _INTERPRETERS_HEAD)
        seen: set[int] = set()
        for _ in range(_MOST_INTERPRETERS):
            if not interpreter:
                return
            thread = self._memory.u64(interpreter + _THREADS_HEAD)
            while thread and thread not in seen and len(seen) < _MOST_THREADS:
                seen.add(thread)
                tid, cframe = self._memory.u64(thread + _THREAD_NATIVE_ID), self._memory.u64(thread + _THREAD_CFRAME)
                if tid and cframe:
                    yield tid, cframe
                thread = self._memory.u64(thread + _THREAD_NEXT)
            interpreter = self._memory.u64(interpreter + _INTERPRETER_NEXT)

    def _frames(self, cframe: int) -> Iterator[Frame]:
        frame = self._memory.u64(cframe + _CFRAME_CURRENT)
        seen: set[int] = set()
        while frame and frame not in seen and len(seen) < MOST_FRAMES:
            data = self._memory.exactly(frame, _FRAME.size)
            if data is None:
                return
            *_, code_at, _object, previous, instruction, _top, is_entry, _owner = _FRAME.unpack(data)
            code = self._code(code_at)
            if code is None:
                return
            yield Frame(
                index=len(seen),
                kind="python",
                function=code.function,
                source=code.source,
                line=line_of(code.lines, code.first_line, instruction - code.address - _INSTRUCTIONS),
                evaluated_by=ENTRY if is_entry else None,
            )
            seen.add(frame)
            frame = previous

    def _code(self, address: int) -> _Code | None:
        if address not in self._codes:
            self._codes[address] = self._read_code(address)
        return self._codes[address]

    def _read_code(self, address: int) -> _Code | None:
        data = self._memory.exactly(address, _LINE_TABLE + 8)
        if data is None:
            return None
        (first,) = struct.unpack_from("<i", data, _FIRST_LINE)
        name, source, table = (
            struct.unpack_from("<Q", data, at)[0] for at in (_QUALIFIED_NAME, _FILE_NAME, _LINE_TABLE)
        )
        return _Code(address, self._text(name), self._text(source), first, self._bytes(table))

    def _bytes(self, address: int) -> bytes:
        size = self._memory.u64(address + 16) or 0
        return self._memory.exactly(address + 32, size) or b"" if size <= _LONGEST_TABLE else b""

    def _text(self, address: int) -> str | None:
        """A ``str`` as the compiler makes it: compact, one to four bytes a letter."""
        head = self._memory.exactly(address, 48)
        if head is None:
            return None
        length, _hash, state = struct.unpack_from("<QqI", head, 16)
        width, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        coding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(width)
        if coding is None or not is_compact or length > _LONGEST_TEXT:
            return None
        data = self._memory.exactly(address + (48 if is_ascii else 72), length * width)
        return None if data is None else data.decode(coding, "replace")


def line_of(table: bytes, first_line: int, offset: int) -> int | None:
    """The line of the instruction at ``offset`` (bytes) by a code object's ``co_linetable`` (``Objects/locations.md``).

    None where the instruction stands for no line, or the table ends before it.
    """
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
