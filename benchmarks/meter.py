"""What a command takes: CPU seconds of every process that it starts, and wall seconds until it ends.

``getrusage(RUSAGE_CHILDREN)`` knows a process once somebody has waited for it. This process therefore becomes a
subreaper: processes whose parent has ended become its children, and it waits for them too. A measurement is over when
no descendant is left. Only a child whose parent ignores SIGCHLD stays uncounted, as the kernel throws its times away.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pty
import resource
import signal
import subprocess
import threading
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Stream = Literal["file", "pipe", "terminal"]

_PR_SET_CHILD_SUBREAPER = 36
_BLOCK = 1 << 20
_AGAIN_S = 0.05
"""Between two rounds of killing: some processes start others meanwhile."""


@dataclass(frozen=True)
class Measured:
    """One run: seconds, the exit code (negative: a signal), and whether the time limit ended it."""

    cpu_s: float
    wall_s: float
    code: int
    late: bool


def adopt() -> None:
    """Make this process the one that orphans among its descendants go to; OSError where that is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def measure(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], *, stderr: Stream, limit_s: float
) -> Measured:
    """One run of the command, its stderr being a file, a pipe or a terminal; ``adopt`` comes first.

    What it writes to a pipe or a terminal is read by a thread of this process, which is not counted. There must be no
    other child of this process.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    over = threading.Event()
    late = threading.Event()
    with _end_of(stderr, folder) as descriptor:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=descriptor,
        )
    killer = threading.Thread(target=_kill_after, args=(limit_s, over, late))
    killer.start()
    wall_s = 0.0
    try:
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == process.pid:
                wall_s = time.perf_counter() - start
                process.returncode = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        pass  # nobody is left
    except BaseException:
        _kill()  # Ctrl-C: nothing runs on
        raise
    finally:
        over.set()
        killer.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(cpu_s, wall_s, process.returncode, late.is_set())


@contextlib.contextmanager
def _end_of(stream: Stream, folder: Path) -> Iterator[int]:
    """The descriptor that the command writes to; its reader ends by itself when no writer is left."""
    if stream == "file":
        with (folder / "stderr").open("wb") as file:
            yield file.fileno()
        return
    if stream == "pipe":
        ours, theirs = os.pipe()
    else:
        ours, theirs = pty.openpty()
        tty.setraw(theirs)
    threading.Thread(target=_drain, args=(ours,), daemon=True).start()
    try:
        yield theirs
    finally:
        os.close(theirs)


def _drain(descriptor: int) -> None:
    # A terminal whose last writer is gone answers EIO.
    with contextlib.suppress(OSError):
        while os.read(descriptor, _BLOCK):
            pass
    os.close(descriptor)


def _kill_after(limit_s: float, over: threading.Event, late: threading.Event) -> None:
    if over.wait(limit_s):
        return
    late.set()
    while not over.wait(_AGAIN_S):
        _kill()


def _kill() -> None:
    for pid in _descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants() -> list[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(path.parent.name))
    found = list(parents.get(os.getpid(), ()))
    for pid in found:
        found.extend(parents.get(pid, ()))
    return found
