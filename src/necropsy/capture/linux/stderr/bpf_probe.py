"""The log probe: a BPF program that copies what processes of a run have written to fd 2 into memory of that run.

The kernel runs the program when the write has been done (tracepoint ``sys_exit``), so no write waits for necropsy. If
all our processes are killed at once, the kernel drops it, and no other process notices.

All runs on a machine share one program, in any container, so its price for everything else does not grow with their
number: 30 to 90 nanoseconds for each system call, and nothing once the last run has ended. The program belongs to no
run: each holds a descriptor of it, and the kernel keeps it until the last one is closed.

* ``members``: process -> the runs that hear it: one, or two where one was started inside the other. The kernel forgets
  the entry when the process ends.
* ``rings``: run -> its memory. A run is named by the number of a map of its own, its ``token``. When the token is gone
  all processes of ours that served the run have ended, and a run that starts later removes what it left behind.

It takes CAP_BPF and CAP_PERFMON, Linux 5.13 or newer with type information (BTF), x86-64. To find the program of other
runs takes CAP_SYS_ADMIN; without it one run at a time, in each network namespace, has a program of its own.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import mmap
import os
import platform
import resource
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.linux.stderr import bpf
from necropsy.capture.linux.stderr import probe_program as program
from necropsy.capture.linux.supervise.traced_processes import status_of

VMLINUX = Path("/sys/kernel/btf/vmlinux")
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_MEMBER = struct.Struct("<III")
_STRUCT = 4
_PIECE = 64 * 1024


def member_offset(structure: str, member: str, file: Path = VMLINUX) -> int:
    """Offset of ``member`` in ``structure``, in bytes. Raises OSError for the file, LookupError if not found."""
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        header = os.pread(handle, _HEADER.size, 0)
        if len(header) < _HEADER.size:
            raise LookupError("no type information")
        magic, _, _, length, types, types_size, strings, strings_size = _HEADER.unpack(header)
        if magic != 0xEB9F:
            raise LookupError("no type information")
        types, strings = types + length, strings + length
        names = [_name(handle, strings, strings + strings_size, one) for one in (structure, member)]
        for at in _found(handle, struct.pack("<I", names[0]), types, types + types_size):
            _, info, _ = _TYPE.unpack(os.pread(handle, _TYPE.size, at).ljust(_TYPE.size, b"\0"))
            if (at - types) % 4 or info >> 24 & 0x1F != _STRUCT:
                continue
            members = os.pread(handle, _MEMBER.size * (info & 0xFFFF), at + _TYPE.size)
            for name, _, bits in _MEMBER.iter_unpack(members[: len(members) // _MEMBER.size * _MEMBER.size]):
                if name == names[1]:
                    return int(bits & 0xFFFFFF) // 8  # the rest is the size of a bit field, where there is one
    finally:
        os.close(handle)
    raise LookupError(f"no {structure}.{member}")


def _name(handle: int, begin: int, end: int, name: str) -> int:
    for at in _found(handle, b"\0" + name.encode() + b"\0", begin, end):
        return at + 1 - begin
    raise LookupError(f"no name {name}")


def _found(handle: int, pattern: bytes, begin: int, end: int) -> Iterator[int]:
    while begin + len(pattern) <= end:
        piece = os.pread(handle, min(_PIECE, end - begin), begin)
        at = piece.find(pattern)
        while at >= 0:
            yield begin + at
            at = piece.find(pattern, at + 1)
        if len(piece) < len(pattern):
            return
        begin += len(piece) - len(pattern) + 1


MOST, SIZE = program.MOST, program.SIZE
TOLERATED = 16
"""The memory of so many runs that have ended (5 MB) is removed by the next one; of fewer, with the last run."""
_MOST_RUNS = 4096
_MEMORY = program.DATA + SIZE + MOST
_KEY = struct.Struct("<I")
_RUNS = struct.Struct(f"<{program.SLOTS}I")
_CAP_SYS_ADMIN, _CAP_PERFMON, _CAP_BPF = 21, 38, 39


def is_allowed() -> bool:
    """Have we the capabilities, and is the machine one that the program is written for?"""
    capabilities = int(status_of(os.getpid()).get("CapEff", "0"), 16)

    def has(number: int) -> bool:
        return bool(capabilities >> number & 1)

    return platform.machine() == "x86_64" and (has(_CAP_SYS_ADMIN) or (has(_CAP_BPF) and has(_CAP_PERFMON)))


@dataclass
class BpfProbe:
    """What the added processes write to fd 2, as long as one process has its descriptors open.

    ``members`` and ``run`` are what code in C needs to add a process (``csrc/probe.h``).
    """

    members: int
    run: int
    link: int
    _rings: int
    _token: int
    _memory: mmap.mmap
    _lock: _socket.socket | None = field(default=None, repr=False)

    @classmethod
    def open(cls, name: str = "") -> BpfProbe:
        """Join this machine's program ``name``, or load it, and begin. Raises OSError if the kernel refuses."""
        with contextlib.suppress(OSError, ValueError):
            # Before Linux 5.11 the maps count as locked memory. This process alone gets more of it.
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with contextlib.ExitStack() as opened:

            def ours(descriptor: int) -> int:
                opened.callback(os.close, descriptor)
                return descriptor

            name = name or program.NAME
            ring = ours(bpf.create_map(bpf.ARRAY, (4, _MEMORY), 1, bpf.MMAPABLE, name="necropsy_ring"))
            token = ours(bpf.create_map(bpf.ARRAY, (4, 4), 1, 0, name="necropsy_run"))
            memory = mmap.mmap(ring, _MEMORY, mmap.MAP_SHARED, mmap.PROT_READ)
            shared, lock = _join_or_load(name, ring)
            for descriptor in shared:
                ours(descriptor)
            if lock is not None:
                opened.callback(lock.close)
            link, members, rings = shared
            run = bpf.map_id(token)
            _sweep(rings)
            bpf.update(rings, _KEY.pack(run), _KEY.pack(ring))
            opened.pop_all()
        os.close(ring)  # the map of rings keeps it
        return cls(members, run, link, rings, token, memory, lock)

    def add(self, pid: int) -> None:
        """Hear this process, too, by its id in our namespace, with its threads, but not its children.

        When another thread than its first executes a program, it has to be added again.
        """
        with contextlib.suppress(OSError), _opened(pid) as process:  # no memory: that one is not heard
            key = _KEY.pack(process)
            try:
                bpf.update(self.members, key, _RUNS.pack(self.run, 0), only_new=True)
            except FileExistsError:  # it is heard by the run that this one was started in, or was added before
                first, _ = _RUNS.unpack(bpf.lookup(self.members, key, _RUNS.size))
                if first != self.run:
                    bpf.update(self.members, key, _RUNS.pack(first, self.run))

    def remove(self, pid: int) -> None:
        """Hear it no longer. The kernel does this by itself when a process ends."""
        with contextlib.suppress(OSError), _opened(pid) as process:  # it was not heard
            key = _KEY.pack(process)
            runs = _RUNS.unpack(bpf.lookup(self.members, key, _RUNS.size))
            others = [run for run in runs if run not in {0, self.run}]
            if others:
                bpf.update(self.members, key, _RUNS.pack(others[0], 0))
            else:
                bpf.delete(self.members, key)

    def close(self) -> None:
        """The run has ended: what was heard is forgotten, by the other processes of the run too."""
        with contextlib.suppress(OSError):
            bpf.delete(self._rings, _KEY.pack(self.run))
        for descriptor in (self.members, self.link, self._rings, self._token):
            os.close(descriptor)
        if self._lock is not None:
            self._lock.close()
        self._memory.close()

    @property
    def missed(self) -> int:
        """How many writes could not be read."""
        return int(struct.unpack_from("<Q", self._memory, program.MISSED)[0])

    def tail(self) -> bytes:
        """The last of what was written, oldest first."""
        total = int(struct.unpack_from("<Q", self._memory, 0)[0])
        data = self._memory[program.DATA : program.DATA + SIZE]
        if total <= SIZE:
            return data[:total]
        beyond = self._memory[program.DATA + SIZE : program.DATA + SIZE + MOST]
        last, before = struct.unpack_from("<QQ", self._memory, program.OVERFLOW)
        at = total % SIZE
        return beyond[at:before] + data[max(at, before) :] + beyond[:last] + data[last:at]


@contextlib.contextmanager
def _opened(pid: int) -> Iterator[int]:
    """A descriptor of the process. Raises OSError where there is no such process, or no descriptor left."""
    process = os.pidfd_open(pid)
    try:
        yield process
    finally:
        os.close(process)


_Shared = tuple[int, int, int]
"""Descriptors: the link, the map of members, the map of rings."""


def _join_or_load(name: str, ring: int) -> tuple[_Shared, _socket.socket | None]:
    try:
        found = _join(name)
    except PermissionError:  # without CAP_SYS_ADMIN
        lock = _only_one(name)
        try:
            return _load(name, ring), lock
        except OSError:
            lock.close()
            raise
    if found is not None:
        return found, None
    loaded = _load(name, ring)
    # Where several runs found none and loaded one each, all take the oldest.
    with contextlib.suppress(OSError):
        found = _join(name)
    if found is None:
        return loaded, None
    for descriptor in loaded:
        os.close(descriptor)
    return found, None


def _join(name: str) -> _Shared | None:
    for one in bpf.attached():
        # Whoever may load programs may call them what he likes: only root's and our own are trusted.
        maps = _maps(one.maps) if one.name == name and one.uid in {0, os.geteuid()} else None
        if maps is not None:
            return one.link, *maps
        os.close(one.link)
    return None


def _maps(numbers: tuple[int, ...]) -> tuple[int, int] | None:
    found: dict[int, int] = {}
    for number in numbers:
        with contextlib.suppress(OSError):
            descriptor = bpf.map_by_id(number)
            found[bpf.map_type(descriptor)] = descriptor
    if found.keys() == {bpf.TASK_STORAGE, bpf.HASH_OF_MAPS}:
        return found[bpf.TASK_STORAGE], found[bpf.HASH_OF_MAPS]
    for descriptor in found.values():
        os.close(descriptor)
    return None


def _load(name: str, ring: int) -> _Shared:
    try:
        group_leader = member_offset("task_struct", "group_leader")
    except (OSError, LookupError) as error:
        raise OSError(errno.EOPNOTSUPP, "this kernel does not describe its types (BTF)") from error
    with contextlib.ExitStack() as opened:

        def ours(descriptor: int) -> int:
            opened.callback(os.close, descriptor)
            return descriptor

        types = bpf.load_integer_types()
        try:
            members = ours(
                bpf.create_map(
                    bpf.TASK_STORAGE, (4, _RUNS.size), 0, bpf.NO_PREALLOC, name="necropsy_member", types=types
                )
            )
        finally:
            os.close(types)
        rings = ours(
            bpf.create_map(bpf.HASH_OF_MAPS, (4, 4), _MOST_RUNS, bpf.NO_PREALLOC, name="necropsy_rings", inner=ring)
        )
        loaded = bpf.load_program(program.code(members, rings, group_leader), program.LICENSE, name)
        try:
            link = bpf.attach(loaded, program.TRACEPOINT)
        finally:
            os.close(loaded)  # the link keeps it
        opened.pop_all()
    return link, members, rings


def _only_one(name: str) -> _socket.socket:
    """A lock that ends with its last process. Raises OSError: EBUSY where another run has it."""
    lock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0{name}")
    except OSError as error:
        lock.close()
        raise OSError(errno.EBUSY, "another run has the probe, and sharing it needs CAP_SYS_ADMIN") from error
    return lock


def _sweep(rings: int) -> None:
    """Remove the memory of runs whose supervisors are all gone, unless it is little: the kernel waits after that."""
    ended = [key for key in bpf.keys(rings, _KEY.size) if not bpf.has_map(_KEY.unpack(key)[0])]
    if len(ended) >= TOLERATED:
        bpf.delete_all(rings, ended)
