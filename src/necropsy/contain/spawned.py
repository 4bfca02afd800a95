"""A worker that is a new process, where the nursery cannot fork it: on Windows and macOS.

It is not traced, so that of its death the exit status and the log are known, and what faulthandler wrote.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from necropsy.contain import spawned_process
from necropsy.contain.forked import write_quietly
from necropsy.contain.nursery import Nursery
from necropsy.contain.output import Output, encodings
from necropsy.contain.unnamed_files import unnamed_file
from necropsy.contain.wire import HEADER
from necropsy.contain.worker import PROGRESS
from necropsy.errors import NecropsyError

SPAWNS = sys.platform != "linux" or os.environ.get("NECROPSY_CONTAIN") == "spawn"
"""Whether workers are new processes. On Linux, only tests have it so."""
_KILL_S = 5.0


class Spawned:
    """A process of this interpreter. It has the interface of ``Forked``."""

    def __init__(self, nursery: Nursery, *, bare: bool) -> None:
        """``nursery``: says what to load, and is not started. ``bare``: no function is loaded before the first call.

        Raises NecropsyError where this system cannot start it.
        """
        self.output = Output()
        self.connection, theirs = _pair()
        self._job: Any = None
        functions = () if bare else nursery.expected
        faults = self.output.faults.path or self.output.faults.handle
        given: dict[str, Any] = {"path": sys.path, "argv": sys.argv, "imports": nursery.imports, "functions": functions}
        given |= {"faults": faults, "encodings": encodings()}
        try:
            if sys.platform == "win32":
                name = f"necropsy-{os.getpid()}-{secrets.token_hex(8)}"
                self.progress = mmap.mmap(-1, PROGRESS.size, tagname=name)
                self._process = _started((), self.output)
                self._job = _job(self._process)
                given |= {"shared": theirs.share(self._process.pid), "progress": name}
            else:
                shared = unnamed_file("progress")
                os.ftruncate(shared, PROGRESS.size)
                self.progress = mmap.mmap(shared, PROGRESS.size)
                try:
                    handles = (theirs.fileno(), shared, self.output.faults.handle)
                    self._process = _started(handles, self.output)
                finally:
                    os.close(shared)
                given |= {"connection": theirs.fileno(), "progress": shared}
            first = pickle.dumps(given, protocol=5)
            assert self._process.stdin is not None  # noqa: S101 - it is a pipe
            with contextlib.suppress(OSError):  # it has died: the connection tells
                self._process.stdin.write(HEADER.pack(len(first)) + first)
                self._process.stdin.flush()
        except OSError as error:
            self.output.close()
            raise NecropsyError(f"a worker cannot be started: {error}") from error
        finally:
            theirs.close()
        self.pid = self._process.pid

    def has_ended(self, seconds: float) -> bool:
        """Wait up to so long for its end."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def status(self) -> int | None:
        """After that: minus the signal, or the exit code, as ``subprocess`` has it."""
        return self._process.returncode

    def stop(self, number: int) -> None:
        """Send it a signal; Windows has one only, which ends it."""
        with contextlib.suppress(OSError):
            self._process.send_signal(number if sys.platform != "win32" else signal.SIGTERM)

    def interrupt(self) -> None:
        """End it at once; any thread may ask for it."""
        if sys.platform == "linux" and self._process.stdin is not None:
            write_quietly(self._process.stdin.fileno())
        else:
            with contextlib.suppress(OSError):
                self._process.kill()

    def close(self) -> None:
        """Give up what is held of it."""
        self.output.close()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if self._job is not None:
            self._job.close()
            self._job = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_S)

    def abandon(self) -> None:
        """In a forked child of the caller: it is the parent's."""
        self._process.returncode = 0
        self.output = Output()  # a thread of the parent may hold the lock of the other one
        self.close()


def _started(handles: tuple[int, ...], output: Output) -> subprocess.Popen[bytes]:
    """The process, with ``handles`` where the system lets it inherit them; on its stdin it is told what to do.

    Raises OSError if no process can be started.
    """
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    command = [sys.executable, *flags, str(Path(spawned_process.__file__))]
    if sys.platform == "win32":
        # In a virtual environment, python.exe starts another one, whose number is not known here.
        base, variables = sys._base_executable, None  # noqa: SLF001
        if base and base != sys.executable:
            command[0], variables = base, {**os.environ, "__PYVENV_LAUNCHER__": sys.executable}
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output.files[0],
            stderr=output.files[1],
            env=variables,
            creationflags=subprocess.CREATE_NO_WINDOW,
        )
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output.files[0],
        stderr=output.files[1],
        pass_fds=handles,
        start_new_session=True,
    )


def _job(process: subprocess.Popen[bytes]) -> Any:
    """What ends it on Windows when this process ends, even while C code holds its GIL; None where there is none."""
    from necropsy.capture.windows.job import JobObject

    with contextlib.suppress(OSError):
        return JobObject(int(process._handle), ends_with_us=True)  # type: ignore[attr-defined]  # noqa: SLF001
    return None


def _pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection; on Windows one over TCP, which another process may have got hold of."""
    ours, theirs = socket.socketpair()
    if sys.platform == "win32":
        if (ours.getsockname(), ours.getpeername()) != (theirs.getpeername(), theirs.getsockname()):
            raise NecropsyError("another process connected to a worker's socket")
        for one in (ours, theirs):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs
