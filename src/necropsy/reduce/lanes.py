"""Places for trials at the same time: each has a copy of the program's folder, and an interpreter to fork from."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from necropsy.reduce.runner import Outcome, Runner

Run = Callable[[Runner, Callable[[], bool]], list[Outcome]]
"""Runs a candidate, some times if need be, until its second argument says that nobody wants to know any more."""


@dataclass(frozen=True)
class Running:
    """The runs of one candidate."""

    future: Future[list[Outcome]]
    unwanted: threading.Event

    def give_up(self) -> None:
        """Nobody wants to know any more."""
        self.unwanted.set()
        self.future.cancel()


class Lanes:
    """``count`` runners, of which the first is the campaign's own."""

    def __init__(self, own: Runner, count: int) -> None:
        self.count = count
        self._own = own
        self._others = [own.twin(own.workspace.twin()) for _ in range(count - 1)]
        self._free: queue.SimpleQueue[Runner] = queue.SimpleQueue()
        for runner in (own, *self._others):
            self._free.put(runner)
        self._executor = ThreadPoolExecutor(count)

    def start(self, run: Run) -> Running:
        """Run a candidate as soon as a lane is free."""
        unwanted = threading.Event()

        def run_in_lane() -> list[Outcome]:
            runner = self._free.get()
            try:
                return run(runner, unwanted.is_set)
            finally:
                self._free.put(runner)

        return Running(self._executor.submit(run_in_lane), unwanted)

    def close(self) -> None:
        """End all runs, and remove the copies."""
        for runner in (self._own, *self._others):
            runner.stop()
        self._executor.shutdown(cancel_futures=True)
        self._own.close()
        for runner in self._others:
            runner.close()
            runner.workspace.close()
