"""A Windows exception in the model: the exit status that it leaves, and the fault behind it.

Faults get Linux' names of signals, so that one rule judges both systems. Codes and their parameters: Microsoft
Learn, ``EXCEPTION_RECORD``; MS-ERREF 2.3; winnt.h.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from necropsy.formats.exit_status import nt_status
from necropsy.formats.statuses import subcodes
from necropsy.model import Access, Address, Exit, FastFail, Fault, Frame, Stack, Thread

GUARD_PAGE = 0x80000001
"""The first touch of a page that is marked so; its parameters are those of an access violation."""
ACCESS_VIOLATION = 0xC0000005
IN_PAGE_ERROR = 0xC0000006
STACK_OVERFLOW = 0xC00000FD
FAST_FAIL = 0xC0000409
HEAP_CORRUPTION = 0xC0000374
CPP_EXCEPTION = 0xE06D7363
"""``0xE0`` and the letters *msc*: what ``throw`` of Microsoft's C++ raises."""
GNU_EXCEPTION = 0x20474343
"""What ``throw`` of GCC's C++ raises: the letters *GCC*, with the customer's bit (libgcc, unwind-seh.c)."""
ABORTED = 7
"""``FAST_FAIL_FATAL_APP_EXIT``, as abort() gives it."""

_ACCESS: dict[int, Access] = {0: "read", 1: "write", 8: "exec"}
_SIGNALS: dict[int, tuple[str, str | None]] = {
    0xC0000005: ("SIGSEGV", None),
    0xC0000006: ("SIGBUS", None),
    0xC00000FD: ("SIGSEGV", None),
    0xC000001D: ("SIGILL", "ILL_ILLOPC"),
    0xC0000096: ("SIGILL", "ILL_PRVOPC"),
    0xC0000094: ("SIGFPE", "FPE_INTDIV"),
    0xC0000095: ("SIGFPE", "FPE_INTOVF"),
    0xC000008E: ("SIGFPE", "FPE_FLTDIV"),
    0xC000008F: ("SIGFPE", "FPE_FLTRES"),
    0xC0000090: ("SIGFPE", "FPE_FLTINV"),
    0xC0000091: ("SIGFPE", "FPE_FLTOVF"),
    0xC0000093: ("SIGFPE", "FPE_FLTUND"),
    0x80000001: ("SIGSEGV", None),
    0x80000002: ("SIGBUS", "BUS_ADRALN"),
    0x80000003: ("SIGTRAP", "TRAP_BRKPT"),
}


def is_status(code: int) -> bool:
    """A code that a process can die with: an error or a warning of the system, or an exception of a program's own."""
    return 0x40000000 <= code < 1 << 32 or code == GNU_EXCEPTION


def end_of(code: int, text: str, subcode: int | None = None) -> Exit:
    """The end of a process by the exception ``code``; ``subcode`` is the first parameter of 0xC0000409."""
    status = nt_status(code)
    if code == FAST_FAIL and subcode is not None and subcode < 1 << 32:
        known = subcodes().get(subcode)
        fast_fail = FastFail(code=subcode, name=known.name if known else None)
        status = msgspec.structs.replace(status, fast_fail=fast_fail)
    return Exit(kind="exited", code=status.signed, ntstatus=status, text=text)


def fault_of(code: int, parameters: Sequence[int] = ()) -> Fault | None:
    """The fault, for an exception of the processor; ``parameters`` are those of its record: access, address.

    A 64-bit processor that refuses a non-canonical address does not say which: Windows then reports a read of the
    highest address there is.
    """
    signal, reason = _SIGNALS.get(code, (None, None))
    if signal is None:
        return None
    if code not in {ACCESS_VIOLATION, IN_PAGE_ERROR, GUARD_PAGE} or not parameters:
        return Fault(signal=signal, code=reason)
    access = _ACCESS.get(parameters[0])
    address = parameters[1] if len(parameters) > 1 and parameters[1] < 1 << 64 else None
    if address == (1 << 64) - 1 and access == "read" and code == ACCESS_VIOLATION:
        return Fault(signal=signal, code="SI_KERNEL")
    return Fault(
        signal=signal,
        code=reason,
        access=access,
        address=Address(address) if address is not None else None,
    )


def access_named(word: str | None) -> int | None:
    """The first parameter of an access violation for ``read``, ``reading``, ``write``, ``written``, ``execute`` ..."""
    word = (word or "").lower()
    return next((code for start, code in (("read", 0), ("writ", 1), ("exec", 8)) if word.startswith(start)), None)


def crashed_thread(
    code: int, frames: Sequence[Frame] = (), *, tid: int | None = None, name: str | None = None
) -> Thread | None:
    """The thread that crashed, with what the code says of its stack; None where nothing is known of it."""
    stack = Stack(guard_hit=True) if code == STACK_OVERFLOW else None
    if not frames and stack is None and tid is None:
        return None
    return Thread(tid=tid, name=name, crashed=True, frames=tuple(frames) or None, stack=stack)


def ends_in_abort(frames: Sequence[Frame]) -> bool:
    """abort() of Microsoft's C runtime stands on top of a stack: it was shown where the process ended itself."""
    names = [(frame.function or "").removesuffix("()") for frame in frames[:3]]
    return "abort" in names


def python_version(program: str, version: str) -> str | None:
    """``3.9.7`` for python.exe 3.9.7150.1013: micro version * 1000 + release level * 10 + serial.

    PC/python_ver_rc.h of CPython; its fourth field has been 1013 since Python 2.3.
    """
    parts = version.split(".")
    if not program.lower().startswith("python") or len(parts) != 4 or parts[3] != "1013":
        return None
    if not all(part.isdecimal() and len(part) <= 6 for part in parts):
        return None
    return f"{int(parts[0])}.{int(parts[1])}.{int(parts[2]) // 1000}"
