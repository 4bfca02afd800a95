"""A minidump of a process that stands still, by MiniDumpWriteDump of dbghelp, for WinDbg and Visual Studio."""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import os
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from necropsy.capture.windows import winapi
from necropsy.capture.windows.debug_events import RaisedEvent
from necropsy.capture.windows.debuggee import Debuggee

_WINDOWS: Any = ctypes
_SMALL = 0x1000 | 0x20 | 0x40 | 0x800 | 0x4
"""Handles, unloaded modules, what the stacks point to, the address space and the threads' times (MINIDUMP_TYPE)."""
_WHOLE = _SMALL | 0x2
"""All memory."""
_RECORD = struct.Struct("<IIQQI4x15Q")


def write(process: Debuggee, event: RaisedEvent, out: BinaryIO, *, whole: bool) -> None:
    """Write a gzipped dump of the process at this exception to ``out``. Raises OSError where the system cannot."""
    import msvcrt

    function = _WINDOWS.WinDLL("dbghelp", use_last_error=True).MiniDumpWriteDump
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    function.argtypes = (pointer, number, pointer, number, pointer, pointer, pointer)
    parameters = (event.parameters + (0,) * 15)[:15]
    record = ctypes.create_string_buffer(
        _RECORD.pack(event.code, event.flags, event.record, event.address, len(event.parameters), *parameters)
    )
    raw = winapi.thread_context(process.threads[event.tid].handle)
    space = ctypes.create_string_buffer(len(raw) + 16)
    context = ctypes.addressof(space) + -ctypes.addressof(space) % 16
    ctypes.memmove(context, raw, len(raw))
    pointers = (ctypes.c_uint64 * 2)(ctypes.addressof(record), context)
    # MINIDUMP_EXCEPTION_INFORMATION is packed to four bytes.
    about = ctypes.create_string_buffer(struct.pack("<IQI", event.tid, ctypes.addressof(pointers), 0))
    handle, name = tempfile.mkstemp(suffix=".dmp", prefix="necropsy-")
    try:
        with os.fdopen(handle, "w+b") as file:
            os_handle = vars(msvcrt)["get_osfhandle"](file.fileno())
            kind = _WHOLE if whole else _SMALL
            if not function(process.handle, process.pid, os_handle, kind, ctypes.byref(about), None, None):
                raise winapi.failure()
            file.seek(0)
            with gzip.open(out, "wb", compresslevel=1) as packed:
                shutil.copyfileobj(file, packed, 1 << 20)
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()
