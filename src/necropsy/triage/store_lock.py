"""One writer at a time: a file in the store's folder that says which process of which machine holds it.

File locks of the kernel hang or do nothing on many network folders; making a file that must not exist yet works on all.
A lock whose process has died on this machine is removed. One of another machine is believed until it is deleted.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from necropsy.errors import NecropsyError, StoreBusyError

NAME = "lock"
WAIT_S = 10.0
"""Seconds to wait for another writer."""
_PAUSE_S = 0.05


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the lock."""

    pid: int
    host: str
    began: str | None = None
    """When the process started, in the kernel's clock ticks: numbers of processes are used again."""
    since: str
    """ISO 8601 in UTC."""


@contextlib.contextmanager
def held(folder: Path, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the lock of ``folder``.

    Raises StoreBusyError where another process still holds it after ``wait_s`` seconds, and NecropsyError where the
    folder cannot be written.
    """
    path = folder / NAME
    until = time.monotonic() + wait_s
    while not _taken(path):
        holder = _holder(path)
        if holder is not None and _has_died(holder):
            _remove(path, holder)
            continue
        if time.monotonic() >= until:
            raise _busy(path, holder)
        time.sleep(_PAUSE_S)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _taken(path: Path) -> bool:
    """Written beside it and linked, so that a lock never shows half of what it says; without links, made in place."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    mine = LockHolder(pid=os.getpid(), host=platform.node(), began=_began(os.getpid()), since=now)
    data = msgspec.json.encode(mine)
    draft = path.with_name(f".{NAME}.{platform.node()[:64]}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        draft.write_bytes(data)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        except (OSError, NotImplementedError, AttributeError):  # a file system without links
            return _made(path, data)
    except OSError as error:
        raise NecropsyError(f"cannot write below {path.parent}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    return True


def _made(path: Path, data: bytes) -> bool:
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        return False
    return True


def _holder(path: Path) -> LockHolder | None:
    """None where the lock has gone meanwhile, or does not say who made it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LockHolder)
    except (OSError, msgspec.MsgspecError):
        return None


def _has_died(holder: LockHolder) -> bool:
    if sys.platform == "win32" or holder.host != platform.node():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return holder.began is not None and _began(holder.pid) not in {None, holder.began}


def _began(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat, behind the name in parentheses, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _remove(path: Path, dead: LockHolder) -> None:
    """Remove the lock of a dead process. Another process may have done so and taken it: then it is put back."""
    aside = path.with_name(f".{NAME}.dead.{os.getpid()}.{os.urandom(4).hex()}")
    with contextlib.suppress(OSError):
        path.rename(aside)
        if _holder(aside) != dead:
            with contextlib.suppress(OSError):
                os.link(aside, path)
        aside.unlink()


def _busy(path: Path, holder: LockHolder | None) -> StoreBusyError:
    who = f"process {holder.pid} on {holder.host} (since {holder.since})" if holder is not None else "another process"
    error = StoreBusyError(f"the store {path.parent} is in use by {who}")
    error.hint = f"try again when it has ended; if that process no longer exists, delete {path}"
    return error
