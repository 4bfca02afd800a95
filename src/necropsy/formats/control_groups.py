"""Control groups: a process's folder, and the limits on memory and processes along its path.

Version 2: Documentation/admin-guide/cgroup-v2.rst; version 1: Documentation/admin-guide/cgroup-v1/memory.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from necropsy.model import Limit

UNLIMITED = 1 << 62
"""Version 1 writes the largest multiple of a page below 2**63 for *no limit*."""
_SIGNS = {"memory": ("memory.events", "memory.oom_control"), "pids": ("pids.current",)}
"""Files by which a folder is seen to be a group that counts."""
_FILES = (
    ("memory", ("memory.max", "memory.current", "memory.peak")),
    ("memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes")),
    ("pids", ("pids.max", "pids.current", "pids.peak")),
)


def folder_of(pid: int | str = "self", controller: str = "memory") -> Path | None:
    """The folder of a process's control group for ``memory`` or ``pids``; None if none can be read."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return find(groups, mounts, controller)


def find(groups: str, mounts: str, controller: str = "memory") -> Path | None:
    """The folder, by ``/proc/PID/cgroup`` and ``mountinfo``; what a mount does not show is looked for at its root."""
    paths: dict[str, str] = {}
    for row in groups.splitlines():
        _, _, rest = row.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            paths["cgroup"] = path
        elif not controllers:
            paths["cgroup2"] = path
    for row in mounts.splitlines():
        left, _, right = row.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in paths:
            continue
        if kind[0] == "cgroup" and controller not in kind[2].split(","):
            continue
        root, point, path = fields[3].rstrip("/"), Path(fields[4]), paths[kind[0]]
        inside = path[len(root) :] if path.startswith(root) and ".." not in path else ""
        for folder in (point / inside.lstrip("/"), point):
            if any((folder / name).is_file() for name in _SIGNS[controller]):
                return folder
    return None


def limits(memory: Path | None, pids: Path | None) -> Iterator[Limit]:
    """Of each kind the group with the least room left: the process's own in these folders, or one above it."""
    folders = {"memory": memory, "pids": pids}
    for controller, names in _FILES:
        folder = folders[controller]
        found = [one for above in upwards(folder) if (one := _of_group(above, *names)) is not None] if folder else []
        if found:
            yield min(found, key=lambda one: one.limit - (one.used or 0))


def upwards(folder: Path) -> Iterator[Path]:
    """The group's folder and those of the groups above it."""
    while (folder / "cgroup.procs").exists():
        yield folder
        folder = folder.parent


def in_use(limit: Path) -> int | None:
    """What is in use of a limit, by the file that sets it."""
    used = next((names[1] for _, names in _FILES if names[0] == limit.name), None)
    return _number(limit.with_name(used)) if used is not None else None


def file_of_memory_in_use(folder: Path) -> Path | None:
    """The file with the memory of a group, file cache included; None if it is not counted there."""
    found = (folder / names[1] for controller, names in _FILES if controller == "memory")
    return next((one for one in found if one.is_file()), None)


def file_of_most_memory(folder: Path) -> Path | None:
    """The file with the most memory that a group ever had in use; None before Linux 5.19 in version 2."""
    found = (folder / names[2] for controller, names in _FILES if controller == "memory")
    return next((one for one in found if one.is_file()), None)


def reclaimable(folder: Path) -> int:
    """Bytes of file cache that count as used memory, and that the kernel drops before it kills anything."""
    found = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    value = found.get("total_inactive_file", found.get("inactive_file", "0"))
    return int(value) if value.isdigit() else 0


def _of_group(folder: Path, limit: str, used: str, peak: str) -> Limit | None:
    most = _number(folder / limit)
    if most is None or most >= UNLIMITED:
        return None
    name = "pids.max" if limit == "pids.max" else "memory.max"
    return Limit(
        name=name, limit=most, used=_number(folder / used), peak=_number(folder / peak), where=str(folder / limit)
    )


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
