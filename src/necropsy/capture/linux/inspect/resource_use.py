"""What a running process uses of its resources: memory, threads, descriptors, mappings, and what its limits count.

Cheap readings are made at each look. Those that take long, or hold the process up (``/proc/PID/maps`` takes its memory
lock), are made less often, and once more when it ends. Peaks that the kernel keeps itself (``VmHWM``, ``VmPeak``) are
free of sampling error.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from necropsy.capture.linux.inspect import resource_limits
from necropsy.capture.linux.inspect.time_budget import TimeBudget
from necropsy.formats import control_groups
from necropsy.model import Limit, ResourceUse

if TYPE_CHECKING:  # loaded when a process runs Python
    from necropsy.capture.linux.inspect.python_heap import PythonHeap

_FIELD = re.compile(rb"^(VmSize|VmPeak|VmHWM|VmData|VmSwap|RssAnon|RssFile|RssShmem|Threads):\s+(\d+)", re.MULTILINE)
_RSS_AND_PSS = re.compile(rb"^(Rss|Pss):\s+(\d+)", re.MULTILINE)
_CUDA, _PYTHON = b"/libcuda.so", b"python3."
_TRIES = 3
"""How often an interpreter's heap is looked for: at first the program may be at its beginning."""
_STATUS, _CHUNK = 1 << 14, 1 << 20
_SELDOM_S, _LENT_S, _SHARE = 0.5, 0.03, 1 / 1500
"""The dear readings: at most so often, and for at most so much CPU time at first, and of the time that passes."""
_MAP_COUNT = "/proc/sys/vm/max_map_count"
_RESOURCE_RIGHTS = 1 << 21 | 1 << 24
"""CAP_SYS_ADMIN and CAP_SYS_RESOURCE: with one of them RLIMIT_NPROC does not hold."""
_FIELDS = tuple(name for name in ResourceUse.__struct_fields__ if name != "at")
_HALF = 0.5


class ResourceReader:
    """The readings of one process, and the most of each that they have seen."""

    def __init__(self, pid: int, budget: TimeBudget | None = None) -> None:
        """``budget``: of the dear readings of several processes together."""
        self.pid = pid
        self._budget = budget if budget is not None else dear_readings()
        folder = control_groups.folder_of(pid, "memory")
        self._group = control_groups.file_of_memory_in_use(folder) if folder is not None else None
        self._group_peak = control_groups.file_of_most_memory(folder) if folder is not None else None
        self._group_before = _number(str(self._group_peak)) if self._group_peak is not None else None
        """The kernel's peak of the group when the process was first seen: one that others may have reached."""
        self._next_dear = 0.0
        self.dear_s = 0.0
        """The CPU time that the dear readings took, which have a budget of their own."""
        self._limits: dict[str, Limit] = {}
        self._in_use: dict[str, int] = {}
        self._most: dict[str, int] = {}
        """Of limits: what is in use of each, and the most that was."""
        self._shm_folder = str(Path("/proc", str(pid), "root", "dev", "shm"))
        """As the process sees it."""
        self._peaks: dict[str, int] = {}
        self._others: int | None = None
        """Threads of its user in other processes, when they were last counted."""
        self._peak_at = 0.0
        self.has_cuda = False
        """NVIDIA's driver library was seen among its mappings."""
        self._python: PythonHeap | None = None
        self._tries = _TRIES
        """How often its interpreter is still looked for."""

    def look(self, at: float, *, last: bool = False, gpu: int | None = None) -> ResourceUse:
        """What is in use now; ``at``: seconds after its start; ``last``: all of it. Raises OSError if it is gone.

        ``gpu``: what it has of the GPUs' memory, which is read elsewhere.
        """
        status = {name.decode(): int(value) for name, value in _FIELD.findall(_read(f"/proc/{self.pid}/status"))}
        if "VmSize" not in status:
            raise ProcessLookupError(self.pid)
        is_dear = last or time.monotonic() >= self._next_dear
        minor, major = _faults(self.pid) if is_dear else (None, None)
        mappings = self._dear_ones(status.get("Threads")) if is_dear else None
        python_heap, most = self._python.read() if is_dear and self._python is not None else (None, None)
        sizes = {name: value << 10 for name, value in status.items() if name != "Threads"}
        parts = [sizes.get(name) for name in ("RssAnon", "RssFile", "RssShmem")]
        use = ResourceUse(
            at=round(at, 3),
            rss=sum(part or 0 for part in parts),
            anonymous=parts[0],
            file=parts[1],
            shared=parts[2],
            swap=sizes.get("VmSwap"),
            address_space=sizes["VmSize"],
            data=sizes.get("VmData"),
            threads=status.get("Threads"),
            descriptors=resource_limits.open_files(self.pid),
            mappings=mappings,
            group=_number(str(self._group)) if self._group is not None else None,
            shm=self._shared_memory(),
            gpu=gpu,
            minor_faults=minor,
            major_faults=major,
            python_heap=python_heap,
        )
        self._count(use, sizes)
        if most is not None:
            self._peaks["python_heap"] = max(self._peaks["python_heap"], most)
        return use

    def peaks(self) -> ResourceUse:
        """The most of each that was seen."""
        return ResourceUse(at=self._peak_at, **self._peaks)

    def limits(self) -> tuple[Limit, ...]:
        """Those that are set, with the most of each that was seen."""
        found = []
        for name, one in self._limits.items():
            used = self._in_use.get(name, one.used)
            peak = max((n for n in (one.peak, self._most.get(name), used) if n is not None), default=None)
            found.append(msgspec.structs.replace(one, used=used, peak=peak))
        return tuple(found)

    # ------------------------------------------------------------ what is in use

    def _count(self, use: ResourceUse, sizes: dict[str, int]) -> None:
        if (use.rss or 0) > self._peaks.get("rss", -1):
            self._peak_at = use.at
        for name in _FIELDS:
            value = getattr(use, name)
            if value is not None:
                self._peaks[name] = max(value, self._peaks.get(name, 0))
        # These the kernel has kept.
        self._peaks["rss"] = max(self._peaks["rss"], sizes.get("VmHWM", 0))
        self._peaks["address_space"] = max(self._peaks["address_space"], sizes.get("VmPeak", 0))
        self._used("RLIMIT_AS", use.address_space, self._peaks["address_space"])
        self._used("RLIMIT_DATA", use.data)
        self._used("RLIMIT_NOFILE", use.descriptors)
        if self._others is not None and use.threads is not None:
            self._used("RLIMIT_NPROC", self._others + use.threads)
        self._used("vm.max_map_count", use.mappings)
        self._used("/dev/shm", use.shm)  # noqa: S108 - a name
        self._count_group(use.group)

    def _used(self, name: str, value: int | None, peak: int | None = None) -> None:
        if name in self._limits and value is not None:
            self._in_use[name] = value
            self._most[name] = max(self._most.get(name, 0), value, peak or 0)

    def _count_group(self, in_use: int | None) -> None:
        """Of the control group with the least room left, which may be one above the process's own."""
        for name in ("memory.max", "pids.max"):
            one = self._limits.get(name)
            if one is None or one.where is None:
                continue
            folder = Path(one.where).parent
            is_own = name == "memory.max" and self._group is not None and folder == self._group.parent
            used = in_use if is_own else control_groups.in_use(Path(one.where))
            if used is not None and name == "memory.max" and used > _HALF * one.limit:
                # File cache is dropped before anything is killed.
                used = max(used - control_groups.reclaimable(folder), 0)
            self._used(name, used)

    def _shared_memory(self) -> int | None:
        if "/dev/shm" not in self._limits:  # noqa: S108 - a name
            return None
        with contextlib.suppress(OSError):
            state = os.statvfs(self._shm_folder)
            return (state.f_blocks - state.f_bfree) * state.f_frsize
        return None

    # ------------------------------------------------------------ what takes longer

    def _dear_ones(self, threads: int | None) -> int | None:
        """How many mappings there are; the limits that are set now are read as well."""
        begun = time.thread_time()
        for one in self._set_now(threads):
            before = self._limits.get(one.name)
            if before is None or before.where != one.where:
                self._limits[one.name] = msgspec.structs.replace(one, peak=None)
            else:
                self._limits[one.name] = msgspec.structs.replace(before, limit=one.limit, hard=one.hard)
        count, has_python = self._mappings()
        if has_python and self._python is None and self._tries:
            self._find_python()
        self._count_peak_of_group()
        took_s = time.thread_time() - begun
        self.dear_s += took_s
        self._budget.spend(took_s)
        self._next_dear = time.monotonic() + max(_SELDOM_S, self._budget.pause_s())
        return count

    def _find_python(self) -> None:
        from necropsy.capture.linux.inspect.python_heap import PythonHeap

        self._tries -= 1
        with contextlib.suppress(LookupError, ValueError, OSError):
            self._python = PythonHeap(self.pid)

    def _count_peak_of_group(self) -> None:
        """What the kernel has kept, if it has risen since."""
        most = _number(str(self._group_peak)) if self._group_peak is not None else None
        if most is not None and self._group_before is not None and most > self._group_before:
            self._peaks["group"] = max(most, self._peaks.get("group", 0))

    def _set_now(self, threads: int | None) -> list[Limit]:
        found = [*resource_limits.of_groups(self.pid), *resource_limits.shared_memory(self.pid)]
        for one in resource_limits.of_process(self.pid):
            if one.name in {"RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_NOFILE"}:
                found.append(one)
            elif one.name == "RLIMIT_NPROC" and (uid := self._limited_user()) is not None:
                # Its own threads were counted a moment before, and some may have begun since.
                self._others = resource_limits.threads_of_user([uid], without=self.pid)
                used = self._others + threads if self._others is not None and threads is not None else None
                found.append(msgspec.structs.replace(one, used=used))
        with contextlib.suppress(OSError, ValueError):
            most = int(Path(_MAP_COUNT).read_text(encoding="ascii"))
            found.append(Limit(name="vm.max_map_count", limit=most, where=_MAP_COUNT))
        return found

    def _limited_user(self) -> str | None:
        """Its real user, if RLIMIT_NPROC holds for it."""
        text = _read(f"/proc/{self.pid}/status").decode("ascii", "replace")
        uid, rights = (
            re.search(r"^Uid:\s+(\d+)", text, re.MULTILINE),
            re.search(r"^CapEff:\s+(\w+)", text, re.MULTILINE),
        )
        if uid is None or uid[1] == "0" or rights is None or int(rights[1], 16) & _RESOURCE_RIGHTS:
            return None
        return uid[1]

    def _mappings(self) -> tuple[int | None, bool]:
        """How many there are, and whether Python is among them."""
        count, tail, has_python = 0, b"", False
        try:
            with open(f"/proc/{self.pid}/maps", "rb", buffering=0) as file:  # noqa: PTH123 - often; Path takes longer
                while chunk := file.read(_CHUNK):
                    count += chunk.count(b"\n")
                    self.has_cuda = self.has_cuda or _CUDA in tail + chunk
                    has_python = has_python or _PYTHON in tail + chunk
                    tail = (tail + chunk)[-100:]
        except OSError:
            return None, False
        return (count - tail.endswith(b"[vsyscall]\n")) or None, has_python  # that one is the kernel's own


def dear_readings() -> TimeBudget:
    """What they may take, for one process or for several together."""
    return TimeBudget(_LENT_S, _SHARE)


def _faults(pid: int) -> tuple[int | None, int | None]:
    """Page faults of all its threads, also of those that have ended: minor and major ones."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # After the name in parentheses, which may itself hold parentheses and spaces: fields 10 and 12 of proc(5).
        fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
        return int(fields[7]), int(fields[9])
    return None, None


def resident(pid: int) -> int | None:
    """Resident memory in bytes; None of a process that has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_read(f"/proc/{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE") or None
    return None


def count_of_threads(pid: int) -> int:
    """How many there are: the kernel counts them as links of the folder (``proc_task_getattr``). 0: it is gone."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116 - often; Path takes longer
    return 0


def resident_and_proportional(pid: int) -> tuple[int, int] | None:
    """Resident memory, and the same with each shared page divided among those that share it. It takes milliseconds."""
    with contextlib.suppress(OSError):
        found = dict(_RSS_AND_PSS.findall(_read(f"/proc/{pid}/smaps_rollup")))
        if len(found) == 2:
            return int(found[b"Rss"]) << 10, int(found[b"Pss"]) << 10
    return None


def _number(path: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(_read(path))
    return None


def _read(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, _STATUS)
    finally:
        os.close(handle)
