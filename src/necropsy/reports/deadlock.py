"""A deadlock as a drawing: each thread, the lock that it waits for, the thread that holds it, and so on round."""

from __future__ import annotations

from necropsy.model import Culprit, Diagnosis, LockWait

TITLE = "The deadlock"


def lines(verdict: Diagnosis | None) -> list[str]:
    """The drawing, from the top down; empty where the verdict is no deadlock."""
    circle = verdict.deadlock if verdict is not None else ()
    if not circle:
        return []
    drawn: list[str] = []
    for one, before in zip(circle, (circle[-1], *circle[:-1]), strict=True):
        drawn += [f"{_name(one)}, which holds {before.lock}", *(f"  at {place}" for place in _places(one.where))]
        drawn += ["    |", f"    | waits for {one.lock}, held by", "    v"]
    return [*drawn, f"{_name(circle[0])} (see above)"]


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
