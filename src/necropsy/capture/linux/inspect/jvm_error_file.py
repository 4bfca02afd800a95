"""The error file of a Java virtual machine that a signal ended: where its fatal fault was.

``hs_err_pidN.log`` in the working directory, or in ``/tmp`` where that cannot be written (src/hotspot/share/utilities/
vmError.cpp). With ``-XX:-CreateCoredumpOnCrash`` the machine ends by an exit code then, from a handler that has let all
signals in again: nothing on its stack says that the fault was the reason.
"""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path

from necropsy.capture.linux.supervise.traced_processes import status_of

_FRESH_S = 30.0
"""The file is closed shortly before the process ends."""
_FOLDERS = ("cwd", "root/tmp")
"""Where to look, below the process's folder in /proc: its working directory, and /tmp of its own root."""
_HEAD = 4096
_FAULT = re.compile(
    rb"\A#\n# A fatal error has been detected by the Java .{0,80}\n#\n"
    rb"# +SIG\w+ \(0x[0-9a-f]+\) at pc=0x([0-9a-f]{1,16}), pid=(\d+), tid=\d+\n"
)


def fault_of(pid: int) -> int | None:
    """The instruction of a stopped process's fatal fault, by a fresh file of its user and number; else None."""
    own = status_of(pid).get("NSpid", str(pid)).split()[-1]  # as it is numbered in its own namespace
    for folder in _FOLDERS:
        found = _FAULT.match(_head(f"/proc/{pid}/{folder}/hs_err_pid{own}.log", pid))
        if found is not None and found[2].decode() == own:
            return int(found[1], 16)
    return None


def _head(path: str, pid: int) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        file, process = os.fstat(handle), Path(f"/proc/{pid}").stat()
        is_own = stat.S_ISREG(file.st_mode) and file.st_uid == process.st_uid
        return os.read(handle, _HEAD) if is_own and abs(time.time() - file.st_mtime) < _FRESH_S else b""
    except OSError:
        return b""
    finally:
        os.close(handle)
