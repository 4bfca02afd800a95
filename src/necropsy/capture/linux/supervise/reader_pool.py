"""The processes that read deaths, and the deaths that wait for one of them."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from necropsy.capture.linux.supervise import crash_capture
from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.capture.linux.supervise.read_jobs import ReadJob
from necropsy.capture.linux.supervise.secondary_exits import LOOK_S
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.model import Crash

if TYPE_CHECKING:
    from necropsy.capture.linux.supervise.crash_reader import Reader  # it loads what healthy runs need not

MOST = 2
"""Deaths that are read at the same time."""
WARM_S = 2.0
"""A run that lasts so long has a reader, which takes some 0.1 s of CPU to get ready."""
_SLACK_S = 10.0
"""How much longer than its budget reading may take before its process is stopped."""

_REQUEST_SLACK_S = 2.0
"""The same for a process that somebody asks to end, who may have little patience."""


class ReaderPool:
    """Reads jobs in the order in which they come. No process is held longer than its own reading takes."""

    def __init__(
        self,
        budget_s: float,
        death_of: Callable[[ReadJob], CrashContext],
        on_read: Callable[[ReadJob, Callable[[], Crash], bool], None],
    ) -> None:
        """``on_read`` is told the crash, to be unpacked when it is needed, and whether the core was written."""
        self._budget_s, self._death_of, self._on_read = budget_s, death_of, on_read
        self._readers: dict[int, Reader] = {}
        self._busy: dict[int, ReadJob] = {}
        """Both by the process that reads."""
        self._waiting: deque[ReadJob] = deque()
        self._warm_at: float | None = time.monotonic() + WARM_S

    @property
    def wait_s(self) -> float | None:
        """How long to wait before ``look`` is called; None where nothing is awaited."""
        waits = [LOOK_S] if self._busy else []
        waits += [max(self._warm_at - time.monotonic(), 0.0)] if self._warm_at is not None else []
        return min(waits, default=None)

    def add(self, job: ReadJob) -> None:
        """All threads of its process stand."""
        self._waiting.append(job)
        self._next()

    def look(self) -> None:
        """Collect what has been read, stop what takes too long; have a reader ready where the run lasts a while."""
        for pid, job in list(self._busy.items()):
            reader = self._readers[pid]
            if reader.has_finished():
                self._collect(reader, None)
            elif time.monotonic() > job.until:
                reader.stop()
        self._next()
        if self._warm_at is not None and time.monotonic() >= self._warm_at:
            self._warm_at = None
            with contextlib.suppress(OSError):  # no process is left
                self._start()

    def ended(self, pid: int, status: int) -> bool:
        """A child of this process has ended with this wait status; false where it is none of the readers."""
        reader = self._readers.pop(pid, None)
        if reader is None:
            return False
        self._collect(reader, status)
        self._next()
        return True

    def drop(self, process: Traced) -> None:
        """The process has executed something else: what was to be read is gone."""
        for job in self._waiting:
            job.is_void = job.is_void or job.process is process
        for pid, job in self._busy.items():
            if job.process is process:
                job.is_void = True
                self._readers[pid].stop()

    def close(self) -> None:
        """Nothing more is to be read, for now: at the next death a reader is started."""
        while self._readers:
            _, reader = self._readers.popitem()
            reader.stop()
            with contextlib.suppress(OSError):
                os.waitpid(reader.pid, 0)
        self._warm_at = None

    def _start(self) -> Reader:
        from necropsy.capture.linux.supervise.crash_reader import Reader

        reader = Reader.start()
        self._readers[reader.pid] = reader
        return reader

    def _next(self) -> None:
        while self._waiting and len(self._busy) < MOST:
            job = self._waiting.popleft()
            if not job.is_void:
                self._read(job, self._death_of(job))

    def _read(self, job: ReadJob, death: CrashContext) -> None:
        slack_s = _SLACK_S if job.request is None else _REQUEST_SLACK_S
        job.until = time.monotonic() + job.budget_s(self._budget_s) + slack_s
        self._warm_at = None
        try:
            reader = next((one for one in self._readers.values() if one.is_free), None) or self._start()
            reader.read(death)
        except OSError:  # no process is left: then here, while all others wait
            crash = crash_capture.read(death)
            self._on_read(job, lambda: crash, crash.gap("core") is None)
        else:
            self._busy[reader.pid] = job

    def _collect(self, reader: Reader, status: int | None) -> None:
        job = self._busy.pop(reader.pid, None)
        if job is not None:
            crash, has_core = reader.collect(status)
            if not job.is_void:
                self._on_read(job, crash, has_core)
