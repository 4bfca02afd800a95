"""Ends that follow a death: a launcher that has lost one worker ends the others, which is not reported.

Who sent SIGTERM, SIGINT or SIGHUP is in its siginfo; the kernel keeps none for SIGKILL (``__send_signal_locked`` in
kernel/signal.c). But the sender runs at that moment: where no ancestor of the killed process has run, it was not one of
them.
"""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.linux.supervise import fatal_signals
from necropsy.capture.linux.supervise.process_tree import ProcessTree
from necropsy.capture.linux.supervise.traced_processes import Traced, status_of
from necropsy.formats import siginfo
from necropsy.model import Crash, Gap

OPEN_S = 10.0
"""So long after a death, and after each end that followed it, a SIGKILL may follow: its sender is not known."""
LOOK_S = 0.05
"""Between two looks at who has run meanwhile."""
REACH_S = 0.25
LEAST_LOOKS = 6
"""A process may die so long after it was killed, and so many looks: on a full machine they come less often."""
MOST_THREADS = 64
"""Of a process with more of them it is taken for granted that one has run."""
_ASKED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


@dataclass
class SecondaryExits:
    """Tells ends that follow a death from deaths."""

    members: ProcessTree
    clock: Callable[[], float] = time.monotonic
    first: int | None = None
    """The process that died first of its own."""
    _dead: set[int] = field(default_factory=set)
    _until: float = float("-inf")
    _ends: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    _looks: deque[tuple[float, dict[int, object]]] = field(default_factory=deque)
    """The first is as old as the reach, or a little older."""

    @property
    def is_open(self) -> bool:
        """A process has died of its own a short while ago: ``look`` is to be called every ``LOOK_S`` seconds."""
        return self.clock() < self._until

    def is_from_outside(self, process: Traced, signo: int) -> bool:
        """The signal was sent by a process that is none of the run's."""
        info = process.signals.get(signo)
        sender = fatal_signals.sent_by(info) if info is not None else None
        return sender is not None and not self.members.has(sender)

    def died(self, process: Traced) -> None:
        """It dies of its own, or of somebody outside of the run."""
        self.first = process.pid if self.first is None else self.first
        if process.pid not in self._dead:
            self._dead.add(process.pid)
            self._until = self.clock() + OPEN_S
            self.look()

    def look(self) -> None:
        """Note how often every parent has run."""
        parents = {one.parent for one in self.members.living.values()}
        self._looks.append((self.clock(), {pid: _runs(pid) for pid in parents if pid in self.members.living}))
        while len(self._looks) > LEAST_LOOKS and self._looks[1][0] < self.clock() - REACH_S:
            self._looks.popleft()

    def killed(self, process: Traced) -> None:
        """To be called where a process that SIGKILL ends is at its end: has an ancestor run of late?"""
        if process.killed_by_ancestor is None:
            ancestors = self.members.ancestors(process) if self.is_open else []
            _, before = self._looks[0] if self._looks else (0.0, {})
            process.killed_by_ancestor = any(_runs(one.pid) != before.get(one.pid, "") for one in ancestors)

    def follows(self, process: Traced, signo: int) -> bool:
        """The process has ended by this signal, because another had died; it is counted then."""
        if process is self.members.root or not self._dead - {process.pid}:
            return False
        senders = {one: fatal_signals.sent_by(info) for one, info in process.signals.items() if one in _ASKED}
        sender = senders.get(signo)
        if signo in _ASKED:
            is_ours = self.members.has(sender)
        else:
            asked = any(map(self.members.has, senders.values()))
            is_ours = signo == signal.SIGKILL and (asked or process.killed_by_ancestor is True)
        if is_ours:
            self._ends[siginfo.name_of(signo), sender] += 1
            self._until = self.clock() + OPEN_S
        return is_ours

    def told(self, crashes: list[Crash]) -> list[Crash]:
        """The deaths; the first says what followed. If an outsider ended them all, the command's own end, if any."""
        from msgspec.structs import replace

        crashes = [crash for crash in crashes if not self._is_of_all(crash)]
        place = next((place for place, one in enumerate(crashes) if one.pid == self.first), None)
        if place is None or not self._ends:
            return crashes
        first = crashes[place]
        notes = tuple(Gap(part="process", why=_note(*end, count)) for end, count in self._ends.items())
        return [*crashes[:place], replace(first, gaps=(*first.gaps, *notes)), *crashes[place + 1 :]]

    def _is_of_all(self, crash: Crash) -> bool:
        root = self.members.root
        if crash.pid == root.pid or crash.fault is None or crash.fault.sender is None or crash.stop_request is not None:
            return False
        asked = {
            siginfo.name_of(one): fatal_signals.sent_by(info) for one, info in root.signals.items() if one in _ASKED
        }
        return asked.get(crash.fault.signal or "") == crash.fault.sender


def _note(name: str, sender: int | None, count: int) -> str:
    by = f", sent by process {sender} of this run" if sender is not None else ""
    if count == 1:
        return f"1 further process was then ended by {name}{by}: it has no report of its own"
    return f"{count:,} further processes were then ended by {name}{by}: they have no reports of their own"


def _runs(pid: int) -> object:
    """A value that differs once a thread of the process has run; equals nothing where that is unknown."""
    try:
        threads = sorted(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return object()
    if len(threads) > MOST_THREADS:
        return object()
    statuses = [status_of(int(one.name)) for one in threads]
    if any(status.get("State", "R")[:1] == "R" for status in statuses):
        return object()
    names = ("Pid", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    return tuple(tuple(status.get(name) for name in names) for status in statuses)
