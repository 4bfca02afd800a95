"""Threads that stand at the same place: a pool of sixty is told once, and the odd ones before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from necropsy.model import Thread
from necropsy.reports import stack, wording


def groups(threads: Iterable[Thread]) -> list[tuple[Thread, ...]]:
    """The threads by what they are in, small groups first, else in the order in which they are given.

    In a process that hangs, the thread to look at is seldom one of many that do the same. Which lock each waits for
    makes no difference: of a pool, each has its own.
    """
    found: dict[object, list[Thread]] = {}
    for place, thread in enumerate(threads):
        stands = tuple((row.name, row.place) for row in stack.rows_of(thread))
        waits = (thread.waits.call, thread.waits.ended) if thread.waits is not None else None
        # Of a thread without a stack nothing is known that could be the same.
        found.setdefault((stands, waits, thread.holds_gil) if stands else place, []).append(thread)
    return sorted(map(tuple, found.values()), key=len)


def title(group: Sequence[Thread]) -> str:
    """The name of a thread and what it waits for; of several, how many they are."""
    if len(group) == 1:
        return wording.thread_title(group[0])
    waits = group[0].waits
    return f"{len(group)} threads at the same place" + (f", in {waits.call}" if waits is not None else "")


def names(group: Sequence[Thread]) -> list[str]:
    """The name of each, without the word."""
    return [wording.thread_name(one).removeprefix("thread ") for one in group]
