"""Breakpoints that a program runs into only because it sees a debugger. x86-64.

doctest, Catch2 and others read ``TracerPid`` in ``/proc/self/status``; where it is not 0, a failed check executes
``int3`` or raises SIGTRAP to stop a debugger there. A debugger's ``continue`` then goes on without the signal, and so
does this tracer: without it there would have been no signal.

Unlike a deliberate death, such a SIGTRAP has the default disposition, and the string ``TracerPid`` is in the module of
the breakpoint or in one of its callers.
"""

from __future__ import annotations

import signal
import struct

from necropsy.capture.linux.inspect import memory_map, registers
from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.traced_processes import has_signal, status_of

_STRING = b"TracerPid"
_SI_KERNEL, _SI_TKILL, _SI_USER, _TRAP_BRKPT = 0x80, -6, 0, 1
_CALLERS_REACH = 64 * 1024
"""How far above the stack pointer return addresses are looked for, in bytes."""
_WINDOW = 1 << 20
_MOST = 512 << 20
"""A larger module is not searched, in bytes."""

_Module = tuple[str, int]
"""Device and inode."""


_asks: dict[_Module, bool] = {}
"""What is known of a file."""


def is_for_debugger(pid: int, tid: int) -> bool:
    """Whether the SIGTRAP that ``tid`` is stopped at would not exist without a tracer: it is to be dropped.

    Never raises.
    """
    try:
        return _is(pid, tid)
    except (OSError, struct.error):
        return False  # it is gone, or cannot be read


def _is(pid: int, tid: int) -> bool:
    _, _, code, _, sender = struct.unpack_from("<5i", ptrace.getsiginfo(tid))
    if code not in {_SI_KERNEL, _TRAP_BRKPT} and not (code in {_SI_TKILL, _SI_USER} and sender == pid):
        return False
    status = status_of(tid)
    if not status or any(has_signal(status, name, signal.SIGTRAP) for name in ("SigCgt", "SigIgn")):
        return False
    now = registers.read(tid)
    mapped = memory_map.read(pid)
    with ProcessMemory(pid) as memory:
        stack = memory.some(now.sp, _CALLERS_REACH)
        places = struct.unpack(f"<{len(stack) // 8}Q", stack[: len(stack) // 8 * 8])
        modules: dict[_Module, None] = {}
        for place in (now.pc, *places):
            one = mapped.at(place)
            if one is not None and one.executable and one.is_file:
                modules.setdefault((one.device, one.inode))
        return any(_has_string(module, mapped, memory) for module in modules)


def _has_string(module: _Module, mapped: MemoryMap, memory: ProcessMemory) -> bool:
    if module not in _asks:
        parts = [one for one in mapped if (one.device, one.inode) == module and one.readable]
        _asks[module] = _is_in(parts, memory)
    return _asks[module]


def _is_in(parts: list[MapEntry], memory: ProcessMemory) -> bool:
    if sum(one.high - one.low for one in parts) > _MOST:
        return False
    for one in parts:
        for low in range(one.low, one.high, _WINDOW):
            if _STRING in memory.some(low, min(_WINDOW + len(_STRING) - 1, one.high - low)):
                return True
    return False
