"""The Windows functions that the supervisor calls, over ctypes. Importing it does nothing; only calls need Windows.

x64 only. Layouts and meanings: Microsoft Learn (``processthreadsapi.h``, ``debugapi.h``, ``minwinbase.h``,
``winnt.h``). Structures that the system fills in are read by ``struct``, so their layout can be tested anywhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from necropsy.formats.minidump_records import MemoryInfo

_WINDOWS: Any = ctypes
"""``WinDLL`` and its like are known to ctypes on Windows only."""
Handle = int

DEBUG_PROCESS, DEBUG_ONLY_THIS_PROCESS = 0x1, 0x2
CREATE_SUSPENDED = 0x4
INFINITE = 0xFFFFFFFF
WAIT_OBJECT_0, WAIT_TIMEOUT = 0, 0x102
DBG_CONTINUE, DBG_EXCEPTION_NOT_HANDLED = 0x00010002, 0x80010001
STD_ERROR_HANDLE = -12
FILE_TYPE_DISK, FILE_TYPE_CHAR, FILE_TYPE_PIPE = 1, 2, 3
STILL_ACTIVE = 259

ERROR_FILE_NOT_FOUND, ERROR_PATH_NOT_FOUND, ERROR_ACCESS_DENIED = 2, 3, 5
ERROR_SEM_TIMEOUT, ERROR_BAD_EXE_FORMAT, ERROR_ELEVATION_REQUIRED = 121, 193, 740
ERROR_PARTIAL_COPY = 299

_STARTF_USESHOWWINDOW, _STARTF_USESTDHANDLES = 0x1, 0x100
_PAGE = 4096


@functools.cache
def _kernel32() -> Any:
    """Declares the types of arguments: without them ctypes cuts handles and addresses to 32 bits."""
    library = _WINDOWS.WinDLL("kernel32", use_last_error=True)
    pointer, number, text = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_wchar_p
    signatures: dict[str, tuple[Any, ...]] = {
        "CreateProcessW": (text, pointer, pointer, pointer, ctypes.c_int, number, pointer, text, pointer, pointer),
        "GetStartupInfoW": (pointer,),
        "ResumeThread": (pointer,),
        "SuspendThread": (pointer,),
        "CloseHandle": (pointer,),
        "WaitForDebugEvent": (pointer, number),
        "WaitForDebugEventEx": (pointer, number),
        "ContinueDebugEvent": (number, number, number),
        "DebugActiveProcess": (number,),
        "DebugActiveProcessStop": (number,),
        "DebugSetProcessKillOnExit": (ctypes.c_int,),
        "WaitForSingleObject": (pointer, number),
        "GetExitCodeProcess": (pointer, pointer),
        "TerminateProcess": (pointer, number),
        "CreateJobObjectW": (pointer, text),
        "AssignProcessToJobObject": (pointer, pointer),
        "SetInformationJobObject": (pointer, number, pointer, number),
        "TerminateJobObject": (pointer, number),
        "ReadProcessMemory": (pointer, pointer, pointer, ctypes.c_size_t, pointer),
        "VirtualQueryEx": (pointer, pointer, pointer, ctypes.c_size_t),
        "GetThreadContext": (pointer, pointer),
        "Wow64GetThreadContext": (pointer, pointer),
        "GetFinalPathNameByHandleW": (pointer, pointer, number, number),
        "GetStdHandle": (number,),
        "SetStdHandle": (number, pointer),
        "GetFileType": (pointer,),
        "SetConsoleCtrlHandler": (pointer, ctypes.c_int),
        "IsWow64Process": (pointer, pointer),
        "GetThreadDescription": (pointer, pointer),
        "LocalFree": (pointer,),
        "K32GetProcessMemoryInfo": (pointer, pointer, number),
    }
    for name, types in signatures.items():
        function = getattr(library, name, None)  # older systems lack some
        if function is not None:
            function.argtypes = types
            function.restype = pointer if name in {"CreateJobObjectW", "GetStdHandle", "LocalFree"} else number
    return library


def failure(code: int | None = None) -> OSError:
    """The error of the last call, with ``winerror``."""
    error: OSError = _WINDOWS.WinError(_WINDOWS.get_last_error() if code is None else code)
    return error


def _checked(name: str, *arguments: Any) -> int:
    """Call a function that returns 0 where it fails. Raises OSError then."""
    result = getattr(_kernel32(), name)(*arguments)
    if not result:
        raise failure()
    return int(result)


def call(name: str, *arguments: Any) -> int:
    """Call a function whose failure costs nothing; what it returns."""
    return int(getattr(_kernel32(), name)(*arguments) or 0)


def has(name: str) -> bool:
    """kernel32 of this system has the function."""
    return getattr(_kernel32(), name, None) is not None


@functools.cache
def is_wine() -> bool:
    """On wine: it ends a process whose stack overflowed with the code 0, where Windows gives 0xC00000FD."""
    return getattr(_WINDOWS.WinDLL("ntdll"), "wine_get_version", None) is not None


# -- processes ----------------------------------------------------------------------------------------------------


class StartupInfo(ctypes.Structure):
    """``STARTUPINFOW``."""

    _fields_ = (
        ("cb", ctypes.c_uint32),
        ("reserved", ctypes.c_void_p),
        ("desktop", ctypes.c_void_p),
        ("title", ctypes.c_void_p),
        ("x", ctypes.c_uint32),
        ("y", ctypes.c_uint32),
        ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32),
        ("columns", ctypes.c_uint32),
        ("rows", ctypes.c_uint32),
        ("fill", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("show", ctypes.c_uint16),
        ("reserved_size", ctypes.c_uint16),
        ("reserved_bytes", ctypes.c_void_p),
        ("stdin", ctypes.c_void_p),
        ("stdout", ctypes.c_void_p),
        ("stderr", ctypes.c_void_p),
    )


class Started(NamedTuple):
    """A process that was made: its handles and ids."""

    process: Handle
    thread: Handle
    pid: int
    tid: int


def create_process(path: str, line: str, flags: int, stderr: Handle | None = None) -> Started:
    """Start ``path`` with a command line, our standard handles, console, folder, variables and inheritable handles.

    ``stderr``: an inheritable handle, instead of our own. Raises OSError, whose ``winerror`` says why.
    """
    ours, theirs = StartupInfo(), StartupInfo()
    _kernel32().GetStartupInfoW(ctypes.byref(ours))
    theirs.cb = ctypes.sizeof(theirs)
    # How the window is to be shown, and the C runtime's open files, which one program may hand to another.
    theirs.flags, theirs.show = ours.flags & _STARTF_USESHOWWINDOW, ours.show
    theirs.reserved_size, theirs.reserved_bytes = ours.reserved_size, ours.reserved_bytes
    files = _with_stderr(ours, stderr) if stderr is not None else None
    if files is not None:
        theirs.reserved_bytes = ctypes.addressof(files)
    writable = ctypes.create_string_buffer((line + "\0").encode("utf-16-le", "surrogatepass"))
    made = (ctypes.c_byte * 24)()
    own = std_handle(STD_ERROR_HANDLE)
    if stderr is not None:
        call("SetStdHandle", STD_ERROR_HANDLE & 0xFFFFFFFF, stderr)
    try:
        _checked(
            "CreateProcessW",
            path,
            ctypes.cast(writable, ctypes.c_void_p),
            None,
            None,
            1,
            flags,
            None,
            None,
            ctypes.byref(theirs),
            ctypes.byref(made),
        )
    finally:
        if stderr is not None:
            call("SetStdHandle", STD_ERROR_HANDLE & 0xFFFFFFFF, own)
    return Started(*struct.unpack("<QQII", made))


_OPEN_PIPE = 0x09
"""``FOPEN | FPIPE`` of the C runtime."""


def _with_stderr(ours: StartupInfo, handle: Handle) -> ctypes.Array[ctypes.c_char] | None:
    """The C runtime's file table with this handle as file 2, or None: count, flags, handles (UCRT, ``ioinit.cpp``)."""
    size = int(ours.reserved_size or 0)
    if not ours.reserved_bytes or size < 4:
        return None
    data = bytearray(ctypes.string_at(ours.reserved_bytes, size))
    (count,) = struct.unpack_from("<I", data)
    at = 4 + count + 8 * 2
    if count <= 2 or at + 8 > size:
        return None
    data[4 + 2] = _OPEN_PIPE | data[4 + 2] & 0x80  # text or not stays as it was
    struct.pack_into("<Q", data, at, handle)
    return ctypes.create_string_buffer(bytes(data), size)


def close(handle: Handle) -> None:
    """Give a handle back."""
    if handle:
        call("CloseHandle", handle)


def exit_code(process: Handle) -> int:
    """All 32 bits of the exit code. Raises OSError where unavailable."""
    code = ctypes.c_uint32()
    _checked("GetExitCodeProcess", process, ctypes.byref(code))
    return code.value


def wait(process: Handle, seconds: float | None) -> bool:
    """Whether it ended within this time; None waits for ever."""
    milliseconds = INFINITE if seconds is None else max(0, min(int(seconds * 1000), INFINITE - 1))
    return call("WaitForSingleObject", process, milliseconds) == WAIT_OBJECT_0


def is_wow64(process: Handle) -> bool:
    """A 32-bit process on a 64-bit system."""
    answer = ctypes.c_int()
    return bool(call("IsWow64Process", process, ctypes.byref(answer)) and answer.value)


class MemoryCounters(NamedTuple):
    """``PROCESS_MEMORY_COUNTERS_EX``: bytes; 0 where the system does not count, as wine for other processes."""

    page_faults: int
    peak_working_set: int
    working_set: int
    peak_private: int
    private: int


def memory_counters(process: Handle) -> MemoryCounters | None:
    """What the system has counted of a process; None where it does not say."""
    counters = (ctypes.c_byte * 80)()
    struct.pack_into("<I", counters, 0, 80)
    if not call("K32GetProcessMemoryInfo", process, ctypes.byref(counters), 80):
        return None
    _, faults, peak, now, *_, peak_private, private = struct.unpack("<II9Q", counters)
    return MemoryCounters(faults, peak, now, peak_private, private)


def peak_memory(process: Handle) -> int | None:
    """The largest working set so far, in bytes."""
    found = memory_counters(process)
    return found.peak_working_set or None if found is not None else None


class Birth(NamedTuple):
    """Who started a process, and where its ProcessEnvironmentBlock lies."""

    parent: int
    peb: int


def birth(process: Handle) -> Birth | None:
    """``PROCESS_BASIC_INFORMATION`` of a process; None where it cannot be had."""
    query = _WINDOWS.WinDLL("ntdll").NtQueryInformationProcess
    query.argtypes = (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
    data = (ctypes.c_byte * 48)()
    if query(process, 0, ctypes.byref(data), 48, None):
        return None
    _, peb, _, _, _, parent = struct.unpack("<6Q", data)
    return Birth(parent, peb)


def final_path(file: Handle) -> str | None:
    """The path of an open file, as one would type it."""
    buffer = ctypes.create_unicode_buffer(32768)
    size = call("GetFinalPathNameByHandleW", file, ctypes.byref(buffer), len(buffer), 0)
    if not 0 < size < len(buffer):
        return None
    path = buffer.value
    if path.startswith("\\\\?\\UNC\\"):
        return "\\\\" + path[8:]
    return path.removeprefix("\\\\?\\")


# -- memory and threads -------------------------------------------------------------------------------------------


def read_memory(process: Handle, address: int, size: int) -> bytes:
    """Up to ``size`` bytes: as many as can be read from ``address`` on without a hole."""
    buffer = ctypes.create_string_buffer(size)
    count = ctypes.c_size_t()
    if call("ReadProcessMemory", process, address, ctypes.byref(buffer), size, ctypes.byref(count)):
        return buffer.raw[: count.value]
    return b"" if size <= 1 else _piecewise(process, address, size)


def _piecewise(process: Handle, address: int, size: int) -> bytes:
    """Windows reads all or nothing where the end cannot be read: page by page then."""
    buffer = ctypes.create_string_buffer(_PAGE)
    count = ctypes.c_size_t()
    data = bytearray()
    while size > 0:
        piece = min(size, _PAGE - (address + len(data)) % _PAGE)
        if not call(
            "ReadProcessMemory", process, address + len(data), ctypes.byref(buffer), piece, ctypes.byref(count)
        ):
            break
        data += buffer.raw[:piece]
        size -= piece
    return bytes(data)


def region(process: Handle, address: int) -> MemoryInfo | None:
    """The piece of the address space that holds ``address``."""
    data = (ctypes.c_byte * 48)()
    if not call("VirtualQueryEx", process, address, ctypes.byref(data), 48):
        return None
    return MemoryInfo(*struct.unpack_from("<QQI4xQIII", data))


CONTEXT_SIZE, CONTEXT_ALL, _FLAGS_AT = 1232, 0x10001F, 0x30


def thread_context(thread: Handle) -> bytes:
    """``CONTEXT`` of a suspended thread (x64). Raises OSError where unavailable."""
    buffer = ctypes.create_string_buffer(CONTEXT_SIZE + 16)
    at = -ctypes.addressof(buffer) % 16
    struct.pack_into("<I", buffer, at + _FLAGS_AT, CONTEXT_ALL)
    _patiently("GetThreadContext", thread, ctypes.addressof(buffer) + at)
    return buffer.raw[at : at + CONTEXT_SIZE]


def _patiently(function: str, thread: Handle, buffer: int) -> None:
    """On a busy machine, wine fails with a thread that is not suspended yet."""
    for pause in (0.01, 0.05, 0.2):
        with contextlib.suppress(OSError):
            _checked(function, thread, buffer)
            return
        time.sleep(pause)
    _checked(function, thread, buffer)


_X86_SIZE, _X86_ALL = 716, 0x1003F


def thread_context_of_x86(thread: Handle) -> bytes:
    """``WOW64_CONTEXT``: the registers of a 32-bit process's thread on 64 bits. Raises OSError where unavailable."""
    buffer = ctypes.create_string_buffer(_X86_SIZE)
    struct.pack_into("<I", buffer, 0, _X86_ALL)
    _patiently("Wow64GetThreadContext", thread, ctypes.addressof(buffer))
    return buffer.raw


def thread_name(thread: Handle) -> str | None:
    """The name that was given to a thread (SetThreadDescription, Windows 10 and later)."""
    function = getattr(_kernel32(), "GetThreadDescription", None)
    if function is None:
        return None
    text = ctypes.c_void_p()
    if function(thread, ctypes.byref(text)) >> 31 or not text.value:
        return None
    try:
        return ctypes.wstring_at(text.value) or None
    finally:
        call("LocalFree", text.value)


# -- the console --------------------------------------------------------------------------------------------------

_kept: list[Any] = []
"""Callbacks that the system may call; ctypes frees what nobody refers to."""


def on_console_events(answer: Callable[[int], bool]) -> None:
    """Have ``answer(event) -> bool`` called, in a thread of its own; true: nothing else is to happen here."""
    handler = _WINDOWS.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint32)(lambda event: int(answer(event)))
    _kept.append(handler)
    call("SetConsoleCtrlHandler", handler, 1)


def std_handle(number: int) -> Handle:
    """One of our standard handles; 0 where there is none."""
    handle = call("GetStdHandle", number & 0xFFFFFFFF)
    return 0 if handle in {0, (1 << 64) - 1} else handle
