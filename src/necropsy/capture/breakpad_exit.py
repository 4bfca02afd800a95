"""How a process ended whose minidump Breakpad or Crashpad wrote on Linux or macOS.

Their exception record has the signal's number, si_code and si_addr on Linux, and the Mach exception, its code and
subcode on macOS (``minidump_exception_linux.h``, ``minidump_exception_mac.h``).
"""

from __future__ import annotations

import re
from bisect import bisect_right

from necropsy.formats.minidump_records import (
    ANDROID,
    COMMITTED,
    LINUX,
    ExceptionRecord,
    MemoryInfo,
    Minidump,
)
from necropsy.formats.siginfo import SENT, SI_KERNEL, WITH_ADDRESS, code_name
from necropsy.formats.statuses import signal_name
from necropsy.model import Address, Exit, Fault

REQUESTED = frozenset({0xFFFFFFFF, 0x517A7ED, 0})
"""Nobody died: somebody asked for a dump."""
_MOST_SIGNALS = 65
_BAD_ACCESS, _BAD_INSTRUCTION, _ARITHMETIC, _SOFTWARE, _BREAKPOINT = 1, 2, 3, 5, 6
_CRASH, _RESOURCE, _GUARD = 10, 11, 12
"""``EXC_*`` of Mach."""
_SOFT_SIGNAL = 0x10003
_GENERAL_PROTECTION = 13
_OF_MACH: dict[int, tuple[str, dict[int, str]]] = {
    _BAD_INSTRUCTION: ("SIGILL", {1: "ILL_ILLOPC"}),
    _ARITHMETIC: ("SIGFPE", {1: "FPE_INTDIV", 2: "FPE_INTOVF"}),
    _BREAKPOINT: ("SIGTRAP", {1: "TRAP_BRKPT", 2: "TRAP_BRKPT"}),
    _CRASH: ("SIGABRT", {}),
    _RESOURCE: ("SIGKILL", {}),
    _GUARD: ("SIGKILL", {}),
}
_ACCESSES = {1: "SEGV_MAPERR", 2: "SEGV_ACCERR", _GENERAL_PROTECTION: "SI_KERNEL"}


def ended(dump: Minidump) -> tuple[Exit, Fault | None]:
    """The exit and the fault of a process of another system than Windows."""
    exception = dump.exception
    if exception is None or exception.code in REQUESTED:
        return Exit(kind="running", text="written while it ran"), None
    platform = dump.system.platform_id if dump.system is not None else LINUX
    fault = _of_signal(exception) if platform in {LINUX, ANDROID} else _of_mach(exception)
    if fault is None:
        return Exit(kind="unknown", text=f"exception {exception.code:#x}"), None
    return Exit(kind="signaled", signal=fault.signal), fault


def _of_signal(exception: ExceptionRecord) -> Fault | None:
    if not 0 < exception.code < _MOST_SIGNALS:
        return None
    signal = signal_name(exception.code)
    number = exception.flags - (1 << 32) if exception.flags >> 31 else exception.flags
    code = code_name(signal, number) if number or signal not in WITH_ADDRESS else None
    by_cpu = signal in WITH_ADDRESS and code not in SENT and number != SI_KERNEL
    return Fault(signal=signal, code=code, address=Address(exception.address) if by_cpu else None)


def _of_mach(exception: ExceptionRecord) -> Fault | None:
    kind, code = exception.code, exception.flags
    if kind == _BAD_ACCESS:
        named = _ACCESSES.get(code)
        address = None if named == "SI_KERNEL" else Address(exception.address)
        return Fault(signal="SIGSEGV", code=named, address=address)
    if kind == _SOFTWARE and code == _SOFT_SIGNAL:
        if not 0 < exception.address < _MOST_SIGNALS:
            return None
        return Fault(signal=signal_name(exception.address, macos=True))
    signal, codes = _OF_MACH.get(kind, (None, {}))
    return Fault(signal=signal, code=codes.get(code)) if signal is not None else None


_MAPPING = re.compile(r"^([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-])([w-])([x-])", re.MULTILINE)
_READABLE, _EXECUTABLE = 0x02, 0x20
"""``PAGE_READONLY`` and ``PAGE_EXECUTE_READ``."""
_MOST_MAPPINGS = 65_536


class CopiedMaps:
    """``/proc/PID/maps``, of which Breakpad keeps a copy: which memory holds code."""

    def __init__(self, text: str) -> None:
        """Lines that are none of it are passed over."""
        found: list[tuple[int, int, bool]] = []
        for match in _MAPPING.finditer(text):
            low, high = int(match[1], 16), int(match[2], 16)
            if low < high and len(found) < _MOST_MAPPINGS:
                found.append((low, high, match[5] == "x"))
        self._all = sorted(found)
        self._lows = [low for low, _, _ in self._all]

    def at(self, address: int) -> MemoryInfo | None:
        """The mapping that holds ``address``, in the words of Windows."""
        index = bisect_right(self._lows, address) - 1
        if index < 0 or address >= self._all[index][1]:
            return None
        low, high, runs = self._all[index]
        return MemoryInfo(low, low, 0, high - low, COMMITTED, _EXECUTABLE if runs else _READABLE, 0)
