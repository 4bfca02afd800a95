"""Who belongs to a run: which process a thread is of, who came from whom, and who is still alive."""

from __future__ import annotations

from collections import deque

from necropsy.capture.linux import ptrace
from necropsy.capture.linux.probe import Probe
from necropsy.capture.linux.processes import Traced, status_of
from necropsy.capture.linux.table import Table
from necropsy.model import Exit

NEW = frozenset({ptrace.EVENT_FORK, ptrace.EVENT_VFORK, ptrace.EVENT_CLONE})
"""The stops that tell of a new thread or process."""

_REMEMBERED = 256
"""So many processes that have ended are still known as the run's."""


class Members:
    """The command and its descendants, by thread and by process."""

    def __init__(self, root: Traced, probe: Probe | None) -> None:
        """``probe`` hears what they write; it knows the command already."""
        self.root, self._probe = root, probe
        self.table = Table(root)
        self.living = {root.pid: root}
        self._ended: deque[int] = deque(maxlen=_REMEMBERED)
        self._owner = {root.pid: root}
        self._early: set[int] = set()
        """Threads whose own first stop came before their creator's event; some have ended by then."""

    def knows(self, tid: int) -> bool:
        """The thread is one of the run's."""
        return tid in self._owner

    def of(self, tid: int) -> Traced:
        """The process of a thread; a new one where its first stop comes before its parent's event."""
        known = self._owner.get(tid)
        if known is not None:
            return known
        status = status_of(tid)
        pid = int(status.get("Tgid") or tid)
        process = self.living.get(pid)
        if process is None:
            process = self._new(pid, int(status["PPid"]) if "PPid" in status else None)
        process.threads.add(tid)
        self._owner[tid] = process
        self._early.add(tid)
        return process

    def _new(self, pid: int, parent: int | None) -> Traced:
        process = Traced(pid, parent=parent, role="child")
        origin = self.living.get(parent) if parent is not None else None
        if origin is not None:
            process.command, process.executable = origin.command, origin.executable
            several = max(len(origin.threads), origin.forked_from_threads or 0)
            process.forked_from_threads = several if several > 1 else None
        self.living[pid] = process
        if self._probe is not None:
            self._probe.add(pid)  # it stands in its first stop, or will do so before it runs
        self.table.add(process)
        return process

    def adopt(self, tid: int, creator: Traced, event: int) -> None:
        """The event of ``creator`` tells of the new thread or process ``tid``."""
        if tid in self._early:
            self._early.discard(tid)
            return
        if event == ptrace.EVENT_CLONE:
            self.of(tid)
            self._early.discard(tid)
            return
        process = self._new(tid, creator.pid)
        process.threads.add(tid)
        self._owner[tid] = process

    def executed(self, process: Traced) -> None:
        """The thread that called exec has the process's id now, and all others are gone without a word."""
        for tid in process.threads - {process.pid}:
            self._owner.pop(tid, None)
        self._owner[process.pid] = process
        process.become_another()

    def end(self, tid: int, status: int) -> tuple[Traced, bool]:
        """A thread was reaped with this wait status: its process, and whether that has ended with it."""
        process = self._owner.pop(tid)
        process.threads.discard(tid)
        process.first_chances.pop(tid, None)
        if tid != process.pid:
            process.threads_ended += 1
            return process, False
        process.end(status)
        self.living.pop(process.pid, None)
        self._ended.append(process.pid)
        if self._probe is not None:
            self._probe.remove(process.pid)
        return process, True

    def let_go(self, process: Traced) -> None:
        """The process has been detached: how it ends is not seen here."""
        for tid in process.threads:
            self._owner.pop(tid, None)
        process.exit = Exit(kind="unknown")
        self.living.pop(process.pid, None)
        self._ended.append(process.pid)

    def has(self, pid: int | None) -> bool:
        """The process is one of the run, or was a short while ago."""
        return pid in self.living or pid in self._ended

    def ancestors(self, process: Traced) -> list[Traced]:
        """Its living parent in the run, the parent of that, and so on."""
        found: list[Traced] = []
        while process.parent is not None:
            parent = self.living.get(process.parent)
            if parent is None or parent in found:
                break
            found.append(parent)
            process = parent
        return found
