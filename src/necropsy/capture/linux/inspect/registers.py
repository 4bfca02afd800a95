"""The registers of a thread: of one that is ptrace-stopped, and as a core has them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from necropsy.capture.process.memory import Registers
from necropsy.formats.processors import X86_64, Processor


def parse(raw: bytes, processor: Processor = X86_64) -> Registers:
    """The registers of NT_PRSTATUS, or as ``ptrace.getregset`` gives them. Raises struct.error for too few bytes."""
    return Registers(processor.parse(raw), processor)


def pack(now: Registers) -> bytes:
    """Those of NT_PRSTATUS as bytes."""
    return now.processor.pack(now.values)


def read(tid: int) -> Registers:
    """The registers of a thread; raises OSError unless this process has ptrace-stopped it."""
    from necropsy.capture.linux.supervise import ptrace  # not at import: a core is read on other systems too

    raw = _taken.get((GENERAL, tid)) or ptrace.getregset(tid)
    if len(raw) != ptrace.REGISTERS_SIZE:
        raise OSError(f"registers of thread {tid}: it does not run 64-bit code")
    return parse(raw, ptrace.HERE)


def read_floating(tid: int) -> bytes:
    """Its floating-point and vector registers (NT_FPREGSET); raises OSError unless it is stopped by us."""
    from necropsy.capture.linux.supervise import ptrace

    return _taken.get((FLOATING, tid)) or ptrace.getfpregs(tid)


GENERAL, FLOATING = 1, 2
"""The kernel's notes, NT_PRSTATUS and NT_PRFPREG."""
Taken = dict[tuple[int, int], bytes]
"""What was read of stopped threads, by note and thread."""
_taken: Taken = {}


def take(tids: Iterable[int], *, floating: int) -> Taken:
    """The registers of stopped threads, for another process to use; of the first ``floating`` the vector ones too."""
    from necropsy.capture.linux.supervise import ptrace

    found: Taken = {}
    for place, tid in enumerate(tids):
        with contextlib.suppress(OSError):
            found[GENERAL, tid] = ptrace.getregset(tid)
            if place < floating:
                found[FLOATING, tid] = ptrace.getfpregs(tid)
    return found


def hand_over(taken: Taken) -> None:
    """In this process, which traces nobody, ``read`` answers with what another process has taken."""
    _taken.clear()
    _taken.update(taken)
