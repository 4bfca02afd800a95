"""Watchdog: detects that the tracer or reporter has stopped making progress.

It compares their work between two looks, not the clock: on a full machine they may get a hundredth of a CPU, and in a
container that was frozen for an hour nothing hung for an hour.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.traced_processes import state_of, status_of

LOOK_S = 0.5
"""Between two looks."""
STOPPED_S = 5.0
"""Somebody has stopped it (SIGSTOP): so long he may take to continue it."""
STILL_S = 15.0
"""It sleeps (or waits for a disk) and uses no CPU, though there is something to do."""
_SLACK_S = 0.1
_FIRST_TIME = 11
"""Of ``/proc/PID/stat`` after the name: utime, stime, cutime, cstime (proc_pid_stat(5))."""


@dataclass
class Watchdog:
    """Counts looks at processes from which something is awaited. ``serving_s``: how long it may serve one stop."""

    facts: Facts
    serving_s: float
    clock: Callable[[], float] = time.monotonic
    _at: float = float("-inf")
    _seen: tuple[object, ...] = ()
    _beats: int = -1
    _stopped: int = 0
    _still: int = 0
    _unserved: int = 0

    @property
    def counts(self) -> bool:
        """Something is awaited since the last look."""
        return bool(self._stopped or self._still or self._unserved)

    def reset(self) -> None:
        """Nothing is awaited."""
        self._seen, self._beats = (), -1
        self._stopped = self._still = self._unserved = 0

    def look(self, *pids: int, urgent: bool = True) -> bool:
        """Whether these have not moved for too long; ``urgent``: the command waits. Too early a look is ignored."""
        if self.clock() - self._at < LOOK_S - _SLACK_S:
            return False
        self._at = self.clock()
        statuses = [status_of(pid) for pid in pids if pid]
        states = {status.get("State", "")[:1] for status in statuses}
        seen = tuple(_signs_of_life(pid) for pid in pids if pid), tuple(map(_switches, statuses))
        beats = self.facts.beats
        self._stopped = self._stopped + 1 if urgent and "T" in states else 0
        moves = not urgent or seen != self._seen or "R" in states or self.facts.reading
        self._still = 0 if moves else self._still + 1
        self._unserved = self._unserved + 1 if beats == self._beats else 0
        self._seen, self._beats = seen, beats
        return (
            self._stopped * LOOK_S >= STOPPED_S
            or self._still * LOOK_S >= STILL_S
            or self._unserved * LOOK_S >= self.serving_s
        )


def _signs_of_life(pid: int) -> bytes:
    """The CPU time of the process and of its children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    except OSError:
        return b""
    return b" ".join(fields[_FIRST_TIME : _FIRST_TIME + 4])


def _switches(status: dict[str, str]) -> tuple[str, ...]:
    """How often it has given its CPU away: finer than CPU time, which is counted in hundredths of a second."""
    return tuple(status.get(name, "") for name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"))


def is_held(command: int, tracer: int, *, at_rest: bool) -> bool:
    """The command is in a stop of our tracer, or is a zombie that it has yet to reap.

    ``at_rest``: the command was stopped by a signal and waits for SIGCONT, which looks the same.
    """
    status = status_of(command)
    if status.get("TracerPid") != str(tracer) or at_rest:
        return False
    state = status.get("State", "")[:1]
    # A dead first thread is reaped after the last of the others, which may live long, unless they stand too.
    return state == "t" or (
        state == "Z" and all(state_of(tid) in {"t", "Z", "X", None} for tid in threads_of(command) if tid != command)
    )


def threads_of(pid: int) -> Iterator[int]:
    """The threads of the process, its first one among them; none where it is gone."""
    with contextlib.suppress(OSError):
        yield from map(int, os.listdir(f"/proc/{pid}/task"))
