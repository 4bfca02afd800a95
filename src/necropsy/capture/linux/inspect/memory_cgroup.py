"""Out-of-memory events: the counters of a process's control group, and the kernel's log.

Version 2: ``memory.events`` (Documentation/admin-guide/cgroup-v2.rst); version 1: ``memory.oom_control`` and
``memory.failcnt`` (Documentation/admin-guide/cgroup-v1/memory.rst). ``oom_kill`` counts the processes of this group
that any OOM killer has killed, be it for this group's limit, for that of a group above it, or for the whole machine.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.formats.control_groups import UNLIMITED, folder_of

_V2, _V1 = "memory.events", "memory.oom_control"
_LINE = re.compile(r"^(\w+) (\d+)$", re.MULTILINE)
_KMSG = "/dev/kmsg"
_LONGEST_RECORD = 8192
_MOST_RECORDS = 10_000
_SPEAKS_OF_MEMORY = re.compile(rb"Killed process \d+|oom-kill:|Out of memory")


def counters(folder: Path) -> dict[str, int]:
    """The counters that only ever rise; empty where the group is gone."""
    found = {name: int(value) for name, value in _LINE.findall(_text(folder / _V2))}
    if found:
        return found
    control = dict(_LINE.findall(_text(folder / _V1)))
    if "oom_kill" in control:  # Linux 4.13 and later
        found["oom_kill"] = int(control["oom_kill"])
    failed = _text(folder / "memory.failcnt").strip()
    if failed.isdigit():
        found["failcnt"] = int(failed)
    return found


def limit(folder: Path) -> int | None:
    """The group's own limit in bytes; None where it has none (one above it may still have)."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = _text(folder / name).strip()
        if text.isdigit():
            return int(text) if int(text) < UNLIMITED else None
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


@dataclass
class Since:
    """What was counted and logged since it was last asked; where it cannot be read, nothing is."""

    folder: Path | None
    before: dict[str, int] = field(default_factory=dict)
    _log: int = -1
    _ours: int = 0

    @classmethod
    def now(cls, pid: int) -> Since:
        """From now on, for the group that ``pid`` is in."""
        folder = folder_of(pid)
        return cls(folder, counters(folder) if folder else {}, _open_log())

    def events(self, ours: int = 0) -> dict[str, int] | None:
        """By how much each counter rose since the last call; None where there is no such group any more.

        ``ours``: how many processes of necropsy have been killed so far. ``oom_kill`` leaves them out, because they say
        nothing about the program.
        """
        if self.folder is None:
            return None
        after = counters(self.folder)
        if not after:
            return None
        rose = {name: value - self.before.get(name, 0) for name, value in after.items()}
        if "oom_kill" in rose:
            rose["oom_kill"] = max(rose["oom_kill"] - (ours - self._ours), 0)
        self.before, self._ours = after, ours
        return rose

    def log(self) -> tuple[str, ...]:
        """The kernel's own words on memory since the last call; empty where it may not be read (``dmesg_restrict``)."""
        lines = []
        for _ in range(_MOST_RECORDS if self._log >= 0 else 0):
            try:
                record = os.read(self._log, _LONGEST_RECORD)
            except OSError as error:
                if error.errno == errno.EPIPE:  # records were overwritten before they were read
                    continue
                break
            # "level,sequence,time,flags;text" (Documentation/ABI/testing/dev-kmsg)
            text = record.partition(b";")[2].partition(b"\n")[0]
            if _SPEAKS_OF_MEMORY.search(text):
                lines.append(text.decode("utf-8", "replace"))
        return tuple(lines)


def _open_log() -> int:
    """The kernel's log behind its last record; -1 where it may not be read."""
    try:
        handle = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        os.lseek(handle, 0, os.SEEK_END)
    except OSError:
        os.close(handle)
        return -1
    return handle
