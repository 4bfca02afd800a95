"""The log probe: a BPF program that copies what processes of the run have written to fd 2 into memory of ours.

Nothing of ours stands in the way of such a write: the kernel runs the program when the write has been done (tracepoint
``sys_exit``). Where our processes are killed, all of them at once too, the kernel throws it away, and nobody else
notices. Its price is paid by every system call of the machine: about 0.1 microseconds. It takes CAP_BPF and CAP_PERFMON
(or CAP_SYS_ADMIN), Linux 5.12 or newer (atomic operations), x86-64.

``bpf(2)``; numbers from the kernel's ``include/uapi/linux/bpf.h``. Helpers that read memory are for programs under a
license that the GPL allows, so this one file is under MIT or GPL-2.0, as you like, besides Apache-2.0.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import resource
import struct
from dataclasses import dataclass
from pathlib import Path

from necropsy.capture.linux.processes import status_of

SIZE = 256 * 1024
"""Of all writes, the last bytes: a power of two."""
MOST = 64 * 1024
"""Of one write, its last bytes."""
_VECTORS = 8
"""Of one writev, so many pieces are read."""
_PROCESSES = 65536
_DATA = 64
"""The memory begins with two counters (bytes, writes that could not be read); the data follow."""
_MISSED = 8

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_BPF = 321
_MAP_CREATE, _MAP_UPDATE, _MAP_DELETE, _PROG_LOAD, _RAW_TRACEPOINT_OPEN = 0, 2, 3, 5, 17
_HASH, _ARRAY = 1, 2
_NO_PREALLOC, _MMAPABLE = 1 << 0, 1 << 10
_RAW_TRACEPOINT = 17
_LICENSE = b"Dual MIT/GPL"
_ATTRIBUTES = 128
_CAP_SYS_ADMIN, _CAP_PERFMON, _CAP_BPF = 21, 38, 39

_LOOKUP, _READ_USER, _READ_KERNEL, _NS_PID = 1, 112, 113, 120
"""Helpers: bpf_map_lookup_elem, bpf_probe_read_user, bpf_probe_read_kernel, bpf_get_ns_current_pid_tgid."""
_WRITE, _WRITEV = 1, 20
_DX, _REGISTERS = 96, 32
"""Where ``struct pt_regs`` has rdx, rsi, rdi and orig_rax: 32 bytes."""
_FRAME = 10
_INSTRUCTION = struct.Struct("<BBhi")


class _Program:
    """An assembler of the few instructions that are needed."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int | str, int]] = []
        self._labels: dict[str, int] = {}

    def add(self, code: int, to: int = 0, by: int = 0, offset: int | str = 0, value: int = 0) -> None:
        self._code.append((code, to | by << 4, offset, value))

    def label(self, name: str) -> None:
        self._labels[name] = len(self._code)

    def copy(self, to: int, by: int) -> None:
        self.add(0xBF, to, by)

    def load(self, to: int, value: int) -> None:
        self.add(0xB7, to, value=value)

    def load_long(self, to: int, value: int) -> None:
        self.add(0x18, to, value=_signed(value & 0xFFFFFFFF))
        self.add(0x00, value=_signed(value >> 32))

    def load_map(self, to: int, descriptor: int) -> None:
        self.add(0x18, to, 1, value=descriptor)  # BPF_PSEUDO_MAP_FD
        self.add(0x00)

    def plus(self, to: int, value: int) -> None:
        self.add(0x07, to, value=value)

    def plus_register(self, to: int, by: int) -> None:
        self.add(0x0F, to, by)

    def minus_register(self, to: int, by: int) -> None:
        self.add(0x1F, to, by)

    def read(self, to: int, by: int, offset: int) -> None:
        self.add(0x79, to, by, offset)

    def store(self, to: int, offset: int, by: int) -> None:
        self.add(0x7B, to, by, offset)

    def jump(self, label: str) -> None:
        self.add(0x05, offset=label)

    def if_value(self, how: int, register: int, value: int, label: str) -> None:
        self.add(0x05 | how, register, offset=label, value=value)

    def if_register(self, how: int, register: int, other: int, label: str) -> None:
        self.add(0x0D | how, register, other, label)

    def call(self, helper: int) -> None:
        self.add(0x85, value=helper)

    def bytes(self) -> bytes:
        return b"".join(
            _INSTRUCTION.pack(
                code, registers, self._labels[offset] - place - 1 if isinstance(offset, str) else offset, value
            )
            for place, (code, registers, offset, value) in enumerate(self._code)
        )


_EQ, _GT, _GE, _NE, _SLE, _LE = 0x10, 0x20, 0x30, 0x50, 0xD0, 0xB0


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def _program(members: int, ring: int) -> bytes:
    """The instructions. ``members``: map of the run's processes, ``ring``: of the memory.

    r6 the rest that is left of a writev, r7 where the bytes are, r8 how many, r9 the memory.
    """
    namespace = Path("/proc/self/ns/pid").stat()
    one = _Program()
    # A system call that wrote something: its number and arguments.
    one.read(8, 1, 8)
    one.if_value(_SLE, 8, 0, "end")
    one.read(3, 1, 0)
    one.plus(3, _DX)
    one.copy(1, _FRAME)
    one.plus(1, -_REGISTERS)
    one.load(2, _REGISTERS)
    one.call(_READ_KERNEL)
    one.read(1, _FRAME, -8)
    one.if_value(_EQ, 1, _WRITE, "to stderr?")
    one.if_value(_NE, 1, _WRITEV, "end")
    one.label("to stderr?")
    one.add(0x61, 1, _FRAME, -16)  # the kernel looks at no more than 32 bits of a file descriptor
    one.if_value(_NE, 1, 2, "end")
    # By a process of the run, in our namespace of process ids.
    one.load_long(1, os.major(namespace.st_dev) << 20 | os.minor(namespace.st_dev))
    one.load_long(2, namespace.st_ino)
    one.copy(3, _FRAME)
    one.plus(3, -40)
    one.load(4, 8)
    one.call(_NS_PID)
    one.if_value(_NE, 0, 0, "end")
    one.load_map(1, members)
    one.copy(2, _FRAME)
    one.plus(2, -36)
    one.call(_LOOKUP)
    one.if_value(_EQ, 0, 0, "end")
    one.add(0x62, _FRAME, 0, -48, 0)
    one.load_map(1, ring)
    one.copy(2, _FRAME)
    one.plus(2, -48)
    one.call(_LOOKUP)
    one.if_value(_EQ, 0, 0, "end")
    one.copy(9, 0)
    one.read(7, _FRAME, -24)
    one.read(1, _FRAME, -8)
    one.if_value(_EQ, 1, _WRITEV, "vector")
    _copy(one, "all")
    one.jump("end")
    one.label("vector")
    one.copy(6, 8)
    one.store(_FRAME, -56, 7)
    for number in range(_VECTORS):
        after = f"after {number}"
        one.copy(1, _FRAME)
        one.plus(1, -72)
        one.load(2, 16)
        one.read(3, _FRAME, -56)
        one.plus(3, 16 * number)
        one.call(_READ_USER)
        one.if_value(_NE, 0, 0, "missed")
        one.read(7, _FRAME, -72)
        one.read(8, _FRAME, -64)
        one.if_register(_LE, 8, 6, f"fits {number}")
        one.copy(8, 6)
        one.label(f"fits {number}")
        one.if_value(_EQ, 8, 0, after)
        one.minus_register(6, 8)
        _copy(one, str(number))
        one.label(after)
        one.if_value(_EQ, 6, 0, "end")
    one.label("missed")
    _count_missed(one)
    one.label("end")
    one.load(0, 0)
    one.add(0x95)
    return one.bytes()


def _copy(one: _Program, name: str) -> None:
    """r8 bytes at r7 to the ring; of more than ``MOST`` their last."""
    one.if_value(_LE, 8, MOST, f"short {name}")
    one.plus_register(7, 8)
    one.plus(7, -MOST)
    one.load(8, MOST)
    one.label(f"short {name}")
    one.copy(1, 8)
    one.add(0xDB, 9, 1, 0, 0x01)  # r1 = what was written before; it is raised by r1 at the same moment
    one.add(0x57, 1, value=SIZE - 1)
    one.store(_FRAME, -80, 1)
    # Up to the end of the ring ...
    one.load(2, SIZE)
    one.minus_register(2, 1)
    one.if_register(_LE, 2, 8, f"wraps {name}")
    one.copy(2, 8)
    one.label(f"wraps {name}")
    one.store(_FRAME, -88, 2)
    one.copy(3, 7)
    one.copy(4, 1)
    one.copy(1, 9)
    one.plus_register(1, 4)
    one.plus(1, _DATA)
    one.if_value(_GT, 2, MOST, "end")  # cannot be, but the verifier does not know
    one.call(_READ_USER)
    one.if_value(_EQ, 0, 0, f"first {name}")
    _count_missed(one)
    one.label(f"first {name}")
    # ... and the rest from its beginning.
    one.read(1, _FRAME, -88)
    one.copy(2, 8)
    one.minus_register(2, 1)
    one.if_value(_EQ, 2, 0, f"done {name}")
    one.if_value(_GT, 2, MOST, "end")
    one.copy(3, 7)
    one.plus_register(3, 1)
    one.copy(1, 9)
    one.plus(1, _DATA)
    one.call(_READ_USER)
    one.label(f"done {name}")


def _count_missed(one: _Program) -> None:
    one.load(1, 1)
    one.add(0xDB, 9, 1, _MISSED, 0x00)


def _bpf(command: int, *fields: tuple[str, int]) -> int:
    data = struct.pack("<" + "".join(kind for kind, _ in fields), *(value for _, value in fields))
    attributes = ctypes.create_string_buffer(data, _ATTRIBUTES)
    got = _LIBC.syscall(ctypes.c_long(_BPF), ctypes.c_long(command), attributes, ctypes.c_ulong(_ATTRIBUTES))
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(got)


def _address(buffer: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.addressof(buffer)


def is_allowed() -> bool:
    """Have we the capabilities, and is the machine one that the program is written for?"""
    capabilities = int(status_of(os.getpid()).get("CapEff", "0"), 16)

    def has(number: int) -> bool:
        return bool(capabilities >> number & 1)

    return platform.machine() == "x86_64" and (has(_CAP_SYS_ADMIN) or (has(_CAP_BPF) and has(_CAP_PERFMON)))


@dataclass
class Probe:
    """What is written to fd 2 by the processes that were added. It lasts as long as one process has ``link`` open."""

    members: int
    link: int
    _memory: mmap.mmap

    @classmethod
    def open(cls) -> Probe:
        """Load the program and begin.

        Raises:
            OSError: the kernel does not want it, or is too old.

        """
        with contextlib.suppress(OSError, ValueError):
            # Before Linux 5.11 the maps count as locked memory. This process alone gets more of it.
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        opened: list[int] = []
        try:
            ring = _bpf(_MAP_CREATE, *(("I", one) for one in (_ARRAY, 4, _DATA + SIZE + MOST, 1, _MMAPABLE)))
            opened.append(ring)
            members = _bpf(_MAP_CREATE, *(("I", one) for one in (_HASH, 4, 4, _PROCESSES, _NO_PREALLOC)))
            opened.append(members)
            program = _load(_program(members, ring))
            opened.append(program)
            memory = mmap.mmap(ring, _DATA + SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
            name = ctypes.create_string_buffer(b"sys_exit")
            link = _bpf(_RAW_TRACEPOINT_OPEN, ("Q", _address(name)), ("I", program))
        except OSError:
            for one in opened:
                os.close(one)
            raise
        os.close(program)  # the link keeps it
        os.close(ring)  # the program keeps it
        return cls(members, link, memory)

    def add(self, pid: int) -> None:
        """From now on, this process too. Its threads are meant as well, its children are not."""
        key, value = (ctypes.create_string_buffer(struct.pack("<I", number), 4) for number in (pid, 1))
        with contextlib.suppress(OSError):  # no memory, or too many: that one is not heard
            _bpf(_MAP_UPDATE, ("I", self.members), ("I", 0), ("Q", _address(key)), ("Q", _address(value)), ("Q", 0))

    def remove(self, pid: int) -> None:
        """It has ended."""
        key = ctypes.create_string_buffer(struct.pack("<I", pid), 4)
        with contextlib.suppress(OSError):  # it was not heard
            _bpf(_MAP_DELETE, ("I", self.members), ("I", 0), ("Q", _address(key)))

    @property
    def missed(self) -> int:
        """How many writes could not be read."""
        return int(struct.unpack_from("<Q", self._memory, _MISSED)[0])

    def tail(self) -> bytes:
        """The last of what was written, oldest first."""
        total = int(struct.unpack_from("<Q", self._memory, 0)[0])
        data = self._memory[_DATA : _DATA + SIZE]
        at = total % SIZE
        return data[:total] if total <= SIZE else data[at:] + data[:at]


def _load(code: bytes) -> int:
    instructions = ctypes.create_string_buffer(code, len(code))
    license_ = ctypes.create_string_buffer(_LICENSE)
    return _bpf(
        _PROG_LOAD,
        ("I", _RAW_TRACEPOINT),
        ("I", len(code) // _INSTRUCTION.size),
        ("Q", _address(instructions)),
        ("Q", _address(license_)),
    )
