"""Stopped at the time limit: where every thread was.

What happened
-------------
The program did not end within the time that ``--timeout`` gave it. Before it was ended, all its threads were stopped
and read: which Python line and which native function each was in, and what each waited for. Or it was not ended, and
this is a snapshot of the running process, by ``necropsy attach``, a debugger, or a dump.

How to be sure
--------------
The positions are facts, and so is the time limit. **One snapshot of a running program** cannot tell whether it hangs:
every program waits now and then. The report then says *possible*. Take a second snapshot: a thread that is in the
same place and has used no processor time in between hangs.

A **deadlock** is certain only if a cycle is seen: a thread waits for a lock that another one holds, which waits for a
lock that the first one holds. glibc's mutexes name their owner, as do ``threading.RLock`` and the locks of
``multiprocessing``, and the interpreter says which thread holds the GIL. ``threading.Lock`` does not. Its owner is
*likely* the thread in the body of ``with lock:``; after a plain ``acquire()`` it is not known. The report shows the cycle with its locks and lines, also if SIGTERM from outside ended
the program. A thread that was running, not waiting in a system call, was busy: slow, or in an endless loop. Which of
them is *the* reason is for the reader to judge.

How to fix it now
-----------------
Begin with the main thread, then with the one that it waits for. In a deadlock, take the locks in the same order
everywhere. If the GIL is one of the locks, release it before a mutex is locked (``Py_BEGIN_ALLOW_THREADS``,
``py::gil_scoped_release``), or unlock the mutex before Python is called. *Waits for a child*: check the child. *Waits
in a read*: find what should write. If it is busy, run it again with a longer limit and compare the lines: the same
place again is a loop. ``py-spy dump --pid PID`` shows the same for a running process. With NCCL's *Watchdog caught
collective operation timeout*, the ranks that complain are those that waited. The one to check is silent.

How to prevent it
-----------------
Give every wait its own time limit (``lock.acquire(timeout=...)``, ``queue.get(timeout=...)``,
``future.result(timeout=...)``).

What it is often mistaken for
-----------------------------
A crash. A program that is merely slow: raise the limit. Pool threads that wait for work: they are idle, and belong to
every framework.

Sources
-------
- https://man7.org/linux/man-pages/man2/futex.2.html
- https://docs.python.org/3/library/threading.html#lock-objects
"""

from __future__ import annotations

import re

from necropsy.model import Confidence, Crash, Fix
from necropsy.predicates import died_by, messages, name_of, quote
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules import deadlock
from necropsy.rules.culprit import own_place, spell
from necropsy.rules.python import exited_badly
from necropsy.rules.requested import request_of
from necropsy.rules.standing import MOST, all_wait_for_locks, culprit, doing, in_order, stands, waits_by_name
from necropsy.rules.wording import sentence


def _match(crash: Crash) -> Finding | None:
    if (collective := _collective(crash)) is not None:
        return collective
    if not crash.threads:
        return None
    asked = request_of(crash)
    if asked is not None:  # without a circle, who ended it is what is known
        in_handler = crash.fault is not None and crash.fault.handled_first
        return None if in_handler else _deadlock(crash, f"stacks when {asked.signal} came")
    if crash.fault is not None or not _stood_still(crash):
        return None
    timed_out = crash.exit is not None and crash.exit.kind == "timeout"
    where = "stacks at the time limit" if timed_out else "stacks while it ran"
    if (circle := _deadlock(crash, where)) is not None:
        return circle
    main = in_order(crash)[0]
    place = own_place(main)
    at = f" at {spell(place)}" if place else ""
    when = "The time limit passed" if timed_out else "This is a snapshot of the running process"
    locked = all_wait_for_locks(crash)
    if locked is not None:
        summary = f"{when}, and all {locked} threads that run Python wait for locks: this looks like a deadlock; {name_of(main, crash)} is{at}."
    else:
        summary = f"{when}; {name_of(main, crash)} {doing(main)}{at}."
    confidence: Confidence = "likely" if locked is not None else "certain"
    if not timed_out:
        summary += " One snapshot cannot tell whether it hangs."
        confidence = "possible"
    first = "Find what each thread waits for."
    if place is not None and doing(main).startswith("was running"):
        first = (
            f"{spell(place)} was running, not waiting: look for a loop there that does not end, or for too much work."
        )
    elif place is not None:
        first = f"{spell(place)} is waiting: find what should have woken it up."
    return Finding(
        evidence=stands(crash, where),
        summary=summary,
        confidence=confidence,
        title=None if timed_out else "Snapshot of the running process: where every thread was",
        culprit=culprit(main),
        fixes=(Fix(text=first), _SLOW if timed_out else _TWICE),
    )


def _deadlock(crash: Crash, where: str) -> Finding | None:
    circle = deadlock.circle(crash)
    if not circle:
        return _left_locked(crash, where)
    return Finding(
        evidence=(*deadlock.evidence(crash, circle), *stands(crash, where)),
        summary=deadlock.summary(circle),
        confidence="likely" if deadlock.is_in_doubt(crash, circle) else "certain",
        culprit=circle[0].where,
        title="A deadlock",
        fixes=deadlock.fixes(circle),
        deadlock=circle,
    )


def _left_locked(crash: Crash, where: str) -> Finding | None:
    thread = deadlock.left_locked(crash)
    if thread is None:
        return None
    place = own_place(thread)
    at = f" at {spell(place)}" if place else ""
    return Finding(
        evidence=stands(crash, where),
        summary=f"{sentence(name_of(thread, crash))} waits{at} for an RLock that nothing will release: the thread that took it has ended.",
        confidence="likely",
        culprit=culprit(thread),
        title="A lock whose owner has ended",
        fixes=(
            Fix(
                text="Release the lock in the thread that takes it, also when an exception is raised there: take it by `with`.",
                command="with lock:",
            ),
        ),
    )


_SLOW = Fix(text="If it is only slow, give it more time.", command="necropsy run --timeout SECONDS ...")
_TWICE = Fix(
    text="Take a second snapshot some seconds later: a thread that is in the same place and has used no processor time in between hangs.",
    command="necropsy attach PID",
)


_RANK = re.compile(r"\[Rank (\d{1,6})\]")
_WORK = re.compile(r"OpType=(?P<operation>\w{1,40}).{0,200}?Timeout\(ms\)=(?P<limit>\d{1,12})")


def _collective(crash: Crash) -> Finding | None:
    """NCCL's watchdog ended a rank that the others did not join in time."""
    said = messages(crash, "nccl-timeout")
    died = died_by(crash, "SIGABRT")
    if not said or not (died or exited_badly(crash)):
        return None
    ranks = sorted({int(rank) for one in said for rank in _RANK.findall(one.text)})
    work = next((match for one in said if (match := _WORK.search(one.text))), None)
    who_waited = f"Rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:MOST]))}" if ranks else "A rank"
    what = f" in {work['operation']}" if work else ""
    limit = f" for {int(work['limit']) // 1000:,} seconds" if work else ""
    return Finding(
        evidence=(quote(said[0], "the first complaint of NCCL's watchdog"), *died),
        summary=f"{who_waited} waited{limit}{what} for ranks that never joined it, and NCCL's watchdog ended the program.",
        confidence="likely",
        title="A rank timed out waiting for the others",
        fixes=(
            Fix(
                text="Find the rank that does not complain: it is late, dead, or in another collective. Inspect it while the others wait.",
                command="py-spy dump --pid PID_OF_EACH_RANK; NCCL_DEBUG=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...",
            ),
            Fix(
                text="The usual reasons: unequal numbers of batches, work that only rank 0 does (a checkpoint, an evaluation), an exception on one rank."
            ),
            Fix(text="If it is only slow, set a longer timeout in init_process_group."),
        ),
    )


def _stood_still(crash: Crash) -> bool:
    """It was inspected while alive, or a text shows a waiting stack without any end."""
    if crash.exit is not None:
        return crash.exit.kind in {"timeout", "running"}
    shown = [thread for thread in crash.threads or () if thread.frames]
    thread = crash.crashed_thread or (shown[0] if shown else None)
    if thread is None or not thread.frames or thread.frames[0].found_by != "text":
        return False
    return waits_by_name(thread) is not None


RULE = Rule(
    _match,
    beats=("exit-status-only", "killed-by-signal", "uncaught-cpp-exception", "abort"),
    tried=Tried(
        advice="Take these locks in the same order in every thread.",
        result="crash gone",
        how="Both threads took the two locks in the same order; the program then ended normally.",
        test="tests/rules/test_advice_on_threads.py::test_locks_in_the_same_order",
    ),
    hit="""
        pid 4711
        exit timeout
        thread 4711 python3
        frame __lll_lock_wait @ libc.so.6 takes 32
        frame pthread_mutex_lock @ libc.so.6 takes 32
        frame Transfer(Account*, Account*) @ ext.so in ext.cc:9 takes 32
        waits futex 0x7f0000002000 owner 4712
        python main train.py:9
        thread 4712 worker
        frame __lll_lock_wait @ libc.so.6 takes 32
        frame pthread_mutex_lock @ libc.so.6 takes 32
        frame Transfer(Account*, Account*) @ ext.so in ext.cc:9 takes 32
        waits futex 0x7f0000003000 owner 4711
    """,
    miss="""
        pid 4711
        signal SIGTERM SI_USER
        sent-by 99
        thread 4711 python3 crashed
        frame __poll @ libc.so.6 takes 32
        waits poll
        python main train.py:9
    """,
)
