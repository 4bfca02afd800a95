"""A death is read by a process of its own, while the tracer serves all other processes.

It is forked from the tracer, and what only a tracer may ask for (registers, an open ``/proc/PID/mem``) it brings along.
What goes wrong in it, a native library's crash too, costs this one report. The kernel kills it first where memory runs
out: it shares the program's control group, and must not cost a healthy process its life.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

from necropsy.capture.linux import dying, registers
from necropsy.capture.linux.death import Death
from necropsy.capture.linux.siginfo import name_of
from necropsy.model import Crash, Gap

MOST_FLOATING = 64
"""The SSE registers of so many threads go into the core."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_KILLED_FIRST = b"1000"
"""The highest ``oom_score_adj`` (proc(5)): anybody may raise his own."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Reader:
    """One process that reads one death; its result is to be collected when it has ended."""

    death: Death
    pid: int
    _result: BinaryIO

    @classmethod
    def start(cls, death: Death) -> Reader:
        """Fork it. All threads of the dying process are ptrace-stopped by this process.

        Raises:
            OSError: no process or descriptor is left.

        """
        result = _file()
        taken = registers.take((death.tid, *death.threads), floating=MOST_FLOATING)
        memory = None
        with contextlib.suppress(OSError):  # it forbids reading: that is found out, and said, where it is read
            memory = os.open(f"/proc/{death.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            tracer = os.getpid()
            pid = os.fork()
            if not pid:
                _read(replace(death, memory=memory), taken, result, tracer)
        except OSError:
            result.close()
            raise
        finally:
            if memory is not None:
                os.close(memory)
        return cls(death, pid, result)

    def stop(self) -> None:
        """It takes too long, or what it reads is gone."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def collect(self, status: int) -> tuple[Callable[[], Crash], bool]:
        """After its end with this wait status: the crash, to be unpacked later, and whether the core was written."""
        with self._result as file:
            file.seek(0)
            data = file.read()
        if os.WIFEXITED(status) and not os.WEXITSTATUS(status) and data:
            return lambda: _unpack(data), data[:1] == b"1"
        how = f"was killed by {name_of(os.WTERMSIG(status))}" if os.WIFSIGNALED(status) else "failed"
        return lambda: dying.minimal(self.death, Gap(part="threads", why=f"the process that read it {how}")), False


def _unpack(data: bytes) -> Crash:
    return cast("Crash", pickle.loads(memoryview(data)[1:]))  # noqa: S301 - our own process wrote it


def _file() -> BinaryIO:
    """Raises OSError where there is no descriptor left."""
    try:
        return open(os.memfd_create("necropsy-death", os.MFD_CLOEXEC), "w+b")  # noqa: PTH123 - a descriptor
    except OSError:  # a seccomp profile may forbid it
        return tempfile.TemporaryFile()


def _read(death: Death, taken: registers.Taken, result: BinaryIO, tracer: int) -> None:
    """The reader's process, from its first breath to its last. Never returns."""
    status = 1
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _LIBC.prctl(_PR_SET_NAME, b"necropsy-read", 0, 0, 0)
        if os.getppid() == tracer:
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_bytes(_KILLED_FIRST)
            registers.hand_over(taken)
            crash = dying.read(death)
            if death.core is not None:
                death.core.flush()
            result.write(b"1" if crash.gap("core") is None else b"0")
            pickle.dump(crash, result, protocol=pickle.HIGHEST_PROTOCOL)
            result.flush()
            status = 0
    finally:
        os._exit(status)
