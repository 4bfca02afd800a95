"""Recover the fault behind a signal that a handler raised again, where no tracer saw the fault itself.

That is so in a core, and after a late attach. The kernel saves the interrupted registers on the stack when it starts a
handler: ``struct rt_sigframe`` of x86-64 (``setup_rt_frame`` in arch/x86/kernel/signal_64.c). It saves the signal's
information only for handlers installed with SA_SIGINFO, which the one of faulthandler is not. Without it, the fault is
derived from the trap number and the instruction.

The frame of a handler that was left by siglongjmp() can still be in memory. A frame therefore counts only if its
handler is proved to be running: it runs on the alternate stack and the interrupted code does not, or unwinding reaches
the frame.
"""

from __future__ import annotations

import signal
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from necropsy.capture.linux.inspect import registers
from necropsy.capture.linux.inspect.target import Target
from necropsy.capture.linux.supervise.crash_context import FirstChance
from necropsy.capture.process import fault_instruction
from necropsy.capture.process.memory import Memory, Registers
from necropsy.capture.process.native_stack import NativeStack
from necropsy.formats import siginfo
from necropsy.formats.siginfo import SI_KERNEL, SigInfo

_REACH = 256 * 1024
"""How far above the stack pointer of a handler's callee its signal frame is looked for, in bytes."""
_LONGEST_S = 1.0
_MOST_FRAMES = 512
_SEGMENTS = struct.pack("<4H", 0x33, 0, 0, 0x2B)
"""``cs``, ``gs``, ``fs`` and ``ss`` of 64-bit code."""
_TO_SEGMENTS, _TO_INFO, _INFO_SIZE = 184, 304, 128
"""From ``ucontext`` to these words, and to the ``siginfo_t`` behind it, in bytes."""
_STACK = struct.Struct("<16xQi4xQ")
"""``uc_stack``: where it begins, its flags, its size."""
_CONTEXT = struct.Struct("<40x18Q8xQQ8xQ")
_GENERAL = (
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
    *("rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip", "eflags"),
)
"""The first members of ``struct sigcontext``."""
_SS_DISABLE = 2
_LAST_TRAP = 32
_FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP})
_DIVIDE, _INVALID_OPCODE, _PROTECTION, _PAGE_FAULT = 0, 6, 13, 14
"""Traps of the processor (arch/x86/include/asm/trapnr.h)."""
_MAPERR, _ACCERR, _ADRERR, _INTDIV, _ILLOPN = 1, 2, 2, 1, 2
_LOWEST_WRONG, _HIGHEST_WRONG = 1 << 47, (1 << 64) - (1 << 47)
"""Addresses from the first one to before the second one are not canonical."""
_LONGEST_INSTRUCTION = 15
_MOST_CODES = 16


@dataclass(frozen=True)
class _Record:
    """``at``: the address of its ``ucontext``."""

    at: int
    info: bytes | None
    """None if the handler was installed without SA_SIGINFO."""
    values: dict[str, int]
    trap: int
    address: int
    """The last one that could not be read or written (``cr2``)."""
    on_other_stack: bool


def find(
    target: Target, now: Registers, died_of: SigInfo, tid: int, unwind: Callable[[Registers, float], NativeStack]
) -> FirstChance | None:
    """The first fault of the processor whose handler is still running; ``unwind`` takes registers and a deadline."""
    records = list(_records(target.memory, now))
    if not all(one.on_other_stack for one in records):
        out = unwind(now, time.monotonic() + _LONGEST_S)
        kept = (at for at in range(min(len(out), _MOST_FRAMES)) if out.pointers.keeps(at))
        reached = {out.pointers[at] for at in kept if out.recovered.get(at) != "scan"}
        records = [one for one in records if one.on_other_stack or one.at in reached]
    for one in reversed(records):
        then = Registers({**now.values, **one.values})
        info = one.info or _by_trap(target, one, then, died_of.number)
        if info is not None:
            return FirstChance(tid=tid, siginfo=info, registers=registers.pack(then))
    return None


def _by_trap(target: Target, one: _Record, then: Registers, died_of: int) -> bytes | None:
    """The ``siginfo_t`` of a fault; None if the interrupted instruction cannot have caused it.

    The kernel saves the last trap number with any signal, so it counts only if the instruction agrees with it.
    """
    instruction = fault_instruction.decode(target.memory.some(then.pc, _LONGEST_INSTRUCTION), then)
    name = instruction.mnemonic or ""
    addresses = [part.address for part in instruction.operands if part.address is not None]
    if one.trap == _PAGE_FAULT and fault_instruction.access(instruction, one.address, then.pc) is not None:
        if died_of == signal.SIGBUS:
            return _siginfo(died_of, _ADRERR, one.address)
        return _siginfo(signal.SIGSEGV, _MAPERR if target.maps.at(one.address) is None else _ACCERR, one.address)
    if one.trap == _PROTECTION and any(_LOWEST_WRONG <= at < _HIGHEST_WRONG for at in addresses):
        return _siginfo(signal.SIGSEGV, SI_KERNEL, 0)
    if one.trap == _DIVIDE and died_of == signal.SIGFPE and name in {"div", "idiv"}:
        return _siginfo(died_of, _INTDIV, then.pc)
    if one.trap == _INVALID_OPCODE and died_of == signal.SIGILL:
        return _siginfo(died_of, _ILLOPN, then.pc)
    return None


def _siginfo(number: int, code: int, address: int) -> bytes:
    return struct.pack("<iii4xQ", number, 0, code, address).ljust(_INFO_SIZE, b"\0")


def _records(memory: Memory, now: Registers) -> Iterator[_Record]:
    """Those that may be one, the last fault first."""
    stack = memory.some(now.sp, _REACH)
    place = stack.find(_SEGMENTS)
    while place >= 0:
        record = _parsed(memory, now, now.sp + place - _TO_SEGMENTS)
        if record is not None:
            yield record
        place = stack.find(_SEGMENTS, place + 1)


def _parsed(memory: Memory, now: Registers, at: int) -> _Record | None:
    raw = memory.exactly(at, _TO_INFO + _INFO_SIZE)
    if raw is None or at % 8:
        return None
    *general, _error, trap, address = _CONTEXT.unpack_from(raw)
    info = raw[_TO_INFO:]
    said = siginfo.decode(info)
    if trap > _LAST_TRAP:
        return None
    # Without SA_SIGINFO, the kernel wrote nothing here, and these bytes are arbitrary.
    agrees = (
        said.address == address if trap == _PAGE_FAULT else said.code_number < _MOST_CODES or said.code == "SI_KERNEL"
    )
    is_fault = said.number in _FAULTS and said.code_number > 0 and agrees
    values = dict(zip(_GENERAL, general, strict=True))
    low, flags, size = _STACK.unpack_from(raw)
    inside = [low <= one < low + size for one in (at, now.sp, values["rsp"])]
    return _Record(
        at,
        info if is_fault else None,
        values,
        trap,
        address,
        on_other_stack=not flags & _SS_DISABLE and inside == [True, True, False],
    )
