"""What is handed to a program at its start, where no Windows is needed to see it."""

from __future__ import annotations

import ctypes
import struct

from necropsy.capture.windows import winapi

TEXT, DEVICE, PIPE, OPEN = 0x80, 0x40, 0x08, 0x01


def handed(flags: list[int], handles: list[int]) -> winapi.StartupInfo:
    """The C runtime's table of open files as a parent hands it on: a number, a byte for each, a handle for each."""
    data = struct.pack("<I", len(flags)) + bytes(flags) + b"".join(struct.pack("<Q", one) for one in handles)
    info = winapi.StartupInfo()
    info.reserved_size, info.kept = len(data), ctypes.create_string_buffer(data, len(data))
    info.reserved_bytes = ctypes.addressof(info.kept)
    return info


def test_file_2_of_the_c_runtime_is_the_pipe() -> None:
    console = OPEN | DEVICE | TEXT
    files = winapi._with_stderr(handed([console, console, console, OPEN], [0x10, 0x20, 0x30, 0x40]), 0x5555)
    assert files is not None
    expected = struct.pack("<I", 4) + bytes([console, console, OPEN | PIPE | TEXT, OPEN])
    assert files.raw == expected + struct.pack("<4Q", 0x10, 0x20, 0x5555, 0x40)


def test_without_such_a_table_nothing_is_handed_on() -> None:
    assert winapi._with_stderr(winapi.StartupInfo(), 0x5555) is None
    assert winapi._with_stderr(handed([OPEN, OPEN], [0x10, 0x20]), 0x5555) is None
    cut = handed([OPEN, OPEN, OPEN], [0x10, 0x20, 0x30])
    cut.reserved_size -= 1
    assert winapi._with_stderr(cut, 0x5555) is None
