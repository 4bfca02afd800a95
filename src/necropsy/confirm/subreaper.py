"""Runs one command and ends with it, and nothing of it lives longer: ``python -I -S keeper.py PARENT COMMAND...``

It stands between a campaign and each run. What the run leaves behind is handed to it by the kernel (it is a
"subreaper", prctl(2)), and ended. Where the campaign itself is killed, the kernel tells it (PR_SET_PDEATHSIG), and
the whole run is ended. So it is by the kernel where this process is killed as well, or the supervisor of the run. It
knows nothing of necropsy, so that it starts quickly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from types import FrameType

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_PATIENCE_S = 10.0


class ToldToStop(BaseException):
    """The campaign is gone, or wants the run to end."""


def main(parent: int, command: list[str]) -> int:
    """Run ``command`` for the process ``parent``; its exit status, as a shell gives it."""
    libc = ctypes.CDLL(None)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the campaign's to answer
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    status = 128 + signal.SIGTERM
    try:
        if os.getppid() != parent:
            raise ToldToStop  # it died before the kernel was asked to tell
        ours = os.getpid()

        def tied() -> None:
            # Killed with us: what it runs is then ended by the kernel (NECROPSY_TIED).
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != ours:
                os._exit(1)

        environment = {**os.environ, "NECROPSY_TIED": "1"}
        status = subprocess.Popen(command, preexec_fn=tied, env=environment).wait()  # noqa: PLW1509 - one thread
    except ToldToStop:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_all()
    return status if status >= 0 else 128 - status


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise ToldToStop


def end_all() -> None:
    """End every descendant, until there is none or they cannot be ended."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        left = descendants(os.getpid())
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.01)


def descendants(root: int) -> list[int]:
    """All processes below ``root`` that have not ended, by /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(int(name))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
