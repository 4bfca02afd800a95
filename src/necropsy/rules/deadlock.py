"""Circles of threads: each waits for a lock that the next one holds. The locks themselves say who holds them.

A mutex of glibc's names its owner, and so do the interpreter's lock (GIL), RLocks, and locks of ``multiprocessing``. A
plain lock of ``threading`` does not; there the thread is known that runs the body of a ``with`` statement on it.
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix, LockWait, Thread, Wait
from necropsy.predicates import bare_name, name_of
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
            inside = path[path.index(tid) :]
            first = inside.index(crash.pid) if crash.pid in inside else 0
            return tuple(waits[one] for one in inside[first:] + inside[:first])
    return ()


def _wait(thread: Thread, tid: int, gil_holder: int | None, crash: Crash) -> LockWait | None:
    waits, for_gil = thread.waits, waits_for_gil(thread)
    if waits is None or (waits.ended and not for_gil):
        return None
    if for_gil:
        lock, owner = GIL, gil_holder if gil_holder != tid else None
    else:
        lock, owner = _lock_of(waits), waits.owner
    if owner is None:
        return None
    joins = lock != GIL and waits.owner_by == "join"
    return LockWait(
        thread=tid, name=name_of(thread, crash), lock=lock, holder=owner, joins=joins, where=culprit(thread)
    )


def _lock_of(waits: Wait) -> str:
    if waits.lock is not None and waits.on is not None:
        return waits.on
    return f"the mutex at {waits.address}" if waits.address is not None else "a lock"


def is_in_doubt(crash: Crash, found: tuple[LockWait, ...]) -> bool:
    """Whether the cycle may resolve itself or not exist.

    One wait has a time limit (``pthread_mutex_timedlock``); or a lock does not name its owner, and the thread whose
    ``with`` statement took it may have released it temporarily.
    """
    inside = {one.thread for one in found if one.lock != GIL}
    waiting = [one.waits for one in crash.threads or () if one.tid in inside and one.waits is not None]
    if any(one.limited or one.owner_by == "with" for one in waiting):
        return True
    return any(
        frame.function and _LIMITED.search(bare_name(frame.function))
        for thread in crash.threads or ()
        if thread.tid in inside
        for frame in (thread.frames or ())[:8]
    )


def left_locked(crash: Crash) -> Thread | None:
    """A thread that waits for an RLock whose owner is not among the threads of the process."""
    for thread in crash.threads or ():
        waits = thread.waits
        if waits is None or waits.ended or waits.limited or waits.lock != "threading.RLock":
            continue
        if waits.count and waits.owner is None:
            return thread
    return None


def evidence(crash: Crash, found: tuple[LockWait, ...]) -> Found:
    """One piece for each thread."""
    known = {one.tid: one.waits for one in crash.threads or () if one.waits is not None}
    told = []
    for one, following in zip(found, (*found[1:], found[0]), strict=True):
        where, seen, waits = "the lock itself", f"{one.lock}: owner {one.holder}", known.get(one.thread)
        claim = f"{one.name} waits for a lock that {following.name} holds"
        if one.lock == GIL:
            where = "the interpreter's record of who holds it"
            claim = f"{one.name} waits for {GIL}, which {following.name} holds"
        elif one.joins:
            where, seen = "its threading.Thread object", one.lock
            claim = f"{one.name} waits in Thread.join() for the end of {following.name}"
        elif waits is not None and waits.owner_by == "with":
            where = "the frames of that thread; the lock itself does not record its owner"
            seen = f"{one.lock}: thread {one.holder} is in the body of a with statement on it"
        elif waits is not None and waits.count is not None:
            seen += f", which has taken it {_times(waits.count)}"
        told.append(Evidence(claim=claim, seen=seen, where=where))
    return tuple(told)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def summary(found: tuple[LockWait, ...]) -> str:
    """Who waits for whom, in a sentence; with the two lines where there are two locks."""
    first = found[0]
    if len(found) == 1:
        return f"The program is deadlocked: {first.name}{_at(first)} waits for a lock that it holds itself."
    if len(found) == 2 and GIL in {one.lock for one in found}:
        for_mutex, for_gil = sorted(found, key=lambda one: one.lock == GIL)
        one, other = _closed(_at(for_mutex)), _closed(_at(for_gil))
        return (
            f"The program is deadlocked between {GIL} and a mutex: {for_mutex.name}{one} holds {GIL} and waits for "
            f"{for_mutex.lock}; {for_gil.name}{other} holds that mutex and waits for {GIL}."
        )
    steps = ", which ".join(
        f"waits{_briefly(one)} for {_what(one, following, alone=any(not before.joins for before in found[:at]))}"
        for at, (one, following) in enumerate(zip(found, (*found[1:], first), strict=True))
    )
    return f"The program is deadlocked: {first.name} {steps}."


def _what(one: LockWait, following: LockWait, *, alone: bool) -> str:
    """``alone``: another lock has been named before."""
    if one.joins:
        return f"the end of {following.name}"
    if one.lock == GIL:
        return f"{GIL}, which is held by {following.name}"
    return f"{'one' if alone else 'a lock'} that {following.name} holds"


def _briefly(one: LockWait) -> str:
    """Without the path."""
    where = one.where
    if where is None:
        return ""
    if where.python is not None and where.python.line:
        return f" at {(where.python.file or '?').rsplit('/', 1)[-1]}:{where.python.line}"
    line = f" ({where.source.rsplit('/', 1)[-1]}:{where.line})" if where.source and where.line else ""
    return f" in {short(where.function)}{line}" if where.function is not None else ""


def fixes(found: tuple[LockWait, ...]) -> tuple[Fix, ...]:
    """What to change at which line."""
    gil = [one for one in found if one.lock == GIL]
    mutex = [one for one in found if one.lock != GIL]
    if any(one.joins for one in found):
        return (
            Fix(
                text="Release the lock before the thread is joined: take what is needed under the lock, leave the `with` "
                "block, and call join() behind it."
            ),
        )
    if len(found) == 1 and not gil:
        return (
            Fix(
                text=f"Release the lock before it is taken again{_at(found[0])}; or use a lock that its owner may take again "
                "(threading.RLock, std::recursive_mutex)."
            ),
        )
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
    """With the comma that closes an insertion."""
    return at + "," if "," in at else at
