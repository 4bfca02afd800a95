"""Kills a triage at many moments, and lets several write to one store: `python killed_writers.py FOLDER POINTS`.

Prints what went wrong, and nothing otherwise. A process of its own, because it forks.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sys
from pathlib import Path

import fleet

import necropsy
from necropsy.model import Triage

_TRIES = 8
"""For each run that is to be killed."""


def triaged(folder: Path, store: Path) -> Triage:
    found = necropsy.triage(folder, store=store).triage
    assert found is not None
    return found


def told(found: Triage) -> list[tuple[str, int, tuple[str, ...]]]:
    """What must be the same: ids, counts, members."""
    return sorted((one.id, one.count, tuple(sorted(member.path for member in one.members))) for one in found.groups)


def forked(folder: Path, store: Path, kill_after_s: float | None) -> int:
    """Do a triage in a child, which is killed after that much CPU time; how the child ended."""
    child = os.fork()
    if not child:
        if kill_after_s is not None:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process at once, in the middle of anything
            signal.setitimer(signal.ITIMER_PROF, kill_after_s)
        try:
            triaged(folder, store)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def cpu_of(folder: Path, store: Path) -> float:
    """Seconds of CPU time that a whole triage in a child takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert forked(folder, store, None) == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def kill_points(folder: Path, points: int) -> None:
    """Each time a new store, a run that is killed, and another one that has to find the same."""
    reports, more = folder / "reports", folder / "more"
    fleet.fill(reports, {"score_rows": 6, "merge_rows": 4, "sort_rows": 2})
    fleet.fill(more, {"score_rows": 2, "find_rows": 3}, first=100)
    whole = folder / "whole"
    triaged(reports, whole)
    begun = told(triaged(reports, whole))
    triaged(more, whole)
    expected = told(triaged(more, whole))
    base, store = folder / "base", folder / "killed"
    triaged(reports, base)
    cost = min(cpu_of(more, Path(shutil.copytree(base, folder / f"timed-{number}"))) for number in range(3))
    chance = random.Random(points)
    killed = 0
    for point in range(_TRIES * points):
        if killed == points:
            return
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(base, store)
        # The timer ends at a tick of the kernel, by which time the run may be over. So there are more tries than points.
        end = forked(more, store, max(0.001, cost * chance.random()))
        killed += end == -signal.SIGPROF
        if end not in {0, -signal.SIGPROF}:
            print(f"point {point}: ended with {end}")
        found = told(triaged(more, store))
        if found != expected:
            print(f"point {point}: {found} instead of {expected}, which began as {begun}")
    if killed < points:
        print(f"only {killed} of {points} were killed")


def writers(folder: Path, count: int) -> None:
    """Several at a time, each with files of its own and some that others have too."""
    folders = []
    for number in range(count):
        own = folder / f"own-{number}"
        fleet.fill(own, {"score_rows": 3, f"rows_{number}": 2}, first=1000 + 10 * number)
        folders.append(own)
    store = folder / "shared"
    children = []
    for own in folders:
        child = os.fork()
        if not child:
            os._exit(0 if forked(own, store, None) == 0 else 1)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(ends):
        print(f"writers ended with {ends}")
    found = triaged(folders[0], store)
    counts = sorted(one.count for one in found.groups)
    if counts != sorted([3 * count, *[2] * count]):
        print(f"{counts} after {count} writers")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    kill_points(place / "kill", int(sys.argv[2]))
    writers(place / "writers", 3)
