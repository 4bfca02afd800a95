"""BPF instructions of the log probe: at the end of a system call, copy what was written to fd 2 into its run's ring.

Helpers that read memory are for programs under a license that the GPL allows, so this one file is under MIT or GPL-2.0,
as you like, besides Apache-2.0.
"""

from __future__ import annotations

from necropsy.capture.linux.stderr import bpf

SIZE = 256 * 1024
"""Of all writes of a run, the last bytes: a power of two."""
MOST = 64 * 1024
"""Of one write, its last bytes."""
_VECTORS = 8
"""Of one writev, so many pieces are read."""
DATA = 64
"""A ring begins with two counters (bytes, unreadable writes), and how many bytes went beyond its end the last time
that it was full, and the time before. The data follow, and room for what goes beyond."""
MISSED, OVERFLOW = 8, 16
SLOTS = 2
"""So many runs hear one process: where one run is started inside another, both."""
LICENSE = b"Dual MIT/GPL"
TRACEPOINT = "sys_exit"
NAME = "necropsy584f8da"
"""The program's name in the kernel ends with the SHA-256 of its instructions: runs with the same ones share it."""

_LOOKUP, _READ_USER, _READ_KERNEL, _TASK_STORAGE, _CURRENT_TASK = 1, 112, 113, 156, 158
"""bpf_map_lookup_elem, bpf_probe_read_user, _read_kernel, bpf_task_storage_get, bpf_get_current_task_btf."""
_WRITE, _WRITEV = 1, 20
_MOST_WRITTEN = 0x7FFFFFFF
"""No write is longer. Masking with it lets the verifier see one case on all ways, in half the time."""
_DX, _REGISTERS = 96, 32
"""Where ``struct pt_regs`` has rdx, rsi, rdi and orig_rax: 32 bytes."""


def code(members: int, rings: int, group_leader: int) -> bytes:
    """The instructions.

    ``members``: map of processes to runs; ``rings``: map of runs to their memory; ``group_leader``: the offset of that
    member in ``struct task_struct``. r6: the rest of a writev, r7: where the bytes are, r8: how many, r9: the memory.
    """
    one = bpf.Assembler()
    # A system call that wrote something: its number and arguments.
    one.read(8, 1, 8)
    one.if_value(bpf.SLE, 8, 0, "end")
    one.read(3, 1, 0)
    one.plus(3, _DX)
    one.copy(1, bpf.FRAME)
    one.plus(1, -_REGISTERS)
    one.load(2, _REGISTERS)
    one.call(_READ_KERNEL)
    one.read(1, bpf.FRAME, -8)
    one.if_value(bpf.EQ, 1, _WRITE, "to stderr?")
    one.if_value(bpf.NE, 1, _WRITEV, "end")
    one.label("to stderr?")
    one.add(0x61, 1, bpf.FRAME, -16)  # the kernel looks at no more than 32 bits of a file descriptor
    one.if_value(bpf.NE, 1, 2, "end")
    one.store(bpf.FRAME, -104, 8)
    # By a process of a run: what is kept about the first thread of the one that runs now.
    one.call(_CURRENT_TASK)
    one.read(2, 0, group_leader)
    one.load_map(1, members)
    one.load(3, 0)
    one.load(4, 0)
    one.call(_TASK_STORAGE)
    one.if_value(bpf.EQ, 0, 0, "end")
    one.store(bpf.FRAME, -96, 0)
    for slot in range(SLOTS):
        _keep(one, slot, rings)
        one.label(f"next {slot}")
    one.label("end")
    one.load(0, 0)
    one.add(0x95)
    return one.bytes()


def _keep(one: bpf.Assembler, slot: int, rings: int) -> None:
    """Keep the write in the ring of this slot's run; the slot may be empty, and the run may have ended."""
    one.read(2, bpf.FRAME, -96)
    one.plus(2, 4 * slot)
    if slot:  # most processes are heard by one run
        one.add(0x61, 1, 2)
        one.if_value(bpf.EQ, 1, 0, f"next {slot}")
    one.load_map(1, rings)
    one.call(_LOOKUP)
    one.if_value(bpf.EQ, 0, 0, f"next {slot}")
    one.copy(1, 0)
    one.add(0x62, bpf.FRAME, 0, -48, 0)
    one.copy(2, bpf.FRAME)
    one.plus(2, -48)
    one.call(_LOOKUP)
    one.if_value(bpf.EQ, 0, 0, f"next {slot}")
    one.copy(9, 0)
    one.read(8, bpf.FRAME, -104)
    one.add(0x57, 8, value=_MOST_WRITTEN)
    one.read(7, bpf.FRAME, -24)
    one.read(1, bpf.FRAME, -8)
    one.if_value(bpf.EQ, 1, _WRITEV, f"vector {slot}")
    _copy(one, f"all {slot}")
    one.jump(f"next {slot}")
    one.label(f"vector {slot}")
    one.copy(6, 8)
    one.store(bpf.FRAME, -56, 7)
    for number in range(_VECTORS):
        place = f"{number} of {slot}"
        one.copy(1, bpf.FRAME)
        one.plus(1, -72)
        one.load(2, 16)
        one.read(3, bpf.FRAME, -56)
        one.plus(3, 16 * number)
        one.call(_READ_USER)
        one.if_value(bpf.NE, 0, 0, f"missed {slot}")
        one.read(7, bpf.FRAME, -72)
        one.read(8, bpf.FRAME, -64)
        one.if_register(bpf.LE, 8, 6, f"fits {place}")
        one.copy(8, 6)
        one.label(f"fits {place}")
        one.if_value(bpf.EQ, 8, 0, f"after {place}")
        one.minus_register(6, 8)
        _copy(one, place)
        one.label(f"after {place}")
        one.add(0x57, 6, value=_MOST_WRITTEN)
        one.if_value(bpf.EQ, 6, 0, f"next {slot}")
    one.label(f"missed {slot}")
    _count_missed(one)


def _copy(one: bpf.Assembler, name: str) -> None:
    """r8 bytes at r7 to the ring; of more than ``MOST`` their last.

    They stay in one piece: what goes beyond the ring's end (``OVERFLOW``) is put at its beginning by the reader.
    """
    one.if_value(bpf.LE, 8, MOST, f"short {name}")
    one.plus_register(7, 8)
    one.plus(7, -MOST)
    one.load(8, MOST)
    one.label(f"short {name}")
    one.copy(1, 8)
    one.add(0xDB, 9, 1, 0, 0x01)  # r1 = what was written before; it is raised by r1 at the same moment
    one.add(0x57, 1, value=SIZE - 1)
    one.store(bpf.FRAME, -80, 1)
    one.plus_register(1, 9)
    one.plus(1, DATA)
    one.copy(2, 8)
    one.copy(3, 7)
    one.call(_READ_USER)
    one.if_value(bpf.EQ, 0, 0, f"read {name}")
    _count_missed(one)
    one.label(f"read {name}")
    one.read(1, bpf.FRAME, -80)
    one.plus_register(1, 8)
    one.plus(1, -SIZE)
    one.if_value(bpf.SLT, 1, 0, f"inside {name}")
    one.read(2, 9, OVERFLOW)
    one.store(9, OVERFLOW + 8, 2)
    one.store(9, OVERFLOW, 1)
    one.label(f"inside {name}")


def _count_missed(one: bpf.Assembler) -> None:
    one.load(1, 1)
    one.add(0xDB, 9, 1, MISSED, 0x00)
