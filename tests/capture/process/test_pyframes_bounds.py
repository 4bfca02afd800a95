"""A process may lie about its Python objects: what is read of them takes no longer than there is time."""

from __future__ import annotations

import struct
import time

import pytest

from necropsy.capture.process import cpython_frames
from necropsy.capture.process.cpython_offsets import Layout, layout_of
from necropsy.capture.process.memory import Memory

_TABLE = 50_000
_FRAMES = 2000
_RUNTIME, _INTERPRETER, _THREAD, _VIA, _CODE, _NAME, _LINES = (0x10000 * number for number in range(1, 8))
_FIRST = 0x1000000


class _Bytes(Memory):
    """Memory with 3.11's objects: one thread, whose frames all stand at the same instruction of one code object."""

    def __init__(self) -> None:
        self.parts: dict[int, bytearray] = {}
        layout = layout_of("3.11", self, _RUNTIME)
        assert layout is not None
        self.put(_RUNTIME, layout.interpreters, _INTERPRETER)
        self.put(_INTERPRETER, layout.threads, _THREAD)
        self.put(_THREAD, layout.thread_interpreter, _INTERPRETER)
        self.put(_THREAD, layout.native_id or 0, 4711)
        self.put(_THREAD, layout.frame_via or 0, _VIA)
        self.put(_VIA, layout.frame, _FIRST)
        for index in range(_FRAMES):
            frame = _FIRST + index * 0x100
            self.put(frame, layout.code, _CODE)
            self.put(frame, layout.previous, frame + 0x100 if index + 1 < _FRAMES else 0)
            self.put(frame, layout.instruction, _CODE + layout.instructions + 2 * _TABLE)
        self.put(_CODE, layout.name, _NAME)
        self.put(_CODE, layout.file_name, _NAME)
        self.put(_CODE, layout.lines, _LINES)
        self.put(_NAME, 16, 4)
        self.put(_NAME, 32, 1 << 2 | 1 << 5 | 1 << 6)
        self.at(_NAME)[layout.ascii : layout.ascii + 4] = b"deep"
        self.put(_LINES, 16, _TABLE * 2)
        self.parts[_LINES] += b"\xd8\x00" * _TABLE

    def at(self, address: int) -> bytearray:
        return self.parts.setdefault(address, bytearray(0x100))

    def put(self, address: int, offset: int, value: int) -> None:
        struct.pack_into("<Q", self.at(address), offset, value)

    def some(self, address: int, size: int) -> bytes:
        for base in (address & ~0xFF, address & ~0xFFFF):
            if base in self.parts and address - base + size <= len(self.parts[base]):
                return bytes(self.parts[base][address - base : address - base + size])
        return b""


class _Reader(cpython_frames.FrameReader):
    def _find(self) -> tuple[int, Layout]:
        layout = layout_of("3.11", self._memory, _RUNTIME)
        assert layout is not None
        return _RUNTIME, layout


@pytest.fixture
def reader() -> _Reader:
    return _Reader(_Bytes())


def test_the_line_of_an_instruction_is_looked_up_once(reader: _Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = cpython_frames.line_of

    def counted(table: bytes, first_line: int, offset: int) -> int | None:
        asked.append(offset)
        return real(table, first_line, offset)

    monkeypatch.setattr(cpython_frames, "line_of", counted)
    stacks = reader.collect(60.0)
    assert [len(frames) for frames in stacks.values()] == [_FRAMES]
    assert {frame.function for frame in stacks[4711]} == {"deep"}
    assert asked == [2 * _TABLE]


def test_a_stack_is_cut_where_the_time_is_over(reader: _Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    stacks = reader.collect(100.0)
    assert 0 < len(stacks[4711]) < 200
