"""``with necropsy.profile()``: how deep the stacks of this process itself got, and its memory, during a block."""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timezone
from types import TracebackType

from necropsy.capture.linux.inspect.own_stacks import OwnStacks
from necropsy.capture.linux.inspect.resource_use import ResourceReader
from necropsy.document import of_run
from necropsy.model import Diagnosis, Document, Exit, Process, ResourceUse, RunRecord, StackUse
from necropsy.profile.documents import judged


class Profiled:
    """What a block used; known once the block has ended, also by an exception.

    ``document`` has all of it, as `necropsy profile` writes it.
    """

    def __init__(self) -> None:
        self._document: Document | None = None

    def __enter__(self) -> Profiled:  # noqa: PYI034 - ``Self`` came with Python 3.11
        """What was used until now does not count."""
        self._started = datetime.now(timezone.utc)
        self._pid = os.getpid()
        self._resources, self._stacks = ResourceReader(self._pid), OwnStacks()
        self._before = self._resources.look(0.0, last=True)
        self._peak_before = self._resources.peaks().rss or 0
        self._stacks.begin()
        self._begun = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Measure; nothing of the block's is caught."""
        if os.getpid() != self._pid:
            return  # a fork that leaves the block of its parent
        stacks = self._stacks.uses()
        wall_s = time.monotonic() - self._begun
        after = self._resources.look(wall_s, last=True)
        peaks = self._resources.peaks()
        process = Process(
            pid=self._pid,
            role="command",
            command=tuple(sys.orig_argv),
            executable=sys.executable or None,
            python=".".join(map(str, sys.version_info[:3])),
            started=self._started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            wall_s=round(wall_s, 3),
            exit=Exit(kind="running"),
            stacks=stacks,
            # The kernel keeps one peak for the life of a process: if it did not move, that of the block is not known.
            peak_rss=peaks.rss if (peaks.rss or 0) > self._peak_before else None,
            memory=(self._before, after),
            peaks=peaks,
            limits=self._resources.limits(),
        )
        ended = RunRecord(processes=(process,), gaps=self._stacks.gaps)
        self._document = judged(of_run(ended, process.command or (), ()))

    @property
    def document(self) -> Document:
        """The JSON document, of kind ``profile``. Raises RuntimeError inside the block."""
        if self._document is None:
            raise RuntimeError("what a block used is known once it has ended: read it after the `with` statement")
        return self._document

    @property
    def process(self) -> Process:
        """The process itself: its memory before and after the block, and the limits that are set."""
        return self.document.processes[0]

    @property
    def stacks(self) -> tuple[StackUse, ...]:
        """The stacks of the threads that lived when the block ended, the one closest to its end first.

        ``peak`` is None where a thread got no deeper than it had been before.
        """
        return self.process.stacks or ()

    @property
    def memory(self) -> tuple[ResourceUse, ...]:
        """What was in use before and after the block."""
        return self.process.memory or ()

    @property
    def peak_rss(self) -> int | None:
        """The most resident memory during the block; None where the process had had more before."""
        return self.process.peak_rss

    @property
    def findings(self) -> tuple[Diagnosis, ...]:
        """What came close to a limit."""
        return self.document.findings
