"""Processes that a signal has stopped, and that wait to be continued: Ctrl-Z, and whoever sends SIGSTOP."""

from __future__ import annotations

import contextlib
import os
import signal

from necropsy.capture.linux.supervise.event_loop import Loop
from necropsy.capture.linux.supervise.interrupted_calls import InterruptedCalls
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.traced_processes import Traced


class StoppedProcesses:
    """Serves the stops of a group-stop; the front stops and goes on with the command."""

    def __init__(self, loop: Loop, interrupted: InterruptedCalls, facts: Facts, root: Traced, front: int) -> None:
        self._loop, self._interrupted, self._facts = loop, interrupted, facts
        self._root, self._front = root, front

    def serve(self, process: Traced, tid: int, *, rests: bool) -> None:
        """Note that a thread has been stopped, or continued after that. Raises OSError where the thread is gone."""
        self._interrupted.event_stop(tid, by_signal=rests)
        if rests:
            self._loop.listen(tid)
        else:
            self._loop.resume(tid)
        if process is not self._root or process.group_stopped == rests:
            return
        process.group_stopped = rests
        self._facts.mark_at_rest(rests)
        if not rests and os.getppid() == self._front:
            # The front stopped itself along with the command; whoever continued the command may not know of it.
            with contextlib.suppress(OSError):
                os.kill(self._front, signal.SIGCONT)
