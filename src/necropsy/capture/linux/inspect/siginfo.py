"""The 128 bytes of ``siginfo_t`` (x86-64): what the kernel says of a signal."""

from __future__ import annotations

import signal
import struct
from dataclasses import dataclass

from necropsy.formats.signal_codes import SI_KERNEL, WITH_ADDRESS, code_name

_WITH_SENDER = {0, -1, -6}


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
