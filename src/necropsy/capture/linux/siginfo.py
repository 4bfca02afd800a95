"""The 128 bytes of ``siginfo_t`` (x86-64): what the kernel says of a signal.

Numbers from the kernel's ``include/uapi/asm-generic/siginfo.h``.
"""

from __future__ import annotations

import signal
import struct
from dataclasses import dataclass

SI_KERNEL = 0x80
_ANY = {
    0: "SI_USER",
    SI_KERNEL: "SI_KERNEL",
    -1: "SI_QUEUE",
    -2: "SI_TIMER",
    -3: "SI_MESGQ",
    -4: "SI_ASYNCIO",
    -5: "SI_SIGIO",
    -6: "SI_TKILL",
    -7: "SI_DETHREAD",
    -60: "SI_ASYNCNL",
}
_BY_SIGNAL = {
    "SIGSEGV": (
        *("SEGV_MAPERR", "SEGV_ACCERR", "SEGV_BNDERR", "SEGV_PKUERR", "SEGV_ACCADI"),
        *("SEGV_ADIDERR", "SEGV_ADIPERR", "SEGV_MTEAERR", "SEGV_MTESERR", "SEGV_CPERR"),
    ),
    "SIGBUS": ("BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR", "BUS_MCEERR_AR", "BUS_MCEERR_AO"),
    "SIGILL": (
        *("ILL_ILLOPC", "ILL_ILLOPN", "ILL_ILLADR", "ILL_ILLTRP", "ILL_PRVOPC"),
        *("ILL_PRVREG", "ILL_COPROC", "ILL_BADSTK", "ILL_BADIADDR"),
    ),
    "SIGFPE": (
        *("FPE_INTDIV", "FPE_INTOVF", "FPE_FLTDIV", "FPE_FLTOVF", "FPE_FLTUND"),
        *("FPE_FLTRES", "FPE_FLTINV", "FPE_FLTSUB"),
    ),
    "SIGTRAP": ("TRAP_BRKPT", "TRAP_TRACE", "TRAP_BRANCH", "TRAP_HWBKPT", "TRAP_UNK", "TRAP_PERF"),
    "SIGSYS": ("SYS_SECCOMP", "SYS_USER_DISPATCH"),
}
_WITH_ADDRESS = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP"}
_WITH_SENDER = {0, -1, -6}


@dataclass(frozen=True)
class SigInfo:
    """``code`` is the name of ``si_code`` (its number where it has none that we know).

    ``address`` is ``si_addr`` where the kernel filled it in: a fault of the CPU that is not ``SI_KERNEL``; 0 is an
    address. ``sender`` is the process that sent the signal.
    """

    signal: str
    number: int
    code: str
    code_number: int
    address: int | None = None
    sender: int | None = None


def name_of(number: int) -> str:
    """``SIGSEGV`` for 11; real-time signals as ``SIGRTMIN+3``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        low = int(signal.SIGRTMIN)
        return f"SIGRTMIN+{number - low}" if low < number <= int(signal.SIGRTMAX) else f"signal {number}"


def decode(raw: bytes) -> SigInfo:
    """What the bytes say.

    Raises:
        struct.error: fewer than 32 bytes.

    """
    number, _errno, code = struct.unpack_from("<iii", raw)
    (address,) = struct.unpack_from("<Q", raw, 16)
    (sender,) = struct.unpack_from("<i", raw, 16)
    name = name_of(number)
    names = _BY_SIGNAL.get(name, ())
    said = names[code - 1] if 0 < code <= len(names) else _ANY.get(code, str(code))
    from_cpu = name in _WITH_ADDRESS and code > 0 and code != SI_KERNEL
    return SigInfo(
        signal=name,
        number=number,
        code=said,
        code_number=code,
        address=address if from_cpu else None,
        sender=sender if code in _WITH_SENDER else None,
    )
