"""No further thread could be started.

What happened
-------------
The system refused one more thread or process (EAGAIN, *Resource temporarily unavailable*): the user's limit of
processes (``ulimit -u``), the limit of the control group (``pids.max``, which containers set), or no address space
for its stack.

How to be sure
--------------
``can't start new thread`` from Python, ``std::system_error`` with *Resource temporarily unavailable* from C++, or the
line of OpenBLAS, OpenMP or TensorFlow that names ``pthread_create``; and the end fits it.

How to fix it now
-----------------
Look at the limits: ``ulimit -u``, ``cat /sys/fs/cgroup/pids.max``. Start fewer threads: ``OPENBLAS_NUM_THREADS=1``,
``OMP_NUM_THREADS=4``, ``tf.config.threading``, fewer workers. On a machine with many cores every library starts one
thread for each.

How to prevent it
-----------------
In containers set the number of threads to the number of CPUs that the container has, not the machine.

What it is often mistaken for
-----------------------------
Running out of memory: the message is about a *resource*, and that resource is a thread. A recursion that starts
threads.

Sources
-------
- https://man7.org/linux/man-pages/man3/pthread_create.3.html
- https://docs.kernel.org/admin-guide/cgroup-v2.html#pid
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.predicates import calls, died_by, frames_of, messages, quote, signal_of
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules import limits
from necropsy.rules.aborts import uncaught
from necropsy.rules.culprit import python_line
from necropsy.rules.exit_causes import GIVEN_UP
from necropsy.rules.experiment_proposals import of_threads_wanted
from necropsy.rules.log_rules import gave_up, may_be_windows_abort, teller, told_of_the_end
from necropsy.rules.python import exit_evidence, last_traceback

_POOLS = re.compile(r"openblas|libgomp|libiomp|libomp|libmkl|libtbb")
_UNAVAILABLE = "Resource temporarily unavailable"


def _match(crash: Crash) -> Finding | None:
    message = _said(crash)
    if message is None:
        return None
    if signal_of(crash) in {"SIGSEGV", "SIGBUS"} and not _in_pool(crash):
        return None
    # OpenBLAS only warns; the OpenMP runtimes end the program with their line.
    goes_on = message.kind == "thread-limit" and "OMP: Error" not in message.text and "libgomp" not in message.text
    decisive = not goes_on or (not gave_up(crash) and last_traceback(crash) is None and not may_be_windows_abort(crash))
    trapped = signal_of(crash) == "SIGTRAP" and "Error creating thread" in message.text
    # GLib's errors end a program by a breakpoint instruction.
    confidence = "certain" if trapped else told_of_the_end(crash, message, decisive=decisive)
    if confidence is None:
        return None
    at_creation = calls(
        crash,
        r"std::thread::_M_start_thread|pthread_create.*|__pthread_create.*|.*StartThread",
        claim="a thread was being started",
    )
    if confidence == "likely" and (at_creation or message.kind == "check-failed"):
        confidence = "certain"
    set_here = limits.all_of(crash, "RLIMIT_NPROC", "pids.max")
    hit = limits.reached(crash, "pids.max", "RLIMIT_NPROC", "RLIMIT_AS")
    limit = (crash.environment.limits or {}).get("RLIMIT_NPROC") if crash.environment and not set_here else None
    known: Found = limits.evidence(*(hit or set_here))
    if limit is not None and limit >= 0:
        known = (Evidence(claim="the user's limit of processes and threads", seen=str(limit), where="RLIMIT_NPROC"),)
    return Finding(
        evidence=(
            quote(message, "the system refused a thread"),
            *_what(message),
            *died_by(crash, "SIGABRT", "SIGSEGV", "SIGTRAP"),
            *at_creation,
            *known,
            *exit_evidence(crash),
            *python_line(crash),
        ),
        summary="The program wanted to start one more thread, and the system refused it"
        + (f".{limits.summary(*hit)}" if hit else ": a limit on threads is reached."),
        confidence=confidence,
        culprit=teller(crash),
        fixes=(
            _FEWER_OF_PYTHON
            if "start new thread" in message.text
            else Fix(text="Start fewer threads.", command="OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=4 python ..."),
            *(
                limits.raising(*hit[:1])
                or (
                    Fix(
                        text="Or raise the limit.",
                        command="ulimit -u; cat /sys/fs/cgroup/pids.max; docker run --pids-limit=-1 ...",
                    ),
                )
            ),
        ),
    )


_FEWER_OF_PYTHON = Fix(
    text="Start fewer threads at a time: let a pool with a fixed number of workers take the tasks from a queue.",
    command="concurrent.futures.ThreadPoolExecutor(max_workers=32)",
)


def _what(message: Message) -> Found:
    """The exception's text, on the line after its type."""
    what = message.fields.get("what")
    if not what or what in message.text:
        return ()
    return (Evidence(claim="why", seen=what, where=message.where),)


def _in_pool(crash: Crash) -> bool:
    """It crashed in a library with its own threads, of which it may have got too few."""
    return any(frame.module and _POOLS.search(frame.module) for frame in frames_of(crash)[:6])


def _said(crash: Crash) -> Message | None:
    found = [
        message
        for message in (*messages(crash, "thread-limit", "cpp-terminate", "check-failed"), *uncaught(crash))
        if _is_about_threads(message)
    ]
    return found[-1] if found else None


def _is_about_threads(message: Message) -> bool:
    if message.kind == "cpp-terminate":
        kind = message.fields.get("type", "").replace("std::__1::", "std::")
        return kind == "std::system_error" and _UNAVAILABLE in message.fields.get("what", "")
    return message.kind == "thread-limit" or "creation via pthread_create() failed" in message.text


RULE = Rule(
    _match,
    beats=GIVEN_UP,
    experiments=of_threads_wanted,
    tried=Tried(
        advice="Start fewer threads, by the printed settings.",
        result="crash gone",
        how=(
            "A program with 2,000 threads of OpenMP was refused one; with the printed settings it ended "
            "normally, in a quarter of the address space."
        ),
        test="tests/rules/test_advice.py::test_openmp_threads",
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame std::terminate() @ libstdc++.so.6 takes 32
        frame __cxa_throw @ libstdc++.so.6 takes 32
        frame std::__throw_system_error(int) @ libstdc++.so.6 takes 32
        frame std::thread::_M_start_thread(std::unique_ptr<std::thread::_State>, void (*)()) @ libstdc++.so.6 takes 64
        frame Pool::Pool(int) @ ext.so in ext.cc:9 takes 64
        log terminate called after throwing an instance of 'std::system_error'
        log   what():  Resource temporarily unavailable
    """,
    miss="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame std::terminate() @ libstdc++.so.6 takes 32
        frame __cxa_throw @ libstdc++.so.6 takes 32
        log terminate called after throwing an instance of 'std::system_error'
        log   what():  Operation not permitted
    """,
)
