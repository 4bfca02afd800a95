"""Circles of threads: each waits for a lock that the next one holds. The locks themselves say who holds them.

A mutex of glibc's names its owner, and so does the interpreter's lock (GIL). Python's own locks do not.
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix, LockWait, Thread
from necropsy.questions import bare_name, name_of
from necropsy.rule import Found
from necropsy.rules.culprit import spell
from necropsy.rules.standing import culprit, waits_for_gil
from necropsy.rules.wording import short

GIL = "the GIL"
_LIMITED = re.compile(r"_(?:timed|clock)lock")


def circle(crash: Crash) -> tuple[LockWait, ...]:
    """The threads of which each waits for a lock that the next one holds, and the last for one of the first's."""
    by_id = {thread.tid: thread for thread in crash.threads or () if thread.tid is not None}
    holder = next((tid for tid, thread in by_id.items() if thread.holds_gil), None)
    waits = {tid: wait for tid, thread in by_id.items() if (wait := _wait(thread, tid, holder, crash)) is not None}
    for start in waits:
        path: list[int] = []
        tid = start
        while tid in waits and tid not in path:
            path.append(tid)
            tid = waits[tid].holder
        if tid in path:
            return tuple(waits[one] for one in path[path.index(tid) :])
    return ()


def _wait(thread: Thread, tid: int, gil_holder: int | None, crash: Crash) -> LockWait | None:
    waits = thread.waits
    if waits is None or waits.ended:
        return None
    if waits_for_gil(thread):
        lock, owner = GIL, gil_holder if gil_holder != tid else None
    else:
        lock, owner = f"the mutex at {waits.address}" if waits.address is not None else "a lock", waits.owner
    if owner is None:
        return None
    return LockWait(thread=tid, name=name_of(thread, crash), lock=lock, holder=owner, where=culprit(thread))


def ends_by_itself(crash: Crash, found: tuple[LockWait, ...]) -> bool:
    """One of them waits with a limit of time (``pthread_mutex_timedlock``): then the circle may come apart."""
    inside = {one.thread for one in found if one.lock != GIL}
    return any(
        frame.function and _LIMITED.search(bare_name(frame.function))
        for thread in crash.threads or ()
        if thread.tid in inside
        for frame in (thread.frames or ())[:8]
    )


def evidence(found: tuple[LockWait, ...]) -> Found:
    """One piece for each thread."""
    told = []
    for one, following in zip(found, (*found[1:], found[0]), strict=True):
        what = GIL if one.lock == GIL else "a lock"
        where = "the interpreter's record of who holds it" if one.lock == GIL else "the lock itself"
        seen = f"{one.lock}: owner {one.holder}"
        claim = f"{one.name} waits for {what} that {following.name} holds".replace(f"{GIL} that", f"{GIL}, which")
        told.append(Evidence(claim=claim, seen=seen, where=where))
    return tuple(told)


def summary(found: tuple[LockWait, ...]) -> str:
    """Who waits for whom, in a sentence; with the two lines where the GIL is one of two locks."""
    first = found[0]
    if len(found) == 1:
        return f"The program is deadlocked: {first.name} waits for a lock that it holds itself."
    if len(found) == 2 and GIL in {one.lock for one in found}:
        for_mutex, for_gil = sorted(found, key=lambda one: one.lock == GIL)
        one, other = _closed(_at(for_mutex)), _closed(_at(for_gil))
        return (
            f"The program is deadlocked between {GIL} and a mutex: {for_mutex.name}{one} holds {GIL} and waits for "
            f"{for_mutex.lock}; {for_gil.name}{other} holds that mutex and waits for {GIL}."
        )
    middle = "".join(f", which waits for one that {one.name} holds" for one in found[2:])
    return (
        f"The program is deadlocked: {first.name} waits for a lock that {found[1].name} holds{middle}, "
        f"which waits for one that {first.name} holds."
    )


def fixes(found: tuple[LockWait, ...]) -> tuple[Fix, ...]:
    """What to change at which line."""
    gil = [one for one in found if one.lock == GIL]
    mutex = [one for one in found if one.lock != GIL]
    if not gil or not mutex:
        return (Fix(text="Take these locks in the same order in every thread, or hold only one at a time."),)
    return (
        Fix(
            text=f"Release the GIL before the mutex is locked{_at(mutex[0])}: Py_BEGIN_ALLOW_THREADS, `py::gil_scoped_release`, "
            "`with nogil`."
        ),
        Fix(text=f"Or unlock the mutex before Python is called{_at(gil[0])}."),
    )


def _at(one: LockWait) -> str:
    where = one.where
    if where is None:
        return ""
    if where.function is not None:
        line = f" ({where.source.rsplit('/', 1)[-1]}:{where.line})" if where.source and where.line else ""
        python = f", called from {spell(where.python)}" if where.python is not None else ""
        return f" in {short(where.function)}{line}{python}"
    return f" at {spell(where.python)}" if where.python is not None else ""


def _closed(at: str) -> str:
    """With the comma that ends an insertion."""
    return at + "," if "," in at else at
