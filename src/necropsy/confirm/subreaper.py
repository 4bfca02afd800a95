"""Runs one command and ends with it, leaving no process behind: ``python -I -S subreaper.py PARENT COMMAND...``

It is the parent of each run. As a "subreaper" (prctl(2)) it gets the run's orphans and ends them. If the campaign is
killed, the kernel notifies it (PR_SET_PDEATHSIG) and it ends the run; if it or the run's supervisor is killed, the
kernel ends the run. It imports nothing of necropsy, to start quickly.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TIED = "NECROPSY_TIED"
"""The variable by which ``necropsy run`` knows that its command ends with it."""
_PATIENCE_S = 10.0


def main(parent: int, command: list[str]) -> int:
    """Run ``command`` for the process ``parent``; its exit status, as a shell gives it."""
    environment = {**os.environ, TIED: "1"}
    started = []  # kept: a Popen that is thrown away would take its process's status

    def start(tie: Callable[[], None]) -> int:
        started.append(subprocess.Popen(command, preexec_fn=tie, env=environment))  # noqa: PLW1509 - one thread
        return started[0].pid

    return keep(parent, start)


def keep(parent: int, start: Callable[[Callable[[], None]], int]) -> int:
    """Wait for the process that ``start`` begins, end all that it leaves, and return its exit status as a shell does.

    ``start`` gets a function to call in the process it starts, and returns that process's number.
    """
    libc = ctypes.CDLL(None)
    # A handler that raises could be lost: in a function that Python calls at a fork, or before a call that waits.
    arrived, notify = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _into_the_pipe)
    before = signal.signal(signal.SIGCHLD, _into_the_pipe)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGCHLD))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the campaign's to answer
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    ours = os.getpid()

    def tied() -> None:
        # Killed with us: what it runs is then ended by the kernel (NECROPSY_TIED).
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != ours:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(arrived)
        os.close(notify)

    try:
        # Otherwise it died before the kernel was asked to tell.
        status = _status_of(start(tied), arrived) if os.getppid() == parent else -signal.SIGTERM
    finally:
        end_all()
    return status if status >= 0 else 128 - status


def _into_the_pipe(_number: int, _frame: FrameType | None) -> None:
    """Nothing to do: ``signal.set_wakeup_fd``."""


def _status_of(pid: int, arrived: int) -> int:
    """The status with which a process ends, or SIGTERM's if that comes to us first."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        select.select([arrived], [], [])
        if signal.SIGTERM in os.read(arrived, 4096):
            return -signal.SIGTERM


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
