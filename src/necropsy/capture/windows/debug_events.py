"""Debug events of Windows: ``DEBUG_EVENT`` of x64, its bytes as values, and the calls that wait and answer.

Layouts: Microsoft Learn, ``minwinbase.h`` (DEBUG_EVENT, EXCEPTION_DEBUG_INFO, LOAD_DLL_DEBUG_INFO, ...).
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

from necropsy.capture.windows import winapi

SIZE = 176
_HEAD = struct.Struct("<III4x")
_EXCEPTION = struct.Struct("<IIQQI4x15QI")
_CREATE_THREAD = struct.Struct("<QQQ")
_CREATE_PROCESS = struct.Struct("<QQQQIIQQQH")
_LOAD_DLL = struct.Struct("<QQIIQH")
_NUMBER, _ADDRESS = struct.Struct("<I"), struct.Struct("<Q")
_STRING = struct.Struct("<QHH")
_RIP = struct.Struct("<II")


@dataclass(frozen=True)
class DebugEvent:
    """Any event; of these classes or, where nothing is of interest, of this one."""

    pid: int
    tid: int


@dataclass(frozen=True)
class RaisedEvent(DebugEvent):
    """An exception: at the first chance before any handler has seen it, at the second when none has taken it."""

    code: int
    flags: int
    record: int
    address: int
    parameters: tuple[int, ...]
    first_chance: bool


@dataclass(frozen=True)
class ThreadBegan(DebugEvent):
    """A thread; ``teb`` is its ThreadEnvironmentBlock. The handle is the system's: it closes it."""

    handle: int
    teb: int
    start: int


@dataclass(frozen=True)
class ProcessBegan(DebugEvent):
    """A process. ``file`` is ours to close; the others the system closes after the process has ended."""

    file: int
    handle: int
    thread: int
    base: int
    teb: int
    start: int


@dataclass(frozen=True)
class ThreadEnded(DebugEvent):
    """A thread, not the last one."""

    code: int


@dataclass(frozen=True)
class ProcessEnded(DebugEvent):
    """The process, with all 32 bits of its exit code; its memory may still be read until this is answered."""

    code: int


@dataclass(frozen=True)
class DllLoaded(DebugEvent):
    """``file`` is ours to close."""

    file: int
    base: int


@dataclass(frozen=True)
class DllUnloaded(DebugEvent):
    """The one that was loaded at ``base``."""

    base: int


@dataclass(frozen=True)
class DebugString(DebugEvent):
    """``OutputDebugString``: ``size`` with its NUL, in bytes or (``wide``) in letters of two bytes."""

    address: int
    size: int
    wide: bool


@dataclass(frozen=True)
class SystemFailed(DebugEvent):
    """``RIP_EVENT``: the system's debugging failed (``SLE_*`` in ``kind``)."""

    error: int
    kind: int


def parse(data: bytes) -> DebugEvent:
    """The event in ``data``, ``SIZE`` bytes."""
    kind, pid, tid = _HEAD.unpack_from(data)
    at = _HEAD.size
    if kind == 1:
        code, flags, record, address, count, *rest = _EXCEPTION.unpack_from(data, at)
        *parameters, first = rest
        return RaisedEvent(pid, tid, code, flags, record, address, tuple(parameters[: min(count, 15)]), bool(first))
    if kind == 2:
        return ThreadBegan(pid, tid, *_CREATE_THREAD.unpack_from(data, at))
    if kind == 3:
        file, process, thread, base, _, _, teb, start, _, _ = _CREATE_PROCESS.unpack_from(data, at)
        return ProcessBegan(pid, tid, file, process, thread, base, teb, start)
    if kind == 4:
        return ThreadEnded(pid, tid, *_NUMBER.unpack_from(data, at))
    if kind == 5:
        return ProcessEnded(pid, tid, *_NUMBER.unpack_from(data, at))
    if kind == 6:
        file, base, *_ = _LOAD_DLL.unpack_from(data, at)
        return DllLoaded(pid, tid, file, base)
    if kind == 7:
        return DllUnloaded(pid, tid, *_ADDRESS.unpack_from(data, at))
    if kind == 8:
        address, wide, size = _STRING.unpack_from(data, at)
        return DebugString(pid, tid, address, size, bool(wide))
    if kind == 9:
        return SystemFailed(pid, tid, *_RIP.unpack_from(data, at))
    return DebugEvent(pid, tid)


def wait(seconds: float | None) -> DebugEvent | None:
    """The next event of a debugged process; None where none came in time. Raises OSError without a process."""
    buffer = ctypes.create_string_buffer(SIZE)
    milliseconds = winapi.INFINITE if seconds is None else max(0, int(seconds * 1000))
    # Since Windows 10; the older one turns what OutputDebugStringW says into the system's own code page.
    name = "WaitForDebugEventEx" if winapi.has("WaitForDebugEventEx") else "WaitForDebugEvent"
    if winapi.call(name, ctypes.byref(buffer), milliseconds):
        try:
            return parse(buffer.raw)
        except Exception:
            # What nobody answers stands still for ever.
            _, pid, tid = _HEAD.unpack_from(buffer.raw)
            winapi.call("ContinueDebugEvent", pid, tid, winapi.DBG_EXCEPTION_NOT_HANDLED)
            raise
    error = winapi.failure()
    if getattr(error, "winerror", None) == winapi.ERROR_SEM_TIMEOUT:
        return None
    raise error


def answer(event: DebugEvent, *, handled: bool) -> None:
    """Let the process go on. ``handled`` counts for exceptions: false hands it to the program's own handlers."""
    status = winapi.DBG_CONTINUE if handled else winapi.DBG_EXCEPTION_NOT_HANDLED
    winapi.call("ContinueDebugEvent", event.pid, event.tid, status)
