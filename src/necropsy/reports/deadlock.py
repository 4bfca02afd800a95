"""Waiting threads: a deadlock as a drawing, and groups of threads at the same place, each shown once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from necropsy.model import Culprit, Diagnosis, LockWait, Thread
from necropsy.reports import stack, wording

TITLE = "The deadlock"


@dataclass(frozen=True)
class Step:
    """A thread of the cycle: the lock it holds, where it is, and the next thread's lock.

    ``holds`` is None if the previous thread waits for its end; ``joins``: it waits for the next thread's end.
    """

    thread: int
    name: str
    holds: str | None
    places: tuple[str, ...]
    waits_for: str
    joins: bool = False


def steps(verdict: Diagnosis | None) -> tuple[Step, ...]:
    """The circle: each thread waits for the next one, the last for the first; empty where there is no deadlock."""
    circle = verdict.deadlock if verdict is not None else ()
    return tuple(
        Step(
            one.thread,
            _name(one),
            None if before.joins else before.lock,
            tuple(_places(one.where)),
            one.lock,
            one.joins,
        )
        for one, before in zip(circle, (circle[-1:] + circle)[:-1], strict=True)
    )


def lines(verdict: Diagnosis | None) -> list[str]:
    """The drawing, from the top down; empty where the verdict is no deadlock."""
    circle = steps(verdict)
    if not circle:
        return []
    drawn: list[str] = []
    for one in circle:
        holds = f", which holds {one.holds}" if one.holds is not None else ""
        drawn += [f"{one.name}{holds}", *(f"  at {place}" for place in one.places)]
        awaited = "waits for the end of" if one.joins else f"waits for {one.waits_for}, held by"
        drawn += ["    |", f"    | {awaited}", "    v"]
    return [*drawn, f"{circle[0].name} (see above)"]


def _name(one: LockWait) -> str:
    name = one.name or f"thread {one.thread}"
    return name[:1].upper() + name[1:] + (f" ({one.thread})" if str(one.thread) not in name else "")


def _places(where: Culprit | None) -> list[str]:
    if where is None:
        return []
    places = []
    if where.function is not None or where.module is not None:
        source = f" in {where.source.rsplit('/', 1)[-1]}:{where.line}" if where.source and where.line else ""
        module = f" ({where.module})" if where.module and where.function else ""
        places.append(f"{where.function or where.module}{module}{source}")
    if where.python is not None:
        function = f" in {where.python.function}" if where.python.function else ""
        places.append(f"{where.python.file}:{where.python.line}{function}")
    return places


def grouped(threads: Iterable[Thread]) -> list[tuple[Thread, ...]]:
    """Group threads by place, not by lock, which each of a pool has; small groups first, since odd threads matter."""
    found: dict[object, list[Thread]] = {}
    for place, thread in enumerate(threads):
        stands = tuple((row.name, row.place) for row in stack.rows_of(thread))
        waits = (thread.waits.call, thread.waits.ended) if thread.waits is not None else None
        # Of a thread without a stack nothing is known that could be the same.
        found.setdefault((stands, waits, thread.holds_gil) if stands else place, []).append(thread)
    return sorted(map(tuple, found.values()), key=len)


def group_title(group: Sequence[Thread]) -> str:
    """The name of a thread and what it waits for; of several, how many they are."""
    if len(group) == 1:
        return wording.thread_title(group[0])
    waits = group[0].waits
    return f"{len(group)} threads at the same place" + (f", in {waits.call}" if waits is not None else "")


def group_names(group: Sequence[Thread]) -> list[str]:
    """The name of each, without the word."""
    return [wording.thread_name(one).removeprefix("thread ") for one in group]
