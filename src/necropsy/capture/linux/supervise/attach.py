"""``attach``: stops a running or hanging process, reads it, and lets it continue.

No signal is sent, a stopped process stays stopped, and calls go on waiting. Only the timeout of the few calls that
signal(7) names as interrupted by a stop (``epoll_wait`` among them) starts anew.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from necropsy.capture.linux.inspect import crash_builder
from necropsy.capture.linux.supervise import crash_capture, interrupted_calls, ptrace
from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.capture.linux.supervise.ptrace import Stop
from necropsy.capture.linux.supervise.traced_processes import now, status_of
from necropsy.errors import AttachRefusedError, NoInputError
from necropsy.model import Crash, Exit, Gap

STOP_S = 2.0
"""How long the threads may take to stop; those in an uninterruptible sleep do not."""
_MOST_ROUNDS = 100


def attach(pid: int, *, python_locals: bool = False, budget_s: float = 20.0, core: BinaryIO | None = None) -> Crash:
    """Read every thread of a running process; ``fault`` is None, ``exit`` says that it runs; ``core`` receives a core.

    Raises NoInputError where there is no such process, or only a zombie, and AttachRefusedError where the kernel or
    another tracer forbids it.
    """
    crash_capture.preload()
    owner = process_of(pid)
    with held(owner) as (stopped, running):
        at = now()
        gaps: tuple[Gap, ...] = (Gap(part="log_tail", why="what it wrote before was not seen"),)
        if running:
            names = ", ".join(str(tid) for tid in running[:5])
            why = f"{len(running)} did not stop within {STOP_S:g} s: {names}"
            gaps = (*gaps, Gap(part="threads", why=why))
        death = CrashContext(
            pid=owner,
            tid=owner if owner in stopped else min(stopped),
            signo=0,
            siginfo=None,
            threads=tuple(sorted(stopped)),
            gaps=gaps,
            python_locals=python_locals,
            budget_s=budget_s,
            core=core,
        )
        crash = crash_builder.capture(death)
    return msgspec.structs.replace(crash, at=at, exit=Exit(kind="running"))


def process_of(pid: int) -> int:
    """The process that a thread belongs to. Raises NoInputError where there is none, or only a zombie."""
    status = status_of(pid)
    if not status:
        raise NoInputError(f"there is no process {pid}")
    if status.get("State", "").startswith(("Z", "X")):
        raise NoInputError(f"process {pid} has ended already")
    return int(status.get("Tgid") or pid)


@contextlib.contextmanager
def held(pid: int, only: int | None = None) -> Iterator[tuple[dict[int, Stop], list[int]]]:
    """Stop all threads of the process: those stopped, by id, and those that would not stop; let go at the end.

    ``only``: this thread alone. Raises NoInputError, AttachRefusedError.
    """
    stopped: dict[int, Stop] = {}
    seized: set[int] = set()
    try:
        _seize_all(pid, seized, only)
        deadline = time.monotonic() + STOP_S
        while seized - stopped.keys() and time.monotonic() < deadline:
            _collect(seized, stopped)
            _seize_all(pid, seized, only)  # what they started before they stopped
        if not stopped:
            raise NoInputError(f"process {pid} ended or does not stop")
        yield stopped, sorted(seized - stopped.keys())
    finally:
        _let_go(seized, stopped)


def _seize_all(pid: int, seized: set[int], only: int | None) -> None:
    for _ in range(_MOST_ROUNDS):
        fresh = (_threads(pid) if only is None else {only}) - seized
        if not fresh:
            return
        for tid in fresh:
            with contextlib.suppress(ProcessLookupError):
                _seize(pid, tid)
                seized.add(tid)
                ptrace.interrupt(tid)


def _seize(pid: int, tid: int) -> None:
    try:
        ptrace.seize(tid, 0)
    except ProcessLookupError:
        raise
    except OSError as error:
        status = status_of(tid)
        tracer = status.get("TracerPid", "0")
        if status.get("State", "").startswith(("Z", "X")):
            raise ProcessLookupError from None
        if tracer != "0":
            why = f"process {pid} is being traced by another process ({tracer})"
            raise AttachRefusedError(why) from None
        raise AttachRefusedError(f"cannot attach to process {pid}: {os.strerror(error.errno or 0)}") from None


def _threads(pid: int) -> set[int]:
    try:
        return {int(one.name) for one in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:
        return set()


def _collect(seized: set[int], stopped: dict[int, Stop]) -> None:
    nothing = True
    for tid in sorted(seized - stopped.keys()):
        try:
            found, status = os.waitpid(tid, ptrace.WALL | os.WNOHANG)
        except ChildProcessError:
            found, status = tid, 0
        if not found:
            continue
        nothing = False
        stop = Stop.of(tid, status)
        if stop is None:
            seized.discard(tid)
        else:
            stopped[tid] = stop
    if nothing:
        time.sleep(0.001)


def _let_go(seized: set[int], stopped: dict[int, Stop]) -> None:
    """Detach all: a signal that a thread was about to take is delivered, a group-stop goes on."""
    for tid in seized:
        with contextlib.suppress(OSError):
            if tid not in stopped:
                # It must be stopped to be let go; where it does not stop, our end lets it go.
                found, status = os.waitpid(tid, ptrace.WALL | os.WNOHANG)
                stop = Stop.of(tid, status) if found else None
                if stop is None:
                    continue
                stopped[tid] = stop
            stop = stopped[tid]
            if stop.event == ptrace.EVENT_STOP and stop.signo == signal.SIGTRAP:
                interrupted_calls.resume_after_interrupt(tid)
            ptrace.detach(tid, stop.signo if stop.event == 0 else 0)
