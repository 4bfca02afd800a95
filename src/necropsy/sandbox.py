"""Runs a command that can write below some folders only: ``python -I -S sandbox.py FOLDER... -- COMMAND...``

Landlock (Linux 5.13, landlock(7)) needs no privileges, and what the command starts inherits it. It forbids writing
elsewhere and, from Linux 6.7 on, TCP; from 6.12 on signals to processes outside. It does not hide files, and does not
cover chmod(2), chown(2) and utime(2). Where the kernel has no Landlock the command runs all the same: ``version`` says
so beforehand.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

if sys.platform != "win32":
    import resource

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38
_MOST_BYTES = 4 << 30
"""Of one file that is written."""
# linux/landlock.h: all rights that change something. The comment is the version that brought a right.
_WRITE_FILE = 1 << 1
_CHANGES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # 2, 3
TCP_SINCE = 4
"""The version of Landlock that covers TCP."""
_TCP = 0b11
_SCOPES = 0b11  # 6: abstract Unix sockets, signals
_DEVICES = ("/dev", "/proc")
"""Existing files may be written there: /dev/null, terminals, what a process sets for itself."""
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - semaphores of multiprocessing


def version() -> int:
    """The version of Landlock; 0 where there is none, or where it may not be used."""
    if sys.platform != "linux":
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def restrict(folders: list[str]) -> None:
    """Forbid this process to write outside of ``folders``. Raises OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    has = version()
    changes = _CHANGES | (_REFER if has >= 2 else 0) | (_TRUNCATE if has >= 3 else 0)
    wanted = struct.pack("=QQQ", changes, _TCP if has >= TCP_SINCE else 0, _SCOPES if has >= 6 else 0)
    wanted = wanted[: 24 if has >= 6 else 16 if has >= TCP_SINCE else 8]
    rules = _checked(libc.syscall(_CREATE, wanted, ctypes.c_size_t(len(wanted)), ctypes.c_uint32(0)))
    for path, rights in (
        *((folder, changes) for folder in (*folders, _SHARED_MEMORY)),
        *((folder, _WRITE_FILE) for folder in _DEVICES),
    ):
        try:
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rule = struct.pack("=Qi", rights, folder)
        _checked(libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, ctypes.c_uint32(0)))
        os.close(folder)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _checked(libc.syscall(_RESTRICT, rules, ctypes.c_uint32(0)))
    os.close(rules)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def main(words: list[str]) -> None:
    """Restrict this process, then execute the command."""
    at = words.index("--")
    if version():
        restrict(words[:at])
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    most = _MOST_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MOST_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    os.execvp(words[at + 1], words[at + 1 :])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
