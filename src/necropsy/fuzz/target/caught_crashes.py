"""Crashes that ctypes catches: on Windows it turns an access violation in a foreign function into an ``OSError``.

``OSError: exception: access violation reading 0x0000000000000008`` is a crash that Python happened to see; the memory
of the process may be damaged. Here it ends the process, as it does where the function is called by anything else.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from typing import Any, Optional

_CAUGHT = re.compile(r"exception: (?P<what>[a-z -]+)")
"""What ctypes says (callproc.c, ``SetException``)."""
_ACCESS_VIOLATION = 0xC0000005
_CODES = {
    "datatype misalignment": 0x80000002,
    "array bounds exceeded": 0xC000008C,
    "floating-point divide by zero": 0xC000008E,
    "integer divide by zero": 0xC0000094,
    "integer overflow": 0xC0000095,
    "illegal instruction": 0xC000001D,
    "privileged instruction": 0xC0000096,
    "stack overflow": 0xC00000FD,
}
_READ_AND_RUN = 0x40
"""``PAGE_EXECUTE_READWRITE``."""
_COMMIT = 0x3000
"""``MEM_COMMIT | MEM_RESERVE``."""


def status_of(error: BaseException) -> Optional[int]:
    """The Windows status of the crash that ctypes made this error of; None for any other error."""
    found = _CAUGHT.match(str(error)) if isinstance(error, OSError) and error.errno is None else None
    if found is None:
        return None
    if found.group("what").startswith("access violation"):
        return _ACCESS_VIOLATION
    return _CODES.get(found.group("what").strip())


def die_of(error: BaseException) -> None:
    """End this process with the status of the crash behind the error, if there is one. On Windows only."""
    status = status_of(error) if os.name == "nt" else None
    if status is not None:
        kernel = _library("kernel32")
        os.write(2, ("%s\n" % error).encode("utf-8", "replace"))
        kernel.TerminateProcess.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
        kernel.TerminateProcess(kernel.GetCurrentProcess(), status)


def let_kill(status: int) -> None:
    """From now on an exception with this status ends this process where it happens, before ctypes sees it; on x64.

    A debugger is told of it as of any death. The handler is machine code, since Python's own frames are to be seen as
    they are.
    """
    if os.name != "nt" or struct.calcsize("P") != 8 or os.environ.get("PROCESSOR_ARCHITECTURE") == "ARM64":
        return
    kernel, ntdll = _library("kernel32"), _library("ntdll")
    raise_exception = ctypes.cast(ntdll.NtRaiseException, ctypes.c_void_p).value
    kill = b"".join(
        [
            b"\x48\x8b\x51\x08",  # mov rdx, [rcx + 8]: the registers
            b"\x48\x89\xc1",  # mov rcx, rax
            b"\x45\x31\xc0",  # xor r8d, r8d: it has had its first chance
            b"\x48\x83\xec\x28",  # sub rsp, 40
            b"\x48\xb8" + struct.pack("<Q", raise_exception),  # mov rax, NtRaiseException
            b"\xff\xd0",  # call rax
            b"\x48\x83\xc4\x28",  # add rsp, 40
        ]
    )
    code = b"".join(
        [
            b"\x48\x8b\x01",  # mov rax, [rcx]: the record
            b"\x81\x38" + struct.pack("<I", status),  # cmp dword [rax], status
            b"\x75" + bytes([len(kill)]) + kill,  # jne beyond it
            b"\x31\xc0",  # xor eax, eax: EXCEPTION_CONTINUE_SEARCH
            b"\xc3",  # ret
        ]
    )
    kernel.VirtualAlloc.restype = ctypes.c_void_p
    kernel.VirtualAlloc.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32)
    place = kernel.VirtualAlloc(None, len(code), _COMMIT, _READ_AND_RUN)
    if place:
        ctypes.memmove(place, code, len(code))
        kernel.AddVectoredExceptionHandler.argtypes = (ctypes.c_uint32, ctypes.c_void_p)
        kernel.AddVectoredExceptionHandler(1, place)


def _library(name: str) -> Any:
    """With argument types of its own: those of ``ctypes.windll`` are everybody's."""
    return vars(ctypes)["WinDLL"](name)
