"""Stopped at the time limit: where every thread stood.

What happened
-------------
The program did not end within the time that ``--timeout`` gave it. Before it was ended, all its threads were stopped and read: which Python
line and which native function each was in, and what each waited for. Or nothing ended it: somebody looked at it while it ran, with
``necropsy attach``, a debugger, or a dump.

How to be sure
--------------
The positions are facts, and that the time limit passed is one. Whether a program that was **looked at while it ran** hangs, one look does
not tell: every program waits now and then. The report then says *possible*. Look a second time: what stands in the same place and has used
no processor time between, hangs.

A **deadlock** is certain only where a circle is seen: a thread waits for a lock that another one holds, which
waits for a lock that the first one holds (glibc's mutexes name their owner; Python's locks do not). A thread that was running, not waiting in a system call,
was busy: slow, or in an endless loop. Which of them is *the* reason is for the reader to judge.

How to fix it now
-----------------
Begin with the main thread, then with the one that it waits for. In a deadlock, take the locks in the same order everywhere. *Waits for a
child*: look at the child. *Waits in a read*: who should write? Busy: run it again with a longer limit and compare the lines: the same place
again is a loop. ``py-spy dump --pid PID`` shows the same of a process that runs. *Watchdog caught collective operation timeout* of NCCL: the
ranks that complain are those that waited; the one to look at is silent.

How to prevent it
-----------------
Give every wait a limit of its own (``lock.acquire(timeout=...)``, ``queue.get(timeout=...)``, ``future.result(timeout=...)``).

What it is often mistaken for
-----------------------------
A crash. A program that is merely slow: raise the limit. Pool threads that wait for work: they are idle, and belong to every framework.

Sources
-------
- https://man7.org/linux/man-pages/man2/futex.2.html
- https://docs.python.org/3/library/threading.html#lock-objects
"""

from __future__ import annotations

import re
from collections import Counter

from necropsy.model import Confidence, Crash, Culprit, Evidence, Fix, Frame, PythonPlace, Thread
from necropsy.noise import noise
from necropsy.questions import bare_name, died_by, is_main, messages, name_of, quote
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.culprit import innermost, own_place, spell
from necropsy.rules.python import exited_badly
from necropsy.rules.wording import short

MOST = 8
"""Threads that are told of, the main one first, then those that stand where few do: pools have hundreds that all wait."""
_PYTHON_LOCK = re.compile(
    r"_?PyThread_acquire_lock\w*|acquire_timed|lock_PyThread_acquire_lock|rlock_acquire|_PyMutex_\w+|_PyParkingLot_Park"
)
_GIL = re.compile(r"take_gil|_?PyEval_(?:Acquire|Restore)\w+")


def _match(crash: Crash) -> Finding | None:
    if (collective := _collective(crash)) is not None:
        return collective
    if crash.fault is not None or not crash.threads or not _stood_still(crash):
        return None
    alike = Counter(_what(thread) for thread in crash.threads)
    threads = sorted(
        crash.threads,
        key=lambda thread: (not is_main(thread, crash), not thread.python, alike[_what(thread)], thread.tid or 0),
    )
    main = threads[0]
    timed_out = crash.exit is not None and crash.exit.kind == "timeout"
    circle = _circle(crash)
    stands = tuple(_stand(thread, crash) for thread in threads[:MOST])
    if len(threads) > MOST:
        stands += (
            Evidence(
                claim="further threads", seen=str(len(threads) - MOST), where="not told here; the report has them"
            ),
        )
    if circle:
        return Finding(
            evidence=(*_circle_evidence(circle, crash), *stands),
            summary=_circle_summary(circle, crash),
            confidence="certain",
            culprit=_culprit(circle[0]),
            title="A deadlock",
            fixes=(Fix(text="Take these locks in the same order in every thread, or hold only one at a time."),),
        )
    place = own_place(main)
    at = f" at {spell(place)}" if place else ""
    python = [thread for thread in threads if thread.python]
    locked = [thread for thread in python if _waits_for_python_lock(thread)]
    when = "The time limit passed" if timed_out else "It was looked at while it ran"
    all_wait = len(python) > 1 and len(locked) == len(python)
    if all_wait:
        summary = f"{when}, and all {len(python)} threads that run Python wait for locks: this looks like a deadlock; {name_of(main, crash)} is{at}."
    else:
        summary = f"{when}; {name_of(main, crash)} {_doing(main)}{at}."
    confidence: Confidence = "likely" if all_wait else "certain"
    if not timed_out:
        summary += " Whether it hangs, one look does not tell."
        confidence = "possible"
    first = f"Look at {spell(place)}: what should have ended this?" if place else "Look at what each thread waits for."
    return Finding(
        evidence=stands,
        summary=summary,
        confidence=confidence,
        title=None if timed_out else "Looked at while it ran: where every thread stood",
        culprit=_culprit(main),
        fixes=(Fix(text=first), _SLOW if timed_out else _TWICE),
    )


def _what(thread: Thread) -> tuple[str, PythonPlace | None]:
    """What it does and where, by which the threads of a pool are all the same."""
    return _doing(thread), own_place(thread)


_SLOW = Fix(text="If it is only slow, give it more time.", command="necropsy run --timeout SECONDS ...")
_TWICE = Fix(
    text="Look a second time, some seconds later: what stands in the same place, and has used no processor time between, hangs.",
    command="necropsy attach PID",
)


_RANK = re.compile(r"\[Rank (\d{1,6})\]")
_WORK = re.compile(r"OpType=(?P<operation>\w{1,40}).{0,200}?Timeout\(ms\)=(?P<limit>\d{1,12})")


def _collective(crash: Crash) -> Finding | None:
    """NCCL's watchdog ended a rank because the others did not come to the same operation in time."""
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
        summary=f"{who_waited} waited{limit}{what} for ranks that never came to it, and NCCL's watchdog ended the program.",
        confidence="likely",
        title="A rank waited in vain for the others",
        fixes=(
            Fix(
                text="Find the rank that does not complain: it is late, dead, or in another collective. Look at it while all wait.",
                command="py-spy dump --pid PID_OF_EACH_RANK; NCCL_DEBUG=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun ...",
            ),
            Fix(
                text="The usual reasons: unequal numbers of batches, work that only rank 0 does (a checkpoint, an evaluation), an exception on one rank."
            ),
            Fix(text="Where it is only slow: a longer timeout in init_process_group."),
        ),
    )


def _stood_still(crash: Crash) -> bool:
    """Somebody looked at it while it lived; or a text shows a stack that waits, and no end at all."""
    if crash.exit is not None:
        return crash.exit.kind in {"timeout", "running"}
    shown = [thread for thread in crash.threads or () if thread.frames]
    thread = crash.crashed_thread or (shown[0] if shown else None)
    if thread is None or not thread.frames or thread.frames[0].found_by != "text":
        return False
    return _waits_by_name(thread) is not None


_WAITS = (
    (
        "waits for a lock or an event",
        re.compile(
            r"_{0,2}(?:GI_)?_{0,2}(?:lll_lock_wait\w*|futex\w*|pthread_(?:mutex_lock|cond_(?:timed)?wait|rwlock_\w*lock|join)\w*|"
            r"sem_(?:timed|clock)?wait\w*|new_sem_wait\w*|psynch_\w+|ulock_wait\w*|semaphore_\w*wait\w*)(?:@@?\w+)?|"
            r"_*pthread_clockjoin\w*|do_futex_wait\w*|"
            r"(?:Nt|Zw)?(?:WaitFor\w+Objects?(?:Ex)?|WaitForAlertByThreadId|RtlSleepConditionVariable\w*)"
        ),
    ),
    ("waits for a child", re.compile(r"_{0,2}(?:GI_)?_{0,2}(?:wait4|waitpid|waitid)(?:_nocancel)?")),
    (
        "waits for data",
        re.compile(
            r"_{0,2}(?:GI_|libc_)?_{0,2}(?:poll|ppoll|epoll_p?wait|select|pselect|read|recv\w*|accept4?)(?:_nocancel)?"
        ),
    ),
    ("sleeps", re.compile(r"_{0,2}(?:GI_)?_{0,2}(?:clock_)?nanosleep\w*|(?:Nt|Zw)DelayExecution")),
    ("waits for work", re.compile(r"(?:Nt|Zw)(?:WaitForWorkViaWorkerFactory|RemoveIoCompletion(?:Ex)?)")),
)
_IN_KERNEL = re.compile(r"syscall(?:_cancel\w*)?|__internal_syscall_cancel|KiFastSystemCallRet")


_OF_WINDOWS = (".dll", ".exe", ".pyd")
"""There nothing says whether a thread waits but the name of the function that it stands in."""


def _waits_by_name(thread: Thread) -> str | None:
    """What its innermost function waits for: a text tells no system call."""
    for frame in (thread.frames or ())[:3]:
        name = bare_name(frame.function) if frame.function else ""
        for words, pattern in _WAITS:
            if pattern.fullmatch(name):
                return words
        if name and not _IN_KERNEL.fullmatch(name):
            return None
    return None


def _doing(thread: Thread) -> str:
    """What it does, in words."""
    if thread.waits is None and (words := _waits_by_name(thread)) is not None:
        return words
    if thread.waits is None:
        if thread.frames is None and not thread.holds_gil:
            return "stands"  # Python's frames alone do not tell whether it runs or waits
        frame = _native(thread)
        top = thread.frames[0] if thread.frames else None
        if top is not None and (top.module or "").lower().endswith(_OF_WINDOWS):
            return f"stood in {short(frame.function) if frame is not None and frame.function else top.module}"
        return f"was running{f' in {short(frame.function)}' if frame is not None and frame.function else ''}"
    if _waits_for_python_lock(thread):
        return "waits for a Python lock"
    if any(frame.function and _GIL.fullmatch(bare_name(frame.function)) for frame in (thread.frames or ())[:8]):
        return "waits for the GIL"
    waits = thread.waits
    if waits.ended:
        return f"was in {waits.call}" + (f" on {waits.on}" if waits.on else "")
    if waits.owner is not None:
        return f"waits for a lock that thread {waits.owner} holds"
    calls = {"futex": "waits for a lock or an event", "wait4": "waits for a child", "waitid": "waits for a child"}
    if waits.call in calls:
        return calls[waits.call]
    if waits.call in {"nanosleep", "clock_nanosleep", "pause"}:
        return "sleeps"
    if waits.call == "restart_syscall":
        return _waits_by_name(thread) or "waits in a system call"
    return f"waits in {waits.call}" + (f" on {waits.on}" if waits.on else "")


def _waits_for_python_lock(thread: Thread) -> bool:
    if thread.waits is None or thread.waits.ended:
        return False
    return any(
        frame.function and _PYTHON_LOCK.fullmatch(bare_name(frame.function)) for frame in (thread.frames or ())[:10]
    )


def _stand(thread: Thread, crash: Crash) -> Evidence:
    place = own_place(thread)
    frame = _native(thread)
    parts = [_doing(thread)]
    if place is not None:
        parts.append(f"Python at {spell(place)}")
    if frame is not None and frame.function and short(frame.function) not in parts[0]:
        parts.append(f"native code in {short(frame.function)}")
    if thread.waits is not None and thread.waits.address is not None:
        parts.append(f"{thread.waits.call} at {thread.waits.address}")
    if thread.holds_gil:
        parts.append("holds the GIL")
    timed_out = crash.exit is not None and crash.exit.kind == "timeout"
    where = "stacks at the time limit" if timed_out else "stacks while it ran"
    return Evidence(claim=f"where {name_of(thread, crash)} stood", seen=", ".join(parts), where=where)


# ---------------------------------------------------------------- circles


def _circle(crash: Crash) -> list[Thread]:
    """Threads of which each waits for a lock that the next one holds, and the last for one of the first."""
    by_id = {thread.tid: thread for thread in crash.threads or ()}
    for start in by_id.values():
        path: list[Thread] = []
        thread: Thread | None = start
        while thread is not None and thread not in path:
            path.append(thread)
            owner = thread.waits.owner if thread.waits else None
            thread = by_id.get(owner) if owner is not None else None
        if thread is not None:
            return path[path.index(thread) :]
    return []


def _circle_evidence(circle: list[Thread], crash: Crash) -> Found:
    return tuple(
        Evidence(
            claim=f"{name_of(thread, crash)} waits for a lock that {name_of(holder, crash)} holds",
            seen=f"{thread.waits.on if thread.waits else '?'}: owner {holder.tid}",
            where="the lock itself",
        )
        for thread, holder in zip(circle, [*circle[1:], circle[0]], strict=True)
    )


def _circle_summary(circle: list[Thread], crash: Crash) -> str:
    first = name_of(circle[0], crash)
    if len(circle) == 1:
        return f"The program is deadlocked: {first} waits for a lock that it holds itself."
    middle = "".join(f", which waits for one that {name_of(thread, crash)} holds" for thread in circle[2:])
    return f"The program is deadlocked: {first} waits for a lock that {name_of(circle[1], crash)} holds{middle}, which waits for one that {first} holds."


def _native(thread: Thread) -> Frame | None:
    """The native function that says something: of Python and the C library only where nothing else is known."""
    frame = innermost(thread.frames or ())
    return frame if frame is not None and (noise(frame) is None or not thread.python) else None


def _culprit(thread: Thread) -> Culprit | None:
    frame, place = _native(thread), own_place(thread)
    if frame is None and place is None:
        return None
    return Culprit(
        function=frame.function if frame else None,
        module=frame.module.rsplit("/", 1)[-1] if frame and frame.module else None,
        source=frame.source if frame else None,
        line=frame.line if frame else None,
        python=place,
    )


RULE = Rule(
    name="hang",
    subject=Crash,
    title="Stopped at the time limit: where every thread stood",
    match=_match,
    page=__doc__ or "",
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
    references=("https://man7.org/linux/man-pages/man2/futex.2.html",),
)
