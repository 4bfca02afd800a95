"""The end of stderr of a process that is watched only since some time after its start.

Nothing was prepared then: only a regular file can be read, at the death, from its end at the registration or after the
last report.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.linux.stderr.log_source import LIMIT, Log, without_cut_line
from necropsy.capture.process.secret_bytes import masked_log
from necropsy.model import Gap

_Found = tuple[str | None, tuple[Gap, ...]]


@dataclass
class LogAtDeath(Log):
    """Reads the file or pipe that each process has open as fd 2."""

    mode: str = "file"
    starts: dict[tuple[int, int], int] = field(default_factory=dict)
    """By device and inode: what was there before does not count."""
    noted: dict[int, _Found] = field(default_factory=dict)
    """By process: read while it still had its descriptors."""

    def begin(self, pid: int) -> None:
        """What the process has written up to now is of no interest."""
        try:
            now = Path(f"/proc/{pid}/fd/2").stat()
        except OSError:
            return
        if stat.S_ISREG(now.st_mode):
            self.starts[now.st_dev, now.st_ino] = now.st_size

    def note(self, pid: int) -> None:
        """The process is about to end: read it now."""
        self.noted[pid] = self._read(pid)

    def tail(self, pid: int | None = None) -> _Found:
        """As ``Log.tail``."""
        if pid is None:
            return None, ()
        return self.noted.pop(pid, None) or self._read(pid)

    def _read(self, pid: int) -> _Found:
        try:
            handle = os.open(f"/proc/{pid}/fd/2", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            return None, (Gap(part="log_tail", why=f"stderr cannot be read: {error.strerror}"),)
        try:
            now = os.fstat(handle)
            if not stat.S_ISREG(now.st_mode):
                why = "stderr is no regular file, and the process was not started by `necropsy run`"
                return None, (Gap(part="log_tail", why=why),)
            position = _position(pid)
            end = min(position, now.st_size) if position else now.st_size
            begin = self.starts.get((now.st_dev, now.st_ino), 0)
            begin = max(begin if begin <= end else 0, end - LIMIT)
            data = os.pread(handle, end - begin, begin).lstrip(b"\0")
        except OSError as error:
            return None, (Gap(part="log_tail", why=f"stderr is a file that cannot be read: {error.strerror}"),)
        finally:
            os.close(handle)
        return masked_log(without_cut_line(data).decode("utf-8", "replace")), ()


def _position(pid: int) -> int:
    """Where the process writes next; 0 for the end of the file."""
    lines = Path(f"/proc/{pid}/fdinfo/2").read_text(encoding="ascii").splitlines()
    found = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return 0 if int(found["flags"], 8) & os.O_APPEND else int(found["pos"])
