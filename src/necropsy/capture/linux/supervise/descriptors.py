"""Closes inherited file descriptors in helper processes.

A supervisor that keeps a pipe's end open hides the end of file from the reader at the other end.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from collections.abc import Iterable

_MOST = 1 << 16
_LOWEST = 10
"""Ours lie above: where the user has closed 0, 1 or 2, one of ours must not take that place."""


def lift(descriptor: int) -> int:
    """Move a file to a number of 10 or more, close-on-exec. Raises OSError where no descriptor is left."""
    if descriptor >= _LOWEST:
        return descriptor
    try:
        lifted = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # So the kernel says that the limit is as low as that number.
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
    os.close(descriptor)
    return lifted


def pipe() -> tuple[int, int]:
    """A close-on-exec pipe: (read, write)."""
    reading, writing = os.pipe()
    return lift(reading), lift(writing)


def keep_only(wanted: Iterable[int]) -> None:
    """Close every other descriptor; 0, 1 and 2 become /dev/null unless wanted, lest another file takes their place."""
    keep = set(wanted)
    for number in _open_ones():
        if number > 2 and number not in keep:
            try:
                os.close(number)
            except OSError:  # the one that the listing itself had open
                continue
    silence(number for number in (0, 1, 2) if number not in keep or not is_open(number))


def _open_ones() -> Iterable[int]:
    """All open descriptors; all possible ones where /proc is not mounted."""
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return range(min(limit, _MOST) if limit >= 0 else _MOST)


def silence(numbers: Iterable[int]) -> None:
    """Point these descriptors to /dev/null, or close them where there is none."""
    try:
        null = lift(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        for number in numbers:
            if is_open(number):
                os.close(number)
        return
    for number in numbers:
        os.dup2(null, number)
    os.close(null)


def is_open(number: int) -> bool:
    """Something is open at this number."""
    try:
        fcntl.fcntl(number, fcntl.F_GETFD)
    except OSError:
        return False
    return True
