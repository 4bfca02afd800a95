"""Temporary folders that do not outlive their process for long: the next process removes those of one that was killed.

A folder is locked (flock) as long as its process runs. A process number in its name would not do: in a container, the
same number belongs to another process, or to none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class TemporaryFolder:
    """A folder of this process, ``path``, until it is closed. Its name begins with ``prefix``.

    Those that were left behind with the same prefix are removed first. Under Windows they stay. ``lock``: the open
    descriptor that says that it is in use; None where there are no locks.
    """

    def __init__(self, prefix: str) -> None:
        remove_abandoned(prefix)
        made = Path(tempfile.mkdtemp(prefix=f".{prefix}"))
        self.lock = _locked(made)
        # Its name has the prefix only now, so that nobody finds it without its lock.
        self.path = made.with_name(made.name[1:])
        made.rename(self.path)

    def close(self) -> None:
        """Remove it with all that is in it."""
        remove(self.path)
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


def remove_abandoned(prefix: str) -> None:
    """Remove the folders with this prefix, of this user, whose process has ended."""
    if sys.platform == "win32":
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = _locked(folder)
            if lock is not None:
                try:
                    remove(folder)
                finally:
                    os.close(lock)


def _locked(folder: Path) -> int | None:
    """The open folder, locked by this process; None if another one has locked it, and where there are no locks."""
    if sys.platform == "win32":
        return None
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        return None
    return opened


def remove(path: Path) -> None:
    """Remove a file or folder, even one that was made read-only."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            Path(folder).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)
