"""Exceptions that end a process. Codes: Microsoft Learn, ``EXCEPTION_RECORD``; ntstatus.h."""

from __future__ import annotations

from necropsy.formats.minidump_records import ExceptionRecord, ModuleRecord
from necropsy.formats.windows_exits import IN_PAGE_ERROR

_BREAKPOINTS = frozenset({0x80000003, 0x4000001F, 0x80000004, 0x4000001E})
"""``STATUS_BREAKPOINT``, ``STATUS_SINGLE_STEP`` and those of 32-bit programs on 64-bit Windows."""
_OF_DEBUGGERS = frozenset(
    {
        *(0x80000007, 0x40010001, 0x40010002, 0x40010005, 0x40010006, 0x40010008, 0x4001000A, 0x406D1388),
        *(0x40080201, 0x40080202, 0x04242420),
    }
)
"""``STATUS_WAKE_SYSTEM_DEBUGGER``, ``DBG_*`` (Ctrl-C and Ctrl-Break among them, which are handled), a thread's name;
what the Windows Runtime (``RoOriginateError``, ``RoTransformError``) and .NET tell a debugger."""
_REQUESTED = frozenset({0, 0x517A7ED})
"""Nobody died: somebody asked for a dump. Crashpad's number is ``kSimulatedExceptionCode``."""
_SYSTEM = frozenset({"ntdll.dll", "wow64.dll", "wow64cpu.dll"})


def kills(code: int, module: ModuleRecord | None, *, asked_by: ModuleRecord | None = None) -> bool:
    """The exception, raised in ``module``, is one that ends a process.

    ``RaiseException`` takes any number, so one below those of Windows is a program's own. A breakpoint in ntdll.dll is
    that of a debugger that breaks in, or of the start of a program under one, unless the program itself called it
    (``DebugBreak``): ``asked_by`` is where the function with the breakpoint returns to.
    """
    if code in _OF_DEBUGGERS or code in _REQUESTED:
        return False
    if code in _BREAKPOINTS and _is_system(module):
        return asked_by is not None and not _is_system(asked_by)
    return True


def _is_system(module: ModuleRecord | None) -> bool:
    return module is not None and module.name.lower() in _SYSTEM


def told(exception: ExceptionRecord, module: ModuleRecord | None) -> str:
    """``exception code 0xC0000005 in python311.dll+0x1234``."""
    where = f" in {module.name}+{exception.address - module.base:#x}" if module else f" at {exception.address:#x}"
    why = ""
    if exception.code == IN_PAGE_ERROR and len(exception.parameters) > 2:
        # The third parameter is the status of the read that failed.
        why = f", status 0x{exception.parameters[2] & 0xFFFFFFFF:08X}"
    return f"exception code 0x{exception.code:08X}{where}{why}"
