"""The processes of a run that are told of: a service may have children, and deaths of them, without end."""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.model import Gap

MOST_PROCESSES = 1000
"""So many children that merely ended are remembered, up to twice as many for a while."""
MOST_DEATHS = 100
"""So many deaths of children are told of."""


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
    """The command, who lives, who died, and all their ancestors; of those that merely ended, the latest."""
    by_pid = {one.pid: one for one in processes}
    kept: set[int] = set()
    for one in (processes[0], *(one for one in processes if one.exit is None or one.told)):
        ancestor: Traced | None = one
        while ancestor is not None and id(ancestor) not in kept:
            kept.add(id(ancestor))
            ancestor = by_pid.get(ancestor.parent) if ancestor.parent is not None else None
    kept.update(id(one) for one in [one for one in processes if id(one) not in kept][-MOST_PROCESSES:])
    return [one for one in processes if id(one) in kept]
