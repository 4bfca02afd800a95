"""``siginfo_t``: what the kernel says of a signal, and the words that programs print for its ``si_code``.

Numbers from the kernel's ``include/uapi/asm-generic/siginfo.h``; the words are those of glibc's
``stdio-common/psiginfo-data.h`` (Open MPI, UCX, folly and backward-cpp print the like), of lldb and of R.
"""

from __future__ import annotations

import re
import signal
import struct
from dataclasses import dataclass

from necropsy.lazy_re import regex

SI_KERNEL = 0x80
SI_QUEUE = -1
_ANY = {
    0: "SI_USER",
    SI_KERNEL: "SI_KERNEL",
    SI_QUEUE: "SI_QUEUE",
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
_WORDS = (
    ("SEGV_MAPERR", r"address not mapped|memory not mapped|no mapping at fault address"),
    ("SEGV_ACCERR", r"invalid permissions"),
    ("BUS_ADRALN", r"invalid address alignment|illegal address alignment"),
    ("BUS_ADRERR", r"non-?exist[ae]nt physical address"),
    ("BUS_OBJERR", r"object-specific hardware error"),
    ("FPE_INTDIV", r"integer divide[ -]by[ -]zero"),
    ("FPE_INTOVF", r"integer overflow"),
    ("FPE_FLTDIV", r"floating[ -]point divide[ -]by[ -]zero"),
    ("ILL_ILLOPC", r"illegal opcode"),
    ("ILL_ILLOPN", r"illegal operand"),
    ("ILL_PRVOPC", r"privileged opcode"),
    ("SI_USER", r"sent by kill\(\)|signal sent by process"),
    ("SI_TKILL", r"sent by tkill\b|sent by tgkill|signal sent by tkill"),
    ("SI_KERNEL", r"signal sent by the kernel|sent by kernel"),
)
_SPELLED = tuple((name, regex(words, re.IGNORECASE)) for name, words in _WORDS)
WITH_ADDRESS = frozenset({"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP"})
"""Signals whose ``si_addr`` is an address; of the others it is the sender's process id, read as a number."""
_WITH_SENDER = {0, -1, -6}
SENT = frozenset({"SI_USER", "SI_QUEUE", "SI_TKILL"})


def code_name(signal: str, code: int) -> str:
    """``SEGV_MAPERR`` for 1 of SIGSEGV; the number itself where it has no name."""
    names = _BY_SIGNAL.get(signal, ())
    return names[code - 1] if 0 < code <= len(names) else _ANY.get(code, str(code))


def code_in(words: str) -> str | None:
    """``SEGV_MAPERR`` for *address not mapped to object*; None for words that no table has."""
    return next((name for name, pattern in _SPELLED if pattern.search(words)), None)


@dataclass(frozen=True)
class SigInfo:
    """``code``: the name of ``si_code``, or its number; ``sender``: the process that sent the signal.

    ``address`` is ``si_addr`` where the kernel filled it in: a fault of the CPU that is not ``SI_KERNEL``; 0 is an
    address.
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
    """The fields of these bytes. Raises struct.error for fewer than 32."""
    number, _errno, code = struct.unpack_from("<iii", raw)
    (address,) = struct.unpack_from("<Q", raw, 16)
    (sender,) = struct.unpack_from("<i", raw, 16)
    name = name_of(number)
    from_cpu = name in WITH_ADDRESS and code > 0 and code != SI_KERNEL
    return SigInfo(
        signal=name,
        number=number,
        code=code_name(name, code),
        code_number=code,
        address=address if from_cpu else None,
        sender=sender if code in _WITH_SENDER else None,
    )
