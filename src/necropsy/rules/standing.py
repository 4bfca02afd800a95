"""Threads that did not crash: where each stands and what it waits for, told in the order in which to look at them."""

from __future__ import annotations

from collections import Counter

from necropsy.frame_filter import noise
from necropsy.lazy_re import regex
from necropsy.model import Crash, Culprit, Evidence, Frame, PythonPlace, Thread, Wait
from necropsy.predicates import bare_name, is_main, name_of
from necropsy.rule import Found
from necropsy.rules.culprit import innermost, own_place, spell
from necropsy.rules.wording import short

MOST = 8
"""Threads that are reported, the main one first, then those that wait where few do: pools have hundreds that all wait."""
_PYTHON_LOCK = regex(
    r"_?PyThread_acquire_lock\w*|acquire_timed|lock_PyThread_acquire_lock|rlock_acquire|_PyMutex_\w+|_PyParkingLot_Park"
)
_GIL = regex(r"take_gil|_?PyEval_(?:Acquire|Restore)\w+|PyGILState_Ensure")


def in_order(crash: Crash) -> list[Thread]:
    """The threads: the main one first, then those that run Python and stand where few do."""
    alike = Counter(_what(thread) for thread in crash.threads or ())
    return sorted(
        crash.threads or (),
        key=lambda thread: (not is_main(thread, crash), not thread.python, alike[_what(thread)], thread.tid or 0),
    )


def stands(crash: Crash, where: str) -> Found:
    """Where they stand, as evidence; ``where``: which stacks say so."""
    threads = in_order(crash)
    told = tuple(_stand(thread, crash, where) for thread in threads[:MOST])
    if len(threads) > MOST:
        left = str(len(threads) - MOST)
        told += (Evidence(claim="further threads", seen=left, where="not shown here; the report has them"),)
    return told


def all_wait_for_locks(crash: Crash) -> int | None:
    """How many threads run Python, where there are several and each of them waits for a lock; else None."""
    python = [thread for thread in crash.threads or () if thread.python]
    locked = [thread for thread in python if _waits_for_python_lock(thread)]
    return len(python) if len(python) > 1 and len(locked) == len(python) else None


def _what(thread: Thread) -> tuple[str, PythonPlace | None]:
    """Activity and place, which are equal for all threads of a pool."""
    return doing(thread), own_place(thread)


_WAITS = (
    (
        "waits for a lock or an event",
        regex(
            r"_{0,2}(?:GI_)?_{0,2}(?:lll_lock_wait\w*|futex\w*|pthread_(?:mutex_lock|cond_(?:timed)?wait|rwlock_\w*lock|join)\w*|"
            r"sem_(?:timed|clock)?wait\w*|new_sem_wait\w*|psynch_\w+|ulock_wait\w*|semaphore_\w*wait\w*)(?:@@?\w+)?|"
            r"_*pthread_clockjoin\w*|do_futex_wait\w*|"
            r"(?:Nt|Zw)?(?:WaitFor\w+Objects?(?:Ex)?|WaitForAlertByThreadId|RtlSleepConditionVariable\w*)"
        ),
    ),
    ("waits for a child", regex(r"_{0,2}(?:GI_)?_{0,2}(?:wait4|waitpid|waitid)(?:_nocancel)?")),
    (
        "waits for data",
        regex(
            r"_{0,2}(?:GI_|libc_)?_{0,2}(?:poll|ppoll|epoll_p?wait|select|pselect|read|recv\w*|accept4?)(?:_nocancel)?"
        ),
    ),
    ("sleeps", regex(r"_{0,2}(?:GI_)?_{0,2}(?:clock_)?nanosleep\w*|(?:Nt|Zw)DelayExecution")),
    ("waits for work", regex(r"(?:Nt|Zw)(?:WaitForWorkViaWorkerFactory|RemoveIoCompletion(?:Ex)?)")),
)
_IN_KERNEL = regex(r"syscall(?:_cancel\w*)?|__internal_syscall_cancel|KiFastSystemCallRet")


_OF_WINDOWS = (".dll", ".exe", ".pyd")
"""There nothing says whether a thread waits but the name of the function that it is in."""


def waits_by_name(thread: Thread) -> str | None:
    """What its innermost function waits for: a text tells no system call."""
    for frame in (thread.frames or ())[:3]:
        name = bare_name(frame.function) if frame.function else ""
        for words, pattern in _WAITS:
            if pattern.fullmatch(name):
                return words
        if name and not _IN_KERNEL.fullmatch(name):
            return None
    return None


def doing(thread: Thread) -> str:
    """What it does, in words."""
    if thread.waits is None and (words := waits_by_name(thread)) is not None:
        return words
    if thread.waits is None:
        if thread.frames is None and not thread.holds_gil:
            return "stands"  # Python's frames alone do not tell whether it runs or waits
        frame = native_frame(thread)
        top = thread.frames[0] if thread.frames else None
        if top is not None and (top.module or "").lower().endswith(_OF_WINDOWS):
            return f"was in {short(frame.function) if frame is not None and frame.function else top.module}"
        return f"was running{f' in {short(frame.function)}' if frame is not None and frame.function else ''}"
    if _waits_for_python_lock(thread):
        return _for_python_lock(thread.waits)
    if waits_for_gil(thread):
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
        return waits_by_name(thread) or "waits in a system call"
    return f"waits in {waits.call}" + (f" on {waits.on}" if waits.on else "")


def _for_python_lock(waits: Wait) -> str:
    if waits.lock is None or waits.on is None:
        return "waits for a Python lock"
    if waits.owner is None or waits.owner_by == "join":
        return f"waits for {waits.on}"
    return f"waits for {waits.on}, which thread {waits.owner} holds"


def _nobody_known(waits: Wait) -> str:
    """The reason why the owner of a Python lock is not given."""
    if waits.count and waits.lock is not None:
        return " (the thread that holds it is gone: it ended without releasing it, or it was not copied by a fork)"
    if (waits.lock or "").startswith("multiprocessing."):
        return " (another process holds it, or ended while it held it)"
    return " (Python does not record who holds it)"


def waits_for_gil(thread: Thread) -> bool:
    """Whether it takes the interpreter's lock, also between waits of 5 ms (``take_gil``, Python/ceval_gil.c)."""
    if thread.waits is None or thread.holds_gil or (thread.waits.ended and not thread.waits.call.startswith("futex")):
        return False
    return any(frame.function and _GIL.fullmatch(bare_name(frame.function)) for frame in (thread.frames or ())[:8])


def _waits_for_python_lock(thread: Thread) -> bool:
    if thread.waits is None or thread.waits.ended:
        return False
    return any(
        frame.function and _PYTHON_LOCK.fullmatch(bare_name(frame.function)) for frame in (thread.frames or ())[:10]
    )


def _stand(thread: Thread, crash: Crash, where: str) -> Evidence:
    place = own_place(thread)
    frame = native_frame(thread)
    parts = [doing(thread)]
    if _waits_for_python_lock(thread) and thread.waits is not None and thread.waits.owner is None:
        parts[0] += _nobody_known(thread.waits)
    if place is not None:
        parts.append(f"Python at {spell(place)}")
    if frame is not None and frame.function and short(frame.function) not in parts[0]:
        parts.append(f"native code in {short(frame.function)}")
    if thread.waits is not None and thread.waits.address is not None:
        parts.append(f"{thread.waits.call} at {thread.waits.address}")
    if thread.holds_gil:
        parts.append("holds the GIL")
    return Evidence(claim=f"where {name_of(thread, crash)} was", seen=", ".join(parts), where=where)


def native_frame(thread: Thread) -> Frame | None:
    """The native function that says something: of Python and the C library only where nothing else is known."""
    frame = innermost(thread.frames or ())
    return frame if frame is not None and (noise(frame) is None or not thread.python) else None


def culprit(thread: Thread) -> Culprit | None:
    """The function and the line of Python at which it stands."""
    frame, place = native_frame(thread), own_place(thread)
    if frame is None and place is None:
        return None
    return Culprit(
        function=frame.function if frame else None,
        module=frame.module.rsplit("/", 1)[-1] if frame and frame.module else None,
        source=frame.source if frame else None,
        line=frame.line if frame else None,
        python=place,
    )
