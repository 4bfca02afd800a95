"""What a program gets from the machine and from the process that started doctor: limits, file systems, the user."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from necropsy.model import Mount

_LIMITS = ("STACK", "AS", "DATA", "CORE", "CPU", "FSIZE", "NPROC", "NOFILE", "MEMLOCK", "RSS")


def limits(*, hard: bool = False) -> dict[str, int] | None:
    """The soft or hard limits by name, in bytes or counts; -1 is unlimited. None where this system has none."""
    if sys.platform == "win32":
        return None
    import resource

    found = {}
    for name in _LIMITS:
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            value = resource.getrlimit(number)[hard]
            found[f"RLIMIT_{name}"] = -1 if value == resource.RLIM_INFINITY else value
    return found


def give_room() -> None:
    """Raise the soft stack limit to at most 8 MiB, which the kernel checks on each growth; call ``limits`` before."""
    if sys.platform == "win32":
        return
    import resource

    wanted = 8 << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft in {resource.RLIM_INFINITY, -1} or soft >= wanted:
        return
    room = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_STACK, (room, hard))
    except (OSError, ValueError):
        return


def mounts(variables: Mapping[str, str], reports: str | None = None) -> tuple[Mount, ...]:
    """File systems that programs write to, where accessible; ``reports``: the reports folder, which may not exist."""
    places = {"/dev/shm": "/dev/shm", "TMPDIR": variables.get("TMPDIR") or "/tmp", "home": variables.get("HOME")}  # noqa: S108 - only looked at
    if sys.platform == "win32":
        places = {"TMPDIR": tempfile.gettempdir(), "home": variables.get("USERPROFILE")}
    if reports is not None:
        places["reports"] = _existing(reports)
    return tuple(found for role, path in places.items() if path and (found := _mount(role, path)) is not None)


def _existing(path: str) -> str:
    place = Path(path)
    return str(next((one for one in (place, *place.parents) if one.is_dir()), place))


def _mount(role: str, path: str) -> Mount | None:
    if sys.platform == "win32":
        import shutil

        try:
            use = shutil.disk_usage(path)
        except OSError:
            return None
        return Mount(role=role, path=path, size=use.total, free=use.free)
    try:
        room = os.statvfs(path)
    except OSError:
        return None
    return Mount(
        role=role,
        path=path,
        size=room.f_blocks * room.f_frsize,
        free=room.f_bavail * room.f_frsize,
        free_files=room.f_favail if room.f_files else None,
        is_read_only=bool(room.f_flag & os.ST_RDONLY),
    )


def user() -> int | None:
    """The number of the user; None where users have none."""
    return None if sys.platform == "win32" else os.geteuid()
