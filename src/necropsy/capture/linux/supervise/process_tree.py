"""Who belongs to a run: which process came from which, and who is still alive."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Sequence

from necropsy.capture.linux.stderr.bpf_probe import BpfProbe
from necropsy.capture.linux.stderr.exception_watch import ExceptionWatch
from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise.event_loop import Executed, Finished, Loop, Started
from necropsy.capture.linux.supervise.interrupted_calls import InterruptedCalls
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.model import Exit, Gap

_REMEMBERED = 256
"""So many processes that have ended are still known as the run's."""


class ProcessTree:
    """The command and its descendants: the loop's journal, read."""

    def __init__(self, root: Traced) -> None:
        self.root = root
        self.table = ProcessTable(root)
        self.probe: BpfProbe | None = None
        """Hears what new processes write; it knows the command already."""
        self.bell = ExceptionWatch()
        self.living = {root.pid: root}
        self.ended_last = root
        """The process that ended last."""
        self.ended_threads: list[tuple[Traced, int, int]] | None = None
        """Where those that end are added, if somebody wants to know: each with its process and its base."""
        self._ended: deque[tuple[int, tuple[str, ...] | None]] = deque(maxlen=_REMEMBERED)

    def hear(self, log: Log) -> ExceptionWatch:
        """A bell for those that run Python, where the log would be read if it could be."""
        self.bell = ExceptionWatch.of(log)
        return self.bell

    def started(self, entry: Started) -> None:
        """As ``loop.Journal``."""
        process = self.living.get(entry.pid)
        if process is not None:
            process.threads += 1
            return
        process = Traced(entry.pid, parent=entry.parent or None, role="child", begun=entry.at)
        origin = self.living.get(entry.parent)
        if origin is not None:
            process.command, process.executable = origin.command, origin.executable
            several = max(origin.threads, origin.forked_from_threads or 0)
            process.forked_from_threads = several if several > 1 else None
        self.living[entry.pid] = process
        if self.probe is not None:
            self.probe.add(entry.pid)
        self.table.add(process)

    def executed(self, entry: Executed) -> None:
        """As ``loop.Journal``."""
        process = self.living.get(entry.pid)
        if process is not None:
            process.become_another(entry.executable, entry.command)
            self.bell.follow(process)

    def finished(self, entry: Finished) -> None:
        """As ``loop.Journal``."""
        process = self.living.get(entry.pid)
        if process is None:
            return
        if entry.tid != entry.pid:
            process.threads -= 1
            process.threads_ended += 1
            if self.ended_threads is not None:
                self.ended_threads.append((process, entry.tid, entry.base))
            return
        process.peak_rss = entry.peak_rss or process.peak_rss
        process.main_stack = entry.main_stack
        process.peak_address_space = entry.peak_size or process.peak_address_space
        process.end(entry.status, entry.at)
        self.living.pop(entry.pid, None)
        self._ended.append((process.pid, process.command))
        self.ended_last = process

    def let_go(self, process: Traced) -> None:
        """The process has been detached: how it ends is not seen here."""
        process.exit = Exit(kind="unknown")
        self.living.pop(process.pid, None)
        self._ended.append((process.pid, process.command))

    def has(self, pid: int | None) -> bool:
        """The process is one of the run, or was a short while ago."""
        return pid in self.living or any(number == pid for number, _ in self._ended)

    def command(self, pid: int) -> tuple[str, ...] | None:
        """The command of a process of the run: of the one that lives, else of the last one that had this number."""
        one = self.living.get(pid)
        ended = (command for number, command in reversed(self._ended) if number == pid)
        return one.command if one is not None else next(ended, None)

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


MOST_PROCESSES = 1000
"""How many children that ended normally are remembered; for a while, up to twice as many."""
MOST_DEATHS = 100
"""How many deaths of children are reported."""


class ProcessTable:
    """The command first, then its descendants as they came."""

    def __init__(self, root: Traced) -> None:
        self.processes = [root]
        self.ended = 0
        """Children that ended and were left out since."""
        self.deaths = 0
        """Deaths that were not recorded."""
        self._longest = 2 * MOST_PROCESSES

    def add(self, process: Traced) -> None:
        """One more; where they are many, what is not worth keeping goes."""
        self.processes.append(process)
        if len(self.processes) > self._longest:
            known = len(self.processes)
            self.processes = _worth_keeping(self.processes)
            self.ended += known - len(self.processes)
            # Where all of them live there is nothing to leave out, and no use in looking each time.
            self._longest = len(self.processes) + MOST_PROCESSES

    def left_out(self) -> list[Gap]:
        """What is missing, by number."""
        counts = {"children that ended": self.ended, "deaths of children": self.deaths}
        return [Gap(part="process", why=f"{what}, not told of: {count:,}") for what, count in counts.items() if count]


def _worth_keeping(processes: Sequence[Traced]) -> list[Traced]:
    """The command, live and dead processes, and all their ancestors; of those that merely ended, the latest."""
    by_pid = {one.pid: one for one in processes}
    kept: set[int] = set()
    for one in (processes[0], *(one for one in processes if one.exit is None or one.told)):
        ancestor: Traced | None = one
        while ancestor is not None and id(ancestor) not in kept:
            kept.add(id(ancestor))
            ancestor = by_pid.get(ancestor.parent) if ancestor.parent is not None else None
    kept.update(id(one) for one in [one for one in processes if id(one) not in kept][-MOST_PROCESSES:])
    return [one for one in processes if id(one) in kept]


class StoppedProcesses:
    """Serves the stops of a group-stop (Ctrl-Z, SIGSTOP); the front stops and goes on with the command."""

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
