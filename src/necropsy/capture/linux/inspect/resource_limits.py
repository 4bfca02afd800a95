"""The limits that a process runs into, and how much of each is in use: setrlimit(2), its control groups, /dev/shm.

Sources: proc(5), ``Documentation/filesystems/proc.rst`` and ``Documentation/admin-guide/cgroup-v2.rst`` of the kernel.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from necropsy.capture.linux.supervise.traced_processes import status_of
from necropsy.formats import control_groups
from necropsy.model import Limit

_MOST_PROCESSES = 1024
"""Processes of all users that are looked at to count those of one."""
_STATUS = 1 << 14
"""More bytes than ``/proc/PID/status`` has."""
_WRITES = os.O_WRONLY | os.O_RDWR
_NAMES = {
    "Max address space": "RLIMIT_AS",
    "Max data size": "RLIMIT_DATA",
    "Max stack size": "RLIMIT_STACK",
    "Max cpu time": "RLIMIT_CPU",
    "Max file size": "RLIMIT_FSIZE",
    "Max processes": "RLIMIT_NPROC",
    "Max open files": "RLIMIT_NOFILE",
}
"""What ``/proc/PID/limits`` calls them."""


def in_use(pid: int, *, with_threads: bool = True) -> tuple[Limit, ...]:
    """Limits that are set for a running process, and their use; ``with_threads``: count all of its user's threads."""
    return (*_of_process(pid, with_threads=with_threads), *of_groups(pid), *shared_memory(pid))


# ---------------------------------------------------------------- setrlimit(2)


def _of_process(pid: int, *, with_threads: bool) -> Iterator[Limit]:
    status = status_of(pid)

    def size(name: str) -> int | None:
        value = status.get(name, "").split()
        return int(value[0]) * 1024 if value else None

    def threads() -> int | None:
        return threads_of_user(status.get("Uid", "").split()[:1]) if with_threads else None

    readers: dict[str, Callable[[], tuple[int | None, int | None]]] = {
        "RLIMIT_AS": lambda: (size("VmSize"), size("VmPeak")),
        "RLIMIT_DATA": lambda: (size("VmData"), None),
        "RLIMIT_STACK": lambda: (size("VmStk"), None),
        "RLIMIT_CPU": lambda: (_cpu_s(pid), None),
        "RLIMIT_NPROC": lambda: (threads(), None),
        "RLIMIT_NOFILE": lambda: (open_files(pid), None),
    }
    for one in of_process(pid):
        if one.name == "RLIMIT_FSIZE":
            path, largest = _largest_file(pid)
            yield msgspec.structs.replace(one, used=largest, where=path)
            continue
        used, peak = readers[one.name]()
        yield msgspec.structs.replace(one, used=used, peak=peak)


def of_process(pid: int) -> Iterator[Limit]:
    """Those of setrlimit(2) that are set, without what is in use."""
    for row in _text(f"/proc/{pid}/limits").splitlines():
        name = next((one for one in _NAMES if row.startswith(one + " ")), None)
        if name is None:
            continue
        soft, hard = (None if one == "unlimited" else int(one) for one in row[len(name) :].split()[:2])
        if soft is not None:
            yield Limit(name=_NAMES[name], limit=soft, hard=hard)


def _cpu_s(pid: int) -> int | None:
    """Whole seconds of CPU time of all its threads, as the kernel compares them with the limit.

    That is the clock for profiling, CPUCLOCK_PROF of ``include/linux/posix-timers.h``, which counts ticks; the times in
    ``/proc`` differ, by up to a fifth on a machine that shares its processors.
    """
    try:
        return int(time.clock_gettime(~pid << 3))
    except OSError:
        return None


def threads_of_user(uid: list[str], *, without: int | None = None) -> int | None:
    """What RLIMIT_NPROC counts: threads of all processes of the real user; None where there are too many.

    ``without``: a process whose threads are counted elsewhere.
    """
    processes = [entry.name for entry in os.scandir("/proc") if entry.name.isdigit() and entry.name != str(without)]
    if not uid or len(processes) > _MOST_PROCESSES:
        return None
    return sum(_threads_of(one, uid[0].encode()) for one in processes)


def _threads_of(pid: str, uid: bytes) -> int:
    """How many threads the process has; 0 where it is another user's, or gone. Hundreds are asked in a row."""
    try:
        handle = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(handle, _STATUS)
        finally:
            os.close(handle)
    except OSError:
        return 0
    _, _, after = text.partition(b"\nUid:")
    if after.split(None, 1)[:1] != [uid]:
        return 0
    _, _, count = after.partition(b"\nThreads:")
    return int(count.split(None, 1)[0]) if count else 0


def open_files(pid: int) -> int | None:
    """How many file descriptors it has; Linux 6.2 and later say it without a list."""
    try:
        # Often; Path takes longer.
        return os.stat(f"/proc/{pid}/fd").st_size or sum(1 for _ in os.scandir(f"/proc/{pid}/fd"))  # noqa: PTH116
    except OSError:
        return None


def _largest_file(pid: int) -> tuple[str | None, int | None]:
    """The largest of the regular files that are open for writing, and its bytes."""
    found: list[tuple[int, str]] = []
    try:
        opened = [int(entry.name) for entry in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return None, None
    for one in opened:
        flags = re.search(r"^flags:\s*([0-7]+)", _text(f"/proc/{pid}/fdinfo/{one}"), re.MULTILINE)
        path = f"/proc/{pid}/fd/{one}"
        try:
            if flags and int(flags[1], 8) & _WRITES and Path(path).is_file():
                found.append((Path(path).stat().st_size, os.readlink(path)))  # noqa: PTH115 - a name that may be gone
        except OSError:
            continue
    size, name = max(found, default=(None, None))
    return name, size


# ---------------------------------------------------------------- control groups


def of_groups(pid: int) -> Iterator[Limit]:
    """The limits of the process's control groups, and what is in use there."""
    memory, pids = (control_groups.folder_of(pid, controller) for controller in ("memory", "pids"))
    return control_groups.limits(memory, pids)


# ---------------------------------------------------------------- shared memory


def shared_memory(pid: int) -> Iterator[Limit]:
    """How much fits into ``/dev/shm`` as the process sees it, and what is there."""
    try:
        # As the process sees it: it may live in a container.
        devices = Path("/proc", str(pid), "root") / "dev"
        state = os.statvfs(devices / "shm")
        if (devices / "shm").stat().st_dev == devices.stat().st_dev:
            return  # no file system of its own
    except OSError:
        return
    if state.f_blocks:
        size = state.f_frsize
        used = (state.f_blocks - state.f_bfree) * size
        yield Limit(name="/dev/shm", limit=state.f_blocks * size, used=used, where="/dev/shm")  # noqa: S108 - told


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
