"""The process of a worker that no nursery forks: it reads from its stdin what to do, and becomes a worker.

It is started as a script. Until ``sys.path`` is set, nothing but the standard library can be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import pickle
import socket
import struct
import sys
from typing import Any

_HEADER = struct.Struct("!Q")
"""As in ``wire``."""
_ONLY_ERRORS = 0x3
"""``SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX``: no dialog waits for somebody to close it."""


def main() -> None:
    """Until the caller closes the connection."""
    (size,) = _HEADER.unpack(_exactly(_HEADER.size))
    first: dict[str, Any] = pickle.loads(_exactly(size))  # noqa: S301 - from the caller
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.path[:] = first["path"]
    sys.argv[:] = first["argv"]
    from necropsy.contain import worker

    worker.die_with_the_caller(lifeline)
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.kernel32.SetErrorMode(_ONLY_ERRORS)
        connection = socket.fromshare(first["shared"])
        progress = mmap.mmap(-1, worker.PROGRESS.size, tagname=first["progress"])
    else:
        connection = socket.socket(fileno=first["connection"])
        connection.set_inheritable(False)
        progress = mmap.mmap(first["progress"], worker.PROGRESS.size)
        os.close(first["progress"])
    for stream, encoding in zip((sys.stdout, sys.stderr), first["encodings"], strict=True):
        stream.reconfigure(encoding=encoding)  # type: ignore[union-attr] # it is no other class's yet
    for name in first["imports"]:
        with contextlib.suppress(Exception):  # the call that needs it will tell
            importlib.import_module(name)
    why = f"a worker that is a new process is not traced ({sys.platform})"
    worker.serve(connection, progress, functions=first["functions"], faults=first["faults"], unwatched=why)


def _exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            os._exit(0)  # the caller has gone
        data += piece
    return data


if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, KeyboardInterrupt):  # the caller has gone
        os._exit(0)
