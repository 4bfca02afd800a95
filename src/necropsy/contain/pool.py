"""Workers that are used again: one for each call at a time, and a spare that is ready when one dies."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from necropsy.contain import messages
from necropsy.contain.functions import define
from necropsy.contain.nursery import Nursery
from necropsy.contain.process import DeadlineError, WorkerProcess
from necropsy.crashed import Crashed
from necropsy.errors import NecropsyError

_CLOSE_S = 2.0
Mode = Literal["call", "values", "batch"]
"""One result; the values of a generator function; the results of all records in a list."""


class _WorkerTraceback(Exception):  # noqa: N818 - shown as the cause of the caller's exception
    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class Pool:
    """At most ``workers`` calls at once; others wait for their turn."""

    def __init__(self, workers: int | None, imports: tuple[str, ...]) -> None:
        self.workers = workers or os.cpu_count() or 1
        self.nursery = Nursery(imports)
        self.closed = False
        self._renew()

    def _renew(self) -> None:
        """In a process that has no workers yet: a new one, or a forked child."""
        self._pid = os.getpid()
        self._turns = threading.Semaphore(self.workers)
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()

    # ------------------------------------------------------------ workers

    @contextlib.contextmanager
    def worker(self, *, waits: bool = True, fresh: bool = False) -> Iterator[WorkerProcess]:
        """A worker for one call; used again if it is alive at the end of a call that raised nothing here.

        ``waits``: for its turn, where as many calls run as may. ``fresh``: one that has run nothing.

        Raises NecropsyError where the pool is closed.
        """
        if self._pid != os.getpid():
            self._renew()
        with self._turns if waits else contextlib.nullcontext():
            worker = self._take(fresh=fresh)
            try:
                try:
                    worker.greet()
                except Crashed:  # by what it loaded before its first call, or it was killed: once more without
                    worker = self._replaced(worker)
                    worker.greet()
                yield worker
            except BaseException:
                if not worker.died:
                    worker.kill()
                raise
            finally:
                self._give_back(worker)

    def _take(self, *, fresh: bool) -> WorkerProcess:
        with self._lock:
            if self.closed:
                raise NecropsyError("the pool of workers is closed")
            for gone in [one for one in self._idle if one.is_gone]:
                self._idle.remove(gone)
                gone.finish(0.0)
            # The first is the spare: it has not answered yet, unless it is the last of all.
            spare = bool(self._idle) and not self._idle[0].pid
            worker = self._idle.pop(0 if fresh else -1) if self._idle and (spare or not fresh) else self._start()
            if not self._idle:
                self._idle.append(self._start())
            self._busy.add(worker)
            worker.is_busy = True
        return worker

    def _replaced(self, lost: WorkerProcess) -> WorkerProcess:
        with self._lock:
            self._busy.discard(lost)
            worker = WorkerProcess(self.nursery, bare=True)
            worker.is_busy = True
            self._busy.add(worker)
        return worker

    def _start(self) -> WorkerProcess:
        return WorkerProcess(self.nursery)

    def interrupt(self) -> None:
        """End the calls that run."""
        with self._lock:
            busy = list(self._busy)
        for worker in busy:
            worker.interrupt()

    def _give_back(self, worker: WorkerProcess) -> None:
        with self._lock:
            self._busy.discard(worker)
            worker.is_busy = False
            if worker.died:
                return
            if not self.closed:
                self._idle.append(worker)
                return
        worker.dismiss()
        worker.finish(_CLOSE_S)

    def close(self) -> None:
        """End the idle workers; those that are busy end after their call."""
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
        if self._pid != os.getpid():
            return
        for worker in idle:
            worker.dismiss()
        for worker in idle:
            worker.finish(_CLOSE_S)
        self.nursery.close()


def positive(**limits: float | None) -> None:
    """Refuse limits that cannot be kept. Raises ValueError where one is 0 or less."""
    for name, limit in limits.items():
        if limit is not None and limit <= 0:
            raise ValueError(f"{name} must be greater than 0, not {limit}")


def name_of(function: Callable[..., Any]) -> str:
    """The function in messages."""
    return str(getattr(function, "__qualname__", None) or repr(function))


class Call:
    """One call of a function with its arguments, pickled and ready to be sent.

    Raises:
        TypeError: the function or its arguments cannot be pickled.
        NecropsyError: this system cannot limit the memory.

    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        timeout: float | None = None,
        memory: int | None = None,
        mode: Mode = "call",
    ) -> None:
        if memory is not None and sys.platform != "linux":
            raise NecropsyError(f"memory= works on Linux only, not on {sys.platform}")
        self.name = name_of(function)
        self.timeout = timeout
        self._worker: WorkerProcess | None = None
        self._cancelled = False
        self._definition = definition = define(function)
        try:
            self.message = messages.packed((definition, args, kwargs, memory, mode, timeout))
        except Exception as error:
            raise TypeError(f"an argument of {self.name} cannot be pickled for the worker process: {error}") from error

    def run(self, pool: Pool, *, fresh: bool = False) -> Any:
        """What the function returns; ``fresh``: from a worker that has run nothing.

        Raises:
            Crashed: the worker died.
            TimedOut: it did not return in time.
            Exception: what the function raised.

        """
        pool.nursery.expect(self._definition)
        with pool.worker(fresh=fresh) as worker:
            self._worker = worker
            if self._cancelled:
                worker.interrupt()
            worker.send(self.message)
            answer = self._answer(worker)
        try:
            return _result(*answer)
        finally:
            del answer  # an exception in it has this frame in its traceback: a cycle, which would keep much alive

    @property
    def progress(self) -> int:
        """Of a batch: the place of the record that its worker began last."""
        return self._worker.progress if self._worker is not None else 0

    def cancel(self) -> None:
        """From another thread: end the worker that runs it, or will."""
        self._cancelled = True
        if self._worker is not None:
            self._worker.interrupt()

    def values(self, pool: Pool) -> Iterator[Any]:
        """The values of a generator function; the time limit is for each of them."""
        # One thread may hold any number of generators: if they waited for each other, it would wait for ever.
        pool.nursery.expect(self._definition)
        with pool.worker(waits=False) as worker:
            worker.send(self.message)
            while True:
                answer = self._answer(worker)
                if answer[0] != "item":
                    break
                yield answer[1]
        try:
            _result(*answer)
        finally:
            del answer

    def _answer(self, worker: WorkerProcess) -> tuple[Any, ...]:
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        try:
            data = worker.receive(deadline)
        except DeadlineError:
            raise worker.time_out(self.name, self.timeout or 0.0) from None
        try:
            answer: tuple[Any, ...] = messages.loads(data)
        except Exception as error:  # noqa: BLE001 - whatever a class does when it is unpickled
            what = f"the result of {self.name} could not be sent back: it cannot be unpickled here: {error}"
            return ("raised", TypeError(what), "")
        return answer


def explained(error: BaseException, text: str) -> BaseException:
    """An exception that was raised in a worker, with the text of its traceback there as its cause."""
    if text and not isinstance(error, Crashed):
        error.__cause__ = _WorkerTraceback(text)
    return error


def _result(kind: str, value: Any = None, text: str = "") -> Any:
    if kind != "raised":
        return value
    try:
        raise explained(value, text)
    finally:
        del value
