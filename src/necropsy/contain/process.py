"""One worker process as its caller sees it: started under our supervisor, called, read when it dies, ended."""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

from necropsy import serialize, supervised
from necropsy.contain import worker as worker_script
from necropsy.contain.output import Output, unnamed_file
from necropsy.contain.wire import Channel
from necropsy.crashed import Crashed, own_report, signal_name
from necropsy.errors import NecropsyError
from necropsy.model import Document

_LOOK_S = 0.05
"""How often the output of a worker is copied during a call."""
_STACKS_S = 5.0
"""How long a worker that ran too long has to end while its stacks are read."""
_REPORT_S = 60.0
_START_S = 120.0
_LENGTH = struct.Struct("!Q")
_PROGRESS = struct.Struct("=Q")
_WORKERS: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


class TimedOut(Crashed):
    """A call did not return in time: where it stood was read, then its worker was stopped."""


class DeadlineError(Exception):
    """The time of a call is over; the worker still runs."""


class WorkerProcess:
    """A worker and its supervisor."""

    def __init__(self, imports: tuple[str, ...], *, watched: bool = True) -> None:
        """Start it; with a supervisor where it is ``watched``.

        Raises:
            NecropsyError: this system cannot start one.

        """
        if sys.platform == "win32":
            raise NecropsyError("necropsy.contain does not work on Windows yet")
        ours, theirs = socket.socketpair()
        lifeline, self.lifeline = os.pipe()
        self.report, report = os.pipe()
        self.pid = self.tracer = 0
        self.died = False
        self.output = Output()
        shared = unnamed_file("progress")
        os.ftruncate(shared, _PROGRESS.size)
        self._progress = mmap.mmap(shared, _PROGRESS.size)
        given = (theirs.fileno(), lifeline, report, shared)
        script = str(Path(worker_script.__file__))
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
        supervisor = supervised.command(Path(f"/dev/fd/{report}"), None) if watched else []
        command = [*supervisor, sys.executable, *flags, script]
        try:
            self.process = subprocess.Popen(
                [*command, *map(str, given)],
                stdin=subprocess.DEVNULL,
                stdout=self.output.files[0],
                stderr=self.output.files[1],
                pass_fds=given,
                start_new_session=True,
            )
        except BaseException:
            self.output.close()
            for handle in (self.lifeline, self.report):
                os.close(handle)
            raise
        finally:
            theirs.close()
            for handle in given[1:]:
                os.close(handle)
        self.connection = ours
        self.channel = Channel(ours)
        ours.setblocking(True)
        first = pickle.dumps((sys.path, sys.argv, imports), protocol=5)
        ours.sendall(_LENGTH.pack(len(first)) + first)
        _WORKERS.add(self)

    # ------------------------------------------------------------ calls

    def greet(self) -> None:
        """Wait until it is ready.

        Raises:
            Crashed: it died before that.

        """
        if not self.pid:
            self.pid, self.tracer = self.channel.loads(self.receive(time.monotonic() + _START_S))

    def send(self, message: bytes) -> None:
        """Send one message; that it has died, ``receive`` will tell."""
        self.output.forget()
        with contextlib.suppress(OSError):
            self.channel.send(message)

    def receive(self, deadline: float | None) -> bytes:
        """The next message; meanwhile the output is copied.

        Raises:
            Crashed: it died.
            DeadlineError: not before ``deadline`` (by ``time.monotonic()``).

        """
        if not self._readable(0.0):
            while True:
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
                if self._readable(max(0.0, left)):
                    break
                self.output.copy()
                if deadline is not None and time.monotonic() >= deadline:
                    raise DeadlineError
        try:
            data = self.channel.receive()
        except EOFError:
            raise self.death() from None
        self.output.copy()
        return data

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    @property
    def progress(self) -> int:
        """Of a batch: the place of the record that was begun last."""
        return int(_PROGRESS.unpack_from(self._progress)[0])

    # ------------------------------------------------------------ deaths

    def death(self) -> Crashed:
        """What it died of, once its connection has closed."""
        document = self._end()
        if document is None:
            code = self.process.returncode
            crashed = Crashed.without_report(
                signal=signal_name(-code) if code is not None and code < 0 else None,
                exit_code=code if code is not None and code >= 0 else None,
            )
        else:
            crashed = Crashed.of(document)
        _without_ours(crashed)
        return crashed

    def time_out(self, name: str, seconds: float) -> TimedOut:
        """Stop it; the supervisor reads its stacks at the signal."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + _STACKS_S
        while not self._readable(_LOOK_S):
            if time.monotonic() > until:
                self._signal(signal.SIGKILL)
                break
        document = self._end()
        where = ""
        fields: dict[str, Any] = {"rule": "hang", "signal": None, "exit_code": None}
        if document is not None:
            found = Crashed.of(document)
            _without_ours(found)
            fields |= {"report": document, "python": found.python, "signature": found.signature}
            fields["function"] = _native(document)
            if found.python:
                first = found.python[0]
                where = f"; it was in {first['function']}, {first['file']}:{first['line']}"
            if fields["function"]:
                where += f", in the native function `{fields['function']}`"
        return TimedOut(f"{name} did not return within {seconds:g} s{where}", **fields)

    def _end(self) -> Document | None:
        """Its document, after its end."""
        self.died = True
        data = bytearray()
        poll = select.poll()
        poll.register(self.report, select.POLLIN)
        until = time.monotonic() + _REPORT_S
        while time.monotonic() < until:
            if not poll.poll(_LOOK_S * 1000):
                self.output.copy()
                if supervised_lost(self.process, self.tracer):
                    break
                continue
            part = os.read(self.report, 1 << 20)
            if not part:
                break
            data += part
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STACKS_S)
        self.output.copy()
        self._close()
        with contextlib.suppress(NecropsyError):
            return serialize.loads(bytes(data))
        return None

    def _signal(self, number: int) -> None:
        """To the worker, while its supervisor has not reaped it."""
        if self.pid and self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    # ------------------------------------------------------------ the end

    def kill(self) -> None:
        """End it at once, without a report: nobody wants its answer any more."""
        self.died = True
        self.interrupt()
        self.process.wait()
        self.output.copy()
        self._close()

    def interrupt(self) -> None:
        """The same from another thread: whoever waits for its answer sees it die."""
        if self.process.poll() is None:
            for pid in (self.tracer, self.pid, self.process.pid):  # the tracer first, or it would report the others
                with contextlib.suppress(OSError):
                    if pid:
                        os.kill(pid, signal.SIGKILL)

    def dismiss(self) -> None:
        """Let it end by itself, at the end of its connection."""
        self.died = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def finish(self, seconds: float) -> None:
        """Wait for the end after ``dismiss``."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self.output.copy()
            self._close()

    def abandon(self) -> None:
        """In a forked child of the caller: give up what is the parent's."""
        self.died = True
        self.process.returncode = 0  # not our child: nothing to wait for
        self.output = Output()  # a thread of the parent may hold the lock of the other one
        self._close()

    @property
    def is_gone(self) -> bool:
        """It ended while nobody called it."""
        return bool(self.pid) and self._readable(0.0)

    def _close(self) -> None:
        self.connection.close()
        self.output.close()
        for handle in (self.lifeline, self.report):
            with contextlib.suppress(OSError):
                if handle >= 0:
                    os.close(handle)
        self.lifeline = self.report = -1
        _WORKERS.discard(self)


def supervised_lost(process: subprocess.Popen[bytes], tracer: int) -> bool:
    """Nobody is left who could write the report."""
    if process.poll() is None:
        return False
    try:
        os.kill(tracer or process.pid, 0)
    except OSError:
        return True
    return not tracer


def _without_ours(crashed: Crashed) -> None:
    """Leave out the frames of the worker's own loop."""
    ours = {str(Path(worker_script.__file__))}
    crashed.python = [frame for frame in crashed.python if frame["file"] not in ours]


def _native(document: Document) -> str | None:
    """The innermost named native function of the main thread."""
    report = own_report(document)
    if report is None:
        return None
    main = next((thread for thread in report.crash.threads or () if thread.tid == report.pid), None)
    return next((frame.function for frame in (main.frames if main else None) or () if frame.function), None)


def _at_exit() -> None:
    workers = list(_WORKERS)
    for worker in workers:
        worker.dismiss()
    for worker in workers:
        worker.finish(1.0)


def _in_forked_child() -> None:
    for worker in list(_WORKERS):
        worker.abandon()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_forked_child)
