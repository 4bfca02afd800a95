"""A child was forked from a process with threads.

What happened
-------------
``fork`` copies one thread only. What the others held stays locked in the child for ever: locks of malloc, of a
library, of the logger. What they did is no longer done: CUDA's context and the pools of TensorFlow, gRPC and OpenMP
lose their threads. The child hangs at such a lock, or crashes in a library whose threads are gone.

How to be sure
--------------
The process was forked from one with several threads, and has executed no other program since. It died or hung in such
a library, or it waits for a lock whose owner is a thread that does not exist in it. PyTorch reports it: *Cannot
re-initialize CUDA in forked subprocess*.

How to fix it now
-----------------
Start workers by ``multiprocessing.get_context('spawn')`` or ``forkserver``, or fork them before TensorFlow, CUDA or
gRPC are used.

How to prevent it
-----------------
``multiprocessing.set_start_method('spawn')`` at the top of the program (the default from Python 3.14 on is no longer
fork).

What it is often mistaken for
-----------------------------
An ordinary bug in the worker: a child that crashes in its own code died of that. Many programs fork beside idle
OpenBLAS threads and survive.

Sources
-------
- https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
- https://man7.org/linux/man-pages/man2/fork.2.html
"""

from __future__ import annotations

from necropsy.frame_filter import file_name
from necropsy.lazy_re import regex
from necropsy.model import Crash, Culprit, Evidence, Fix, Thread
from necropsy.predicates import bare_name, died_by, frames_of, messages, name_of, quote, real_fault, signal_of
from necropsy.rule import NEVER, Finding, Found, Occurs, Rule, Tried
from necropsy.rules.culprit import culprit_of, innermost, own_place, python_line, spell
from necropsy.rules.log_rules import teller, told_of_the_end
from necropsy.rules.python import exit_evidence
from necropsy.rules.wording import sentence

_FRAGILE_MODULE = regex(
    r"(?:.*/)?(?:libcuda|libcudart|libnccl|libnvidia-|cygrpc|libgrpc|libgomp|libiomp5|libomp|libdispatch)[\w.-]*"
)
_FRAGILE_FUNCTION = regex(
    r"grpc(?:_core)?::.*|tsl::thread::.*|tensorflow::thread::.*|Eigen::ThreadPoolTempl.*|.*::ThreadPool(?:Interface)?::\w+|cu[A-Z]\w+|cuda[A-Z]\w+"
)
_LOCK = regex(r"_?PyThread_acquire_lock\w*|_?_*pthread_(?:mutex|rwlock)_\w*lock\w*|__lll_lock_wait\w*|_PyMutex_Lock\w*")
_BARRIER = regex(r"gomp_(?:team_|simple_)?barrier_wait\w*|gomp_team_end|gomp_managed_barrier_wait\w*")
"""GNU's OpenMP waits there for the other threads of its team. LLVM's begins anew after a fork."""
FIRST = 16


def _match(crash: Crash) -> Finding | None:
    return (
        _in_words(crash)
        or _orphaned_lock(crash)
        or _alone_in_a_team(crash)
        or _alone_at_a_lock(crash)
        or _in_fragile_library(crash)
    )


def _in_words(crash: Crash) -> Finding | None:
    found = messages(crash, "cuda-after-fork")
    confidence = told_of_the_end(crash, found[-1]) if found else None
    if confidence is None:
        return _unsafe_on_macos(crash)
    return Finding(
        evidence=(quote(found[-1], "the framework's own message"), *_forked(crash), *exit_evidence(crash)),
        summary="A forked worker used CUDA, which its parent had used before the fork: CUDA does not survive a fork.",
        confidence=confidence,
        culprit=teller(crash),
        fixes=_FIXES,
    )


def _unsafe_on_macos(crash: Crash) -> Finding | None:
    """A forked child that uses Objective-C or CoreFoundation is ended by macOS, which says so."""
    found = messages(crash, "fork-unsafe")
    if not found or (crash.exit is not None and crash.exit.kind == "exited" and crash.exit.code == 0):
        return None
    library = next((one.fields["library"] for one in found if "library" in one.fields), None)
    return Finding(
        evidence=(
            *(quote(one, "macOS's own message") for one in found[:2]),
            *died_by(crash, "SIGABRT", "SIGSEGV", "SIGTRAP", "SIGKILL", "SIGILL"),
            *_forked(crash),
        ),
        summary=f"A forked child used {f'`{library}`' if library else 'a library'} of macOS, which a process with threads may not do between fork() and exec(): the system ended it.",
        confidence="certain" if any(signal_of(crash) == one for one in ("SIGABRT", "SIGSEGV", "SIGTRAP")) else "likely",
        culprit=teller(crash),
        fixes=(
            *_FIXES,
            Fix(
                text="As a workaround, at your own risk: switch the check off.",
                command="OBJC_DISABLE_INITIALIZE_FORK_SAFETY=YES python ...",
            ),
            Fix(text="No proxies are looked up in the child.", command="no_proxy='*' python ..."),
        ),
    )


def _orphaned_lock(crash: Crash) -> Finding | None:
    """It waits for a lock whose holder exists only in the parent."""
    forked = _forked(crash)
    if not forked:
        return None
    here = {thread.tid for thread in crash.threads or ()}
    for thread in crash.threads or ():
        owner = thread.waits.owner if thread.waits else None
        if owner and owner not in here:
            return Finding(
                evidence=(*forked, _waiting(thread, crash)),
                summary=f"{sentence(name_of(thread, crash))} waits for a lock that thread {owner} holds, which was not copied by the fork: the lock will never be released.",
                confidence="certain",
                culprit=_waiter(thread),
                fixes=_FIXES,
            )
    return None


def _waiter(thread: Thread) -> Culprit | None:
    """The innermost function outside the lock code, and the Python line; there was no crash."""
    frame = innermost(tuple(one for one in thread.frames or () if not _LOCK.fullmatch(bare_name(one.function or ""))))
    place = own_place(thread)
    if frame is None and place is None:
        return None
    return Culprit(
        function=frame.function if frame else None,
        module=file_name(frame.module) if frame and frame.module else None,
        source=frame.source if frame else None,
        line=frame.line if frame else None,
        python=place,
    )


def _alone_at_a_lock(crash: Crash) -> Finding | None:
    """The process's only thread waits for its own lock, which nothing can release."""
    forked = _forked(crash)
    if not forked or crash.fault is not None or len(crash.threads or ()) != 1:
        return None
    thread = (crash.threads or ())[0]
    if thread.waits is None or thread.waits.call != "futex" or thread.waits.ended or thread.waits.owner == thread.tid:
        return None
    frame = next(
        (one for one in (thread.frames or ())[:8] if one.function and _LOCK.fullmatch(bare_name(one.function))), None
    )
    if frame is None:
        return None
    place = own_place(thread)
    return Finding(
        evidence=(
            *forked,
            Evidence(
                claim="its only thread waits for a lock", seen=frame.function or "?", where=f"frame {frame.index}"
            ),
            *((Evidence(claim="where it waits", seen=spell(place), where="Python stack"),) if place else ()),
        ),
        summary=f"A forked child{f' waits at {spell(place)}' if place else ' waits'} for a lock, and no thread of it can release the lock: a thread of its parent held it at the fork.",
        confidence="likely",
        culprit=Culprit(python=place) if place else None,
        fixes=_FIXES,
    )


def _alone_in_a_team(crash: Crash) -> Finding | None:
    """The process's only thread waits for the others of a team of OpenMP, which stayed in the parent."""
    forked = _forked(crash)
    if not forked or real_fault(crash) or len(crash.threads or ()) != 1:
        return None
    thread = (crash.threads or ())[0]
    frame = next((one for one in (thread.frames or ())[:4] if _BARRIER.fullmatch(bare_name(one.function or ""))), None)
    if frame is None or thread.waits is None or thread.waits.ended:
        return None
    place = own_place(thread)
    return Finding(
        evidence=(
            *forked,
            Evidence(
                claim="its only thread waits for the other threads of a parallel region",
                seen=frame.function or "?",
                where=f"frame {frame.index}",
            ),
            *((Evidence(claim="where it waits", seen=spell(place), where="Python stack"),) if place else ()),
        ),
        summary=f"A forked child{f' waits at {spell(place)}' if place else ' waits'} for the threads of OpenMP's pool, which the fork did not copy: they will never come.",
        confidence="certain",
        culprit=Culprit(python=place) if place else None,
        fixes=(
            *_FIXES,
            Fix(text="Or compute with one thread before the fork.", command="OMP_NUM_THREADS=1 python ..."),
        ),
    )


def _waiting(thread: Thread, crash: Crash) -> Evidence:
    waits = thread.waits
    seen = f"{waits.on}, held by thread {waits.owner}" if waits else "?"
    return Evidence(claim=f"what {name_of(thread, crash)} waits for", seen=seen, where="its system call, and the lock")


def _in_fragile_library(crash: Crash) -> Finding | None:
    forked = _forked(crash)
    if not forked or not (real_fault(crash) or died_by(crash, "SIGABRT")):
        return None
    frame = next(
        (
            one
            for one in frames_of(crash)[:FIRST]
            if (one.module and _FRAGILE_MODULE.fullmatch(one.module))
            or (one.function and _FRAGILE_FUNCTION.fullmatch(bare_name(one.function)))
        ),
        None,
    )
    if frame is None:
        return None
    what = frame.function or frame.module or "?"
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL"),
            *forked,
            Evidence(claim="it was in a library that does not survive a fork", seen=what, where=f"frame {frame.index}"),
            *python_line(crash),
        ),
        summary=f"A child that was forked from a process with threads used `{bare_name(what)}`, whose threads or state the fork did not copy.",
        confidence="possible",
        culprit=culprit_of(crash),
        fixes=_FIXES,
    )


def _forked(crash: Crash) -> Found:
    count = crash.forked_from_threads
    if not count or count < 2:
        return ()
    return (
        Evidence(
            claim="it was forked from a process with several threads, and runs the same program",
            seen=f"{count} threads at the fork, no exec since",
            where="tracing of the parent",
        ),
    )


_FIXES = (
    Fix(
        text="Start new worker processes instead of forking: call this before the first process or pool is created. It does not apply to a program that calls os.fork() itself: start a new program there (subprocess).",
        command="multiprocessing.set_start_method('spawn')",
    ),
    Fix(text="Or fork them before TensorFlow, CUDA, gRPC or any thread is used."),
)

RULE = Rule(
    _match,
    needs=(),
    beats=("python-exception", "exit-status-only", "hang", "abort", "killed-by-signal"),
    occurs=Occurs(windows=NEVER),
    tried=Tried(
        advice="Start new worker processes instead of forking, by the printed line.",
        result="crash gone",
        how=(
            "By hand on 22 November 2026 (CPython 3.11.7, glibc 2.36), with a child of ``multiprocessing`` "
            "that waited for a lock which a thread of its parent held: with the printed "
            "``set_start_method('spawn')`` it ended normally. A program that calls os.fork() itself is not "
            "reached by it, as the advice says."
        ),
    ),
    hit="""
        exit 1
        forked-from 12
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in load
        log RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x10 read
        forked-from 12
        at 0x7f0000001000 mov eax, dword ptr [rdi + 0x10]
        operand read [rdi + 0x10] = 0x10 size 4 rdi=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame Load(int*) @ op.so in op.cc:31 takes 32
    """,
)
