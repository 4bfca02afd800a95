"""The machine: memory, processors, control groups, and what the kernel allows; all of it read from files of Linux."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from necropsy.formats import control_groups
from necropsy.model import Limit, Machine, Processor

_CONTAINERS = (".dockerenv", "run/.containerenv", "run/systemd/container")
"""Container marker files below the root: Docker, Podman, systemd-nspawn and LXC."""
_MOST_PROCESSES = 4096
"""Maximum processes inspected to count a user's threads."""


def groups(root: Path = Path("/")) -> tuple[Limit, ...]:
    """The limits of this process's control groups. ``root``: the folder that holds ``proc``."""
    own, mounts = (_text(root / "proc/self" / name) for name in ("cgroup", "mountinfo"))
    memory, pids = (control_groups.find(own, mounts, controller) for controller in ("memory", "pids"))
    return tuple(map(_without_cache, control_groups.limits(memory, pids)))


def _without_cache(one: Limit) -> Limit:
    if one.name != "memory.max" or one.used is None or one.where is None:
        return one
    cache = control_groups.reclaimable(Path(one.where).parent)
    return msgspec.structs.replace(one, used=max(0, one.used - cache))


def machine(
    user: int | None,
    variables: Mapping[str, str],
    *,
    hard_limits: Mapping[str, int] | None = None,
    tracing: str | None = None,
    root: Path = Path("/"),
) -> Machine:
    """What Linux says of the machine. ``user``: whose threads are counted; ``root``: the folder that holds ``proc``."""
    kernel = root / "proc/sys/kernel"
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE))
    scope = _text(kernel / "yama/ptrace_scope").strip()
    pattern = kernel / "core_pattern"
    return Machine(
        memory=int(sizes["MemTotal"]) << 10 if "MemTotal" in sizes else None,
        swap=int(sizes["SwapTotal"]) << 10 if "SwapTotal" in sizes else None,
        processors=len(os.sched_getaffinity(0)),
        is_container="KUBERNETES_SERVICE_HOST" in variables or any((root / one).exists() for one in _CONTAINERS),
        core_pattern=_text(pattern).rstrip("\n") if pattern.exists() else None,
        ptrace_scope=int(scope) if scope.isdigit() else None,
        tracing=tracing,
        user_threads=_threads_of(user, root / "proc") if user is not None else None,
        hard_limits=dict(hard_limits or {}),
    )


def _threads_of(user: int, processes: Path) -> int | None:
    """By real user; None if there are too many processes."""
    found = [one.name for one in os.scandir(processes) if one.name.isdigit()]
    if len(found) > _MOST_PROCESSES:
        return None
    total = 0
    for one in found:
        status = _text(processes / one / "status")
        owner = re.search(r"^Uid:\t(\d+)", status, re.MULTILINE)
        threads = re.search(r"^Threads:\t(\d+)", status, re.MULTILINE)
        if owner and threads and int(owner[1]) == user:
            total += int(threads[1])
    return total


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


_LARGEST = 1 << 20
"""Bytes of /proc/cpuinfo to read; one processor has about 2 kB, and all are alike."""


def processor_of(root: str = "/") -> Processor:
    """Name and features of the first processor; raises ``OSError`` if there is no /proc."""
    path = Path(root, "proc/cpuinfo")
    with path.open("rb") as file:
        text = file.read(_LARGEST).decode("utf-8", "replace")
    told: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            told.setdefault(key.strip().lower(), value.strip())
    flags = told.get("flags") or told.get("features") or ""
    return Processor(name=told.get("model name"), flags=tuple(flags.split()), told_by=str(path))
