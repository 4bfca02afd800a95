"""Deaths are read by a process of their own, while the tracer serves all other processes.

It is forked from the tracer when the run has lasted a while, or at the first death, and reads one death after the
other. A small core is only copied from the process's memory, and written when the process has gone on. What only a
tracer may request (registers, an open ``/proc/PID/mem``) comes with each. An error in it, even a native library's
crash, costs one report. The OOM killer takes it first: it shares the program's control group, and must not cost a
healthy process its life.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from necropsy.capture.linux.inspect import registers
from necropsy.capture.linux.supervise import crash_capture, descriptors, minimal_crash
from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.capture.linux.supervise.event_loop import WAKES
from necropsy.capture.run_options import CoreFile
from necropsy.formats.siginfo import name_of
from necropsy.model import Crash, Gap

MOST_FLOATING = 64
"""The SSE registers of so many threads go into the core."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_KILLED_FIRST = b"1000"
"""The highest ``oom_score_adj`` (proc(5)): any process may raise its own."""
_MEMORY, _CORE = b"m", b"c"
_READ, _FREE = b"read", b"free"
"""Messages of the process: the result can be collected; it is ready for the next death."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(eq=False)
class Reader:
    """The process, as the tracer sees it."""

    pid: int
    _link: socket.socket
    _death: CrashContext | None = None
    _result: BinaryIO | None = None
    _is_writing: bool = False
    """The result was collected, but the core may not be complete."""
    _is_stopped: bool = False

    @classmethod
    def start(cls) -> Reader:
        """Fork it. Raises OSError where no process or descriptor is left."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        tracer = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            raise
        finally:
            if os.getpid() == tracer:
                theirs.close()
        if not pid:
            _serve(theirs, tracer)
        return cls(pid, ours)

    @property
    def is_free(self) -> bool:
        """It has nothing to read, and nothing to write."""
        if self._is_writing and self._said() == _FREE:
            self._is_writing = False
        return self._death is None and not self._is_writing

    def read(self, death: CrashContext, core: CoreFile | None) -> None:
        """Begin; this thread holds all threads of the process. Raises OSError if it is gone, or out of descriptors."""
        taken = registers.take((death.tid, *death.threads), floating=MOST_FLOATING)
        opened: list[int] = []
        parts = b""
        with _file() as job:
            result = _file()
            try:
                pickle.dump((replace(death, core=None), taken), job, protocol=pickle.HIGHEST_PROTOCOL)
                job.flush()
                with contextlib.suppress(OSError):  # it forbids reading: that is found out, and said, where it is read
                    opened.append(os.open(f"/proc/{death.pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
                    parts += _MEMORY
                files = [job.fileno(), result.fileno(), *opened]
                if core is not None:
                    opened.append(core.expect())
                    files += [core.file.fileno(), opened[-1]]
                    parts += _CORE
                socket.send_fds(self._link, [b"read" + parts], files)
            except OSError:
                result.close()
                if core is not None:
                    core.written = None  # the caller writes it
                raise
            finally:
                for one in opened:
                    os.close(one)
        self._death, self._result = death, result

    def has_finished(self) -> bool:
        """It has read what it was given; ``collect`` is to be called."""
        return self._said() == _READ

    def _said(self) -> bytes:
        """Its next message; nothing where none has come."""
        try:
            return self._link.recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except OSError:  # a system that forbids recvfrom(2) allows read(2)
            with contextlib.suppress(OSError):
                if select.select([self._link], [], [], 0)[0]:
                    return os.read(self._link.fileno(), 16)
            return b""

    def leave(self) -> bool:
        """Stop the process, unless it is writing a core: then it ends by itself afterwards. Whether it was stopped."""
        stops = self.is_free or self._death is not None
        if stops:
            self.stop()
        self._link.close()
        return stops

    def stop(self) -> None:
        """It takes too long, what it reads is gone, or nobody needs it any more."""
        self._is_stopped = True
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def was_killed(self, signo: int) -> bool:
        """Whether ``signo``, the signal that ended it (0 for none), is a SIGKILL that necropsy did not send."""
        return signo == signal.SIGKILL and not self._is_stopped

    def collect(self, status: int | None = None) -> tuple[Callable[[], Crash], bool]:
        """The crash, to be unpacked later, and whether the core was written. ``status``: how the process has ended."""
        death, result = self._death, self._result
        self._death = self._result = None
        self._is_writing = status is None
        if death is None or result is None:
            raise ValueError("nothing was read")
        with result as file:
            file.seek(0)
            data = file.read()
        if data and status is None:
            return lambda: _unpack(data), data[:1] == b"1"
        how = "failed"
        if status is not None and os.WIFSIGNALED(status):
            how = f"was killed by {name_of(os.WTERMSIG(status))}"
        return lambda: minimal_crash.minimal(death, Gap(part="threads", why=f"the process that read it {how}")), False


def _unpack(data: bytes) -> Crash:
    return cast("Crash", pickle.loads(memoryview(data)[1:]))  # noqa: S301 - our own process wrote it


def _file() -> BinaryIO:
    try:
        return open(os.memfd_create("necropsy-death", os.MFD_CLOEXEC), "w+b")  # noqa: PTH123 - a descriptor
    except OSError:  # a seccomp profile may forbid it
        import tempfile

        return tempfile.TemporaryFile()


# ---------------------------------------------------------------- the process itself


def _serve(link: socket.socket, tracer: int) -> None:
    """Main function of the process. Never returns."""
    status = 1
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _LIBC.prctl(_PR_SET_NAME, b"necropsy-read", 0, 0, 0)
        if os.getppid() == tracer:
            descriptors.keep_only({2, link.fileno()})
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_bytes(_KILLED_FIRST)
            for _ in crash_capture.loading():
                pass
            _warm(link)
            while True:
                said, received, _, _ = socket.recv_fds(link, 16, 5)
                if not said:
                    break
                writing = _read(said, received)
                _tell(link, _READ, tracer)
                writing()
                _tell(link, _FREE, tracer)
            status = 0
    finally:
        os._exit(status)


def _warm(link: socket.socket) -> None:
    """Import the modules for most deaths, until there is one."""
    waiting = select.poll()
    waiting.register(link, select.POLLIN)
    with contextlib.suppress(OSError):  # a system that forbids poll(2)
        for _ in crash_capture.warming():
            if waiting.poll(0):
                break


def _tell(link: socket.socket, message: bytes, tracer: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the tracer awaits nothing any more: the next message is its end
        link.send(message)
        os.kill(tracer, WAKES)


def _read(said: bytes, received: list[int]) -> Callable[[], None]:
    """Read one death, and return a function that completes the core."""
    job, result, *others = received
    with open(job, "rb") as file:  # noqa: PTH123 - a descriptor
        file.seek(0)
        death, taken = pickle.load(file)  # noqa: S301 - the tracer wrote it
    memory = others.pop(0) if _MEMORY in said[4:] else None
    core = open(others.pop(0), "r+b") if _CORE in said[4:] else None  # noqa: PTH123, SIM115 - a descriptor
    registers.hand_over(taken)
    deferred: list[Callable[[], None]] = []
    crash = crash_capture.read(replace(death, memory=memory, core=core, deferred=deferred))
    with open(result, "r+b") as file:  # noqa: PTH123 - a descriptor
        file.write(b"1" if crash.gap("core") is None else b"0")
        pickle.dump(crash, file, protocol=pickle.HIGHEST_PROTOCOL)
    if core is None:
        return lambda: None
    return partial(_write, deferred, core, others.pop(0))


def _write(deferred: list[Callable[[], None]], core: BinaryIO, written: int) -> None:
    """Complete the core, and say so; where that fails, the end of the pipe says it."""
    try:
        with core:
            for one in deferred:
                one()
        os.write(written, b"1")
    except Exception:  # noqa: BLE001, S110 - it costs the core, not what is read next
        pass
    finally:
        os.close(written)
