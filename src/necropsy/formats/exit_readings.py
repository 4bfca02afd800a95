"""Every reading of a number as an exit status, the likeliest first.

Which program shows which code: measured with bash, dash, ksh93, CPython's subprocess and wine; for Windows' own
consoles read in Microsoft's documentation, for Git Bash in Cygwin's winsup/cygwin/pinfo.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from necropsy.errors import UnknownCodeError
from necropsy.formats.statuses import signals, statuses, subcodes

Kind = Literal["signal", "status", "exit", "subcode"]
STATUS_FROM = 0x40000000
"""Below it lie the statuses that say success; no process dies with one."""
HIGHEST_SIGNAL = 64

GIT_BASH = {139: 0xC0000005, 132: 0xC000001D, 135: 0xC0000017, 130: 0xC000013A}
"""What Git Bash, MSYS2 and Cygwin make of a Windows status; they show every other one that is an error as 127."""
SIGNAL_WORDS = frozenset({"signal", "sig", "signo"})
SUBCODE_WORDS = frozenset({"subcode", "fastfail", "fast_fail"})


@dataclass(frozen=True)
class ExitReading:
    """One way to read a code. ``value``: the signal's number, the 32-bit status, the exit code, or the subcode."""

    kind: Kind
    value: int
    how: str


@dataclass(frozen=True)
class ExitCode:
    """A code as spelled, its readings, likeliest first (never empty), and ``also``, other spellings given with it."""

    spelled: str
    readings: tuple[ExitReading, ...]
    is_name: bool = False
    also: tuple[str, ...] = ()

    @property
    def best(self) -> ExitReading:
        """The likeliest reading."""
        return self.readings[0]


def of_hex(value: int, spelled: str) -> tuple[ExitReading, ...]:
    """Readings of a hex number, which may be a status's last digits. Raises UnknownCodeError beyond 32 bits."""
    if 0x100 <= value < 0x10000:
        full = [code for code in statuses() if code & 0xFFFF == value]
        if full:
            return tuple(ExitReading("status", code, f"if {spelled} are the last digits of a status") for code in full)
    return of_number(value, spelled, "")


def of_number(number: int, spelled: str, context: str = "") -> tuple[ExitReading, ...]:
    """Readings after the word ``context`` (``signal``, ``subcode``). Raises UnknownCodeError beyond 32 bits."""
    if context in SIGNAL_WORDS and 1 <= abs(number) <= HIGHEST_SIGNAL:
        return (ExitReading("signal", abs(number), f"signal {abs(number)}"),)
    if context in SUBCODE_WORDS and number in subcodes():
        return (ExitReading("subcode", number, f"subcode {number} of __fastfail"),)
    if 0xFFFFFFFF80000000 <= number <= 0xFFFFFFFFFFFFFFFF:
        number &= 0xFFFFFFFF  # the sign of its 32 bits was carried on to 64, as PowerShell and .NET do
    if not -(1 << 31) <= number < 1 << 32:
        raise UnknownCodeError(f"{spelled} has more than 32 bits: no exit status is that large")
    if number < 0:
        return _of_negative(number)
    if number >= STATUS_FROM:
        return _of_status(number)
    if number > 0xFF:
        return _of_large(number, spelled)
    return _of_byte(number)


def of_wait_status(number: int, spelled: str) -> tuple[ExitReading, ...]:
    """The readings of what waitpid(2) gives: a signal in its lowest seven bits, or the exit code in its second byte."""
    signal = number & 0x7F
    if 0 < signal <= HIGHEST_SIGNAL and number <= 0xFF:
        core = ", with the bit that says *core dumped*" if number & 0x80 else ""
        return (ExitReading("signal", signal, f"a wait status: signal {signal}{core}"),)
    if number & 0xFF == 0 and 0 <= number <= 0xFF00:
        return of_number(number >> 8, str(number >> 8))
    return of_number(number, spelled)


def own_exit(number: int) -> tuple[ExitReading, ...]:
    """The reading of a small negative number on Windows, where it is no signal: the program's own, or who ended it."""
    return (ExitReading("exit", number, f"on Windows: exit({number}), by the program or by the one that ended it"),)


def _of_negative(number: int) -> tuple[ExitReading, ...]:
    own = ExitReading("exit", number, f"on Windows: the program's own exit({number})")
    if number >= -HIGHEST_SIGNAL:
        signal = ExitReading(
            "signal", -number, f"a negative code is a signal's number in Python's subprocess: {-number}"
        )
        return (signal, own) if number in {-1, -2, -3} else (signal,)
    if number > -0x10000:
        return (ExitReading("exit", number, f"the program's own exit({number})"),)
    return _of_status(number & 0xFFFFFFFF)


def _of_status(value: int) -> tuple[ExitReading, ...]:
    if value >= 0xFFFF0000:
        own = value - (1 << 32)
        return (ExitReading("exit", own, f"exit({own}), its 32 bits read without a sign"),)
    plain = value & ~0x10000000
    if value not in statuses() and value & 0x10000000 and plain in statuses():
        return (ExitReading("status", plain, f"0x{value:08X} is an HRESULT that wraps the status 0x{plain:08X}"),)
    return (ExitReading("status", value, "a 32-bit Windows status"),)


def _of_large(number: int, spelled: str) -> tuple[ExitReading, ...]:
    readings = []
    unsigned = -number & 0xFFFFFFFF
    if unsigned in statuses():
        how = f"if its minus sign was lost: {-number} is 0x{unsigned:08X}"
        readings.append(ExitReading("status", unsigned, how))
    if 256 < number <= 256 + HIGHEST_SIGNAL:
        readings.append(ExitReading("signal", number - 256, f"256 + {number - 256}, as ksh93 and PBS show a signal"))
    if number & 0xFF == 0 and number <= 0xFF00:
        first, *_ = _of_byte(number >> 8)
        how = f"the wait status of os.system on Linux and macOS: exit code {number >> 8}; {first.how}"
        readings.append(ExitReading(first.kind, first.value, how))
    kept = f" (Linux and macOS would keep {number & 0xFF})"
    readings.append(ExitReading("exit", number, f"the program's own exit({spelled}) on Windows{kept}"))
    return tuple(readings)


def _of_byte(number: int) -> tuple[ExitReading, ...]:
    if 128 < number <= 128 + HIGHEST_SIGNAL:
        signal = number - 128
        readings = [ExitReading("signal", signal, f"128 + {signal}: how a shell or a container shows a signal")]
        if number in GIT_BASH:
            how = f"in Git Bash, MSYS2 and Cygwin: Windows' 0x{GIT_BASH[number]:08X}"
            readings.append(ExitReading("status", GIT_BASH[number], how))
        readings.append(ExitReading("exit", number, f"the program's own exit({number}): the number cannot tell"))
        return tuple(readings)
    readings = [ExitReading("exit", number, f"exit code {number}")]
    if number > 128 + HIGHEST_SIGNAL and 256 - number in signals():
        how = f"if a launcher in Python passed on its child's {number - 256}, of which the system keeps eight bits"
        readings.append(ExitReading("signal", 256 - number, how))
    if number in signals() and number not in {1, 2, 3}:
        readings.append(ExitReading("signal", number, "if it is a signal's number (Slurm's 0:N, `killed by signal N`)"))
    # 1, 2 and 3 are what programs end with every day: no crash is read out of them.
    if number > 3:
        how = "under WSL and wine, which keep the last byte of a Windows status"
        readings += [
            ExitReading("status", code, how) for code in statuses() if code & 0xFF == number and code >> 28 == 0xC
        ]
    return tuple(readings)
