"""One worker process as its caller sees it: started by the nursery, called, read when it dies, ended."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import time
import weakref
from typing import TYPE_CHECKING, Any

from necropsy.contain import nursery, nursery_process, spawned, spawned_process, worker
from necropsy.contain.forked import Forked
from necropsy.contain.messages import Message, MessageChannel, loads
from necropsy.contain.nursery import Nursery
from necropsy.contain.wire import readable
from necropsy.contain.worker import PROGRESS
from necropsy.crashed import Crashed, own_report, signal_name
from necropsy.watch.client import VARIABLE

if TYPE_CHECKING:
    from necropsy.model import Document

_LOOK_S = 0.05
"""How often the output of a worker is copied during a call."""
_STACKS_S = 5.0
"""How long a worker that ran too long has to end while its stacks are read."""
_WRITTEN_S = 0.5
"""How long after the end of its time a worker that nobody traces may take to write its stacks."""
_SIGKILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_REPORT_S = 60.0
_START_S = 120.0
_KILL_S = 1.0
_WORKERS: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


class TimedOut(Crashed):
    """A call did not return in time: where it stood was read, then its worker was stopped."""


class DeadlineError(Exception):
    """The time of a call is over; the worker still runs."""


class WorkerProcess:
    """A worker, which the watcher traces where it can."""

    def __init__(self, nursery: Nursery, *, bare: bool = False) -> None:
        """Start it. ``bare``: it loads no function before its first call.

        Raises NecropsyError where this system cannot start one.
        """
        start = spawned.Spawned if spawned.SPAWNS else Forked
        self.started: Forked | spawned.Spawned = start(nursery, bare=bare)
        self.pid = 0
        """Its number, once it has said that it is ready."""
        self.died = self.is_busy = self._is_closed = self._is_interrupted = False
        self._unwatched: str | None = None
        """Why nobody traces it."""
        self._status: int | None = None
        """How it ended, as ``subprocess`` has it: minus the signal, or the exit code."""
        self.channel = MessageChannel(self.started.connection)
        _WORKERS.add(self)

    # ------------------------------------------------------------ calls

    def greet(self) -> None:
        """Wait until it is ready. Raises Crashed where it died before that."""
        if not self.pid:
            self.pid, watcher, self._unwatched = loads(self.receive(time.monotonic() + _START_S))
            self.started.pid = self.pid
            if watcher is not None:
                os.environ[VARIABLE] = watcher  # it started one, and has our children join it

    def send(self, message: Message) -> None:
        """Send one message; that it has died, ``receive`` will tell."""
        self.started.output.forget()
        with contextlib.suppress(OSError):
            self.channel.post(message)

    def receive(self, deadline: float | None) -> Message:
        """The next message; meanwhile the output is copied.

        Raises Crashed where it died, and DeadlineError where none came before ``deadline`` (by ``time.monotonic()``).
        """
        if not self._readable(0.0):
            while True:
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
                if self._readable(max(0.0, left)):
                    break
                self.started.output.copy()
                if deadline is not None and time.monotonic() >= deadline:
                    raise DeadlineError
        try:
            message = self.channel.take()
        except EOFError:
            raise self.death() from None
        self.started.output.copy()
        return message

    def _readable(self, seconds: float) -> bool:
        return readable(self.channel.connection, seconds)

    @property
    def progress(self) -> int:
        """Of a batch: the place of the record that was begun last."""
        return int(PROGRESS.unpack_from(self.started.progress)[0])

    # ------------------------------------------------------------ deaths

    def death(self) -> Crashed:
        """What it died of, once its connection has closed."""
        document = self._end()
        if document is not None:
            crashed = Crashed.of(document, self.pid)
            _without_ours(crashed)
            return crashed
        status = self._status
        if status is None:
            return Crashed.without_report()
        if status < 0:
            return Crashed.without_report(signal=signal_name(-status))
        return Crashed.without_report(exit_code=status)

    def time_out(self, name: str, seconds: float) -> TimedOut:
        """Stop it; its stacks are read at the signal, or it has written them."""
        if self._unwatched is None:
            self.started.stop(signal.SIGTERM)
            until = time.monotonic() + _STACKS_S
            while not self._readable(_LOOK_S):
                if time.monotonic() > until:
                    self.started.stop(_SIGKILL)
                    break
        else:
            until, before = time.monotonic() + _WRITTEN_S, ""
            while (not before or before != self.started.output.fault()) and time.monotonic() < until:
                before = self.started.output.fault()
                time.sleep(0.02)
            self.started.stop(_SIGKILL)
        document = self._end(timed_out=True)
        where = ""
        fields: dict[str, Any] = {"rule": "hang", "signal": None, "exit_code": None}
        if document is not None:
            found = Crashed.of(document, self.pid)
            _without_ours(found)
            fields |= {"report": document, "python": found.python, "signature": found.signature}
            fields["function"] = _native(document, self.pid)
            if found.python:
                first = found.python[0]
                where = f"; it was in {first['function']}, {first['file']}:{first['line']}"
            if fields["function"]:
                where += f", in the native function `{fields['function']}`"
        return TimedOut(f"{name} did not return within {seconds:g} s{where}", **fields)

    def _end(self, *, timed_out: bool = False) -> Document | None:
        """Its document, after its end."""
        self.died = True
        self._status = self._wait(_REPORT_S)
        if self._status is None:  # what closed the connection is another program, or nobody is left to see its end
            self.started.stop(_SIGKILL)
        document = self._reported()
        self.started.output.copy()
        if document is None and self._status is not None and not self._is_interrupted:
            with contextlib.suppress(Exception):  # what goes wrong in it must not hide the death
                from necropsy.contain import unreported

                end = unreported.End(self.pid, self._status, timed_out=timed_out, unwatched=self._unwatched)
                document = end.document(self.started.output.tail(), self.started.output.fault())
        self._close()
        return document

    def _reported(self) -> Document | None:
        if not self.pid or self._is_interrupted or self._unwatched is not None:
            return None
        from necropsy import watch

        # A process that ends by an exit code is held until its report is written, if there is one.
        is_exit = self._status is not None and self._status >= 0
        return watch.report(self.pid, 0.0 if is_exit else _REPORT_S)

    def _wait(self, seconds: float) -> int | None:
        """How it ended; None where that is not known in time."""
        until = time.monotonic() + seconds
        while not self.started.has_ended(_LOOK_S):
            self.started.output.copy()
            if time.monotonic() > until:
                return None
        return self.started.status()

    # ------------------------------------------------------------ the end

    def kill(self) -> None:
        """End it at once, without a report: nobody wants its answer any more."""
        self.died = True
        self.interrupt()
        if self._wait(_KILL_S) is None:
            self.started.stop(_SIGKILL)
        self.started.output.copy()
        self._close()

    def interrupt(self) -> None:
        """The same from another thread: whoever waits for its answer sees it die."""
        self._is_interrupted = True
        self.started.interrupt()

    def dismiss(self) -> None:
        """Let it end by itself, at the end of its connection."""
        self.died = True
        with contextlib.suppress(OSError):
            self.channel.connection.shutdown(socket.SHUT_RDWR)

    def finish(self, seconds: float) -> None:
        """Wait for the end after ``dismiss``."""
        if self._is_closed:
            return
        if self._wait(seconds) is None:
            self.kill()
        else:
            self.started.output.copy()
            self._close()

    def abandon(self) -> None:
        """In a forked child of the caller: give up what is the parent's."""
        self.died = True
        self.started.abandon()
        self._close()

    @property
    def is_gone(self) -> bool:
        """It ended while nobody called it."""
        return self._is_closed or (bool(self.pid) and self._readable(0.0))

    def _close(self) -> None:
        self._is_closed = True
        self.channel.close()
        self.started.close()
        _WORKERS.discard(self)


def _without_ours(crashed: Crashed) -> None:
    ours = {worker.__file__, nursery_process.__file__, spawned_process.__file__}
    crashed.python = [frame for frame in crashed.python if frame["file"] not in ours]


def _native(document: Document, pid: int) -> str | None:
    """The innermost named native function of the main thread."""
    report = own_report(document, pid)
    if report is None:
        return None
    main = next((thread for thread in report.crash.threads or () if thread.tid == report.pid), None)
    return next((frame.function for frame in (main.frames if main else None) or () if frame.function), None)


def _at_exit() -> None:
    # Those that are busy end with this process: the threads that wait for them do not live to see it.
    workers = [one for one in _WORKERS if not one.is_busy]
    for one in workers:
        one.dismiss()
    for one in workers:
        one.finish(1.0)
    nursery.at_exit()


def _in_forked_child() -> None:
    for one in list(_WORKERS):
        one.abandon()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
