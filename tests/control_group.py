"""Control groups with a limit on memory, for the programs that tests put into them."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

_FIRST, _SECOND = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
_NUMBERS = count()


@contextlib.contextmanager
def limited(octets: int, *, only_version_1: bool = False) -> Iterator[Path]:
    """A group with this limit, removed in the end with all that is in it.

    Raises:
        OSError: no group can be made here; ``needed`` asks before a test runs.
    """
    is_first = only_version_1 or _FIRST.is_dir()
    group = (_FIRST if is_first else _SECOND) / f"necropsy-test-{os.getpid()}-{next(_NUMBERS)}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(octets))
    except OSError:
        _is_removed(group)
        raise
    yield group
    for pid in (group / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    for _ in range(6000):
        if _is_removed(group):
            return
        signal.sigtimedwait((), 0.01)
    raise AssertionError("the control group could not be removed")


@functools.cache
def can_be_made(*, only_version_1: bool = False) -> bool:
    """Whether a group can be made here."""
    # It takes root and a writable file system of control groups: only an attempt shows it.
    try:
        with limited(1 << 30, only_version_1=only_version_1):
            return True
    except OSError:
        return False


def needed(*, only_version_1: bool = False) -> pytest.MarkDecorator:
    """Such a group can be made."""
    made = can_be_made(only_version_1=only_version_1)
    return pytest.mark.skipif(not made, reason="no memory control group can be made here")


def inside(group: Path) -> list[str]:
    """What a command begins with that is run in the group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]


def _is_removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()
