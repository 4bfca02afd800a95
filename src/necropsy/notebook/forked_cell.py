"""A cell in a forked copy of the kernel, as the kernel sees it: its output, its variables, its exception, its death."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from multiprocessing import Pipe
from typing import Any, TypeVar

from necropsy.contain.output import Output
from necropsy.contain.process import TimedOut
from necropsy.crashed import Crashed, signal_name
from necropsy.model import Document
from necropsy.notebook import cell_child, death_text
from necropsy.watch import client
from necropsy.watch.asking import report

_LOOK_S = 0.05
_INTERRUPTED_S = 2.0
"""How long an interrupted cell has to end."""
_REPORT_S = 30.0
_FOREVER_S = 10**8
_KEPT: list[Any] = []
_KEEPING = threading.Lock()
_THREADED = ("tensorflow", "torch", "jax")


class ForkedCell:
    """One run of one cell."""

    def __init__(self, shell: Any, cell: str, names: Sequence[str]) -> None:
        self.shell, self.names = shell, names
        self.unwatched: str | None = None
        """Why there will be no report."""
        with contextlib.suppress(OSError):
            keep_a_watcher()
        self.output = Output()
        self.connection, theirs = Pipe()
        lifeline, self.lifeline = os.pipe()
        self.reaped: int | None = None
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        try:
            with warnings.catch_warnings():
                # A kernel has threads. The copy uses nothing that they hold; the how-to says what a cell must not use.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
            if not self.pid:
                os.close(self.lifeline)
                self.connection.close()
                cell_child.become(shell, cell, names, theirs, (lifeline, *self.output.files))
        finally:
            theirs.close()
            os.close(lifeline)
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)  # here too: whoever comes first

    def run(self, seconds: float | None) -> None:
        """Wait for its end, and take over what came of it.

        Raises:
            Crashed: it died.
            TimedOut: it did not end within ``seconds``.
            Exception: what the cell raised.

        """
        try:
            self._finish(self._answer(None if seconds is None else time.monotonic() + seconds, seconds or 0.0))
        except KeyboardInterrupt:
            self._signal(signal.SIGINT)
            with contextlib.suppress(TimedOut, Crashed):
                self._answer(time.monotonic() + _INTERRUPTED_S, 0.0)
            raise
        finally:
            self._end()

    def _answer(self, deadline: float | None, seconds: float) -> tuple[Any, ...]:
        """The last message, after what the cell displays has been displayed."""
        while True:
            left = _LOOK_S if deadline is None else max(0.0, min(_LOOK_S, deadline - time.monotonic()))
            if not self.connection.poll(left):
                self.output.copy()
                if deadline is not None and time.monotonic() >= deadline:
                    raise self._timed_out(seconds)
                continue
            try:
                message = self.connection.recv_bytes()
            except (EOFError, OSError):
                raise self._death() from None
            self.output.copy()
            kind, *rest = pickle.loads(message)  # noqa: S301 - from our own child
            if kind == "display":
                data, metadata, more = rest
                self.shell.display_pub.publish(data, metadata, **more)
            elif kind == "clear":
                self.shell.display_pub.clear_output(*rest)
            elif kind == "unwatched":
                self.unwatched = rest[0]
            else:
                return (kind, *rest)

    def _finish(self, answer: tuple[Any, ...]) -> None:
        if answer[0] == "raised":
            raise _again(*answer[1:])
        failed = []
        for name, value in answer[1].items():
            if isinstance(value, str):
                failed.append(f"{name}: {value}")
                continue
            try:
                self.shell.push({name: pickle.loads(value)})  # noqa: S301 - from our own child
            except Exception as error:  # noqa: BLE001 - whatever a class does when it is unpickled
                failed.append(f"{name}: it cannot be unpickled here: {error}")
        if failed:
            message = f"not every variable could be sent back to the notebook: {'; '.join(failed)}"
            raise shown_as(TypeError(message), [f"TypeError: {message}"])

    # ------------------------------------------------------------ deaths

    def _death(self) -> Crashed:
        status = self._reap()
        self.output.copy()
        document = self._document() if self.unwatched is None else None
        if document is not None:
            return Crashed.of(document)
        if os.WIFSIGNALED(status):
            crashed = Crashed.without_report(signal=signal_name(os.WTERMSIG(status)))
        else:
            crashed = Crashed.without_report(exit_code=os.WEXITSTATUS(status))
        if self.unwatched is not None:
            crashed.args = (f"{crashed} Its crash was not seen: {self.unwatched}.",)
        return crashed

    def _document(self) -> Document | None:
        found = report(self.pid, _REPORT_S)
        return death_text.only(found, self.pid) if found is not None else None

    def _timed_out(self, seconds: float) -> TimedOut:
        """End it by a signal at which its stacks are read."""
        text = f"the cell did not end within {seconds:g} s"
        fields: dict[str, Any] = {"rule": "hang"}
        if self.unwatched is None:
            with contextlib.suppress(OSError):
                client.register(self.pid, show=False, keep=False)
                self._signal(signal.SIGABRT)
                document = self._document()
                if document is not None:
                    found = Crashed.of(document)
                    fields |= {"report": document, "python": found.python, "signature": found.signature}
        threaded = " and ".join(name for name in _THREADED if name in sys.modules)
        if threaded:
            text += (
                f". The notebook had imported {threaded}, whose threads do not exist in the process of the cell: "
                f"if it waited for them, import {threaded} in the %%necropsy cell only"
            )
        return TimedOut(text, **fields)

    def _signal(self, number: int) -> None:
        """To the cell and the processes that it started."""
        if self.reaped is None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)

    def _reap(self) -> int:
        if self.reaped is None:
            self.reaped = os.waitpid(self.pid, 0)[1]
        return self.reaped

    def _end(self) -> None:
        self.connection.close()
        if self.reaped is None:
            # After its last message it ends by itself, at once.
            until = time.monotonic() + _LOOK_S
            while self.reaped is None and time.monotonic() < until:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.reaped = status
                else:
                    time.sleep(0.001)
        self._signal(signal.SIGKILL)
        self._reap()
        self.output.copy()
        self.output.close()
        os.close(self.lifeline)


def keep_a_watcher() -> None:
    """A watcher that stays as long as this kernel, so that the next cell need not wait for one.

    Raises OSError where it cannot be started.
    """
    with _KEEPING:
        path = os.environ.get(client.VARIABLE)
        if path is not None:
            with contextlib.suppress(OSError):
                client.ask(path, b"wishes")
                return
        connection = client.connect(client.start())
        connection.send(b"report %d %d" % (os.getpid(), _FOREVER_S))  # it waits for our end
        _KEPT[:] = [connection]


def _again(data: bytes, name: str, text: str, lines: list[str]) -> BaseException:
    """The exception of the cell, shown with its traceback there."""
    error: BaseException | None = None
    with contextlib.suppress(Exception):
        error = pickle.loads(data) if data else None  # noqa: S301 - from our own child
    if error is None or isinstance(error, SyntaxError | SystemExit):  # IPython shows those two in its own way
        error = type(name, (Exception,), {"__module__": "builtins"})(text)
    return shown_as(error, lines) if lines else error


E = TypeVar("E", bound=BaseException)


def shown_as(error: E, lines: list[str]) -> E:
    """The exception, which IPython then shows as ``lines`` instead of with a traceback through this package."""
    error._render_traceback_ = lambda: lines  # type: ignore[attr-defined] # how IPython asks for it
    return error
