"""The process that traces one client of the watcher, and those that report what it sees."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import resource
import select
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from necropsy.capture.linux.supervise import crash_capture, descriptors, tracer_process, without_ptrace
from necropsy.capture.linux.supervise.event_loop import WAKES
from necropsy.capture.linux.supervise.registered_tracer import Death, RegisteredTracer
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.run_options import RunOptions
from necropsy.watch import descriptors_of
from necropsy.watch.client import MOST, ask

__all__ = ["WAKES", "Task", "Wishes", "loading", "main", "raise_limits"]

_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
_HOLD_S = 3.0
"""How long a dying process is held for those who show its report."""
_REPORT = (
    *("zlib", "random", "hashlib", "shutil", "tempfile", "importlib.resources", "tomllib", "json", "zipfile"),
    *("necropsy.predicates", "necropsy.frame_filter", "necropsy.signature", "necropsy.document"),
    *("necropsy.reports.wording", "necropsy.reports.stack", "necropsy.reports.text", "necropsy.reports.brief"),
    *("necropsy.reporting", "necropsy.secrets.forms", "necropsy.secrets.commands", "necropsy.secrets.commands"),
)


def loading() -> Iterator[bool]:
    """Load what reading and reporting need, piece by piece; never raises.

    Each piece is worth its time: what is watched runs long.
    """
    for name in _REPORT:
        with contextlib.suppress(Exception):  # the report will say what is missing
            importlib.import_module(name)
        yield True
    with contextlib.suppress(Exception):
        from necropsy.rules import one_by_one

        for _ in one_by_one():
            yield True
    for _ in itertools.chain(crash_capture.loading(), crash_capture.warming()):
        yield True
    gc.collect()
    gc.freeze()  # it is shared by all that is forked from here


def raise_limits() -> None:
    """A limit on the client's memory or CPU time is not meant for us."""
    for limit in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.getrlimit(limit)
            resource.setrlimit(limit, (hard, hard))


class Wishes(NamedTuple):
    """What a process wants to be done with reports: show them on its stderr, keep them in the folder of reports."""

    show: bool = True
    keep: bool = True


@dataclass(frozen=True)
class Task:
    """Whom to trace. ``asker`` gets the answer, ``link`` leads to the watcher at ``path``."""

    pid: int
    path: str
    asker: socket.socket
    link: socket.socket
    facts: Facts
    with_children: bool


def main(task: Task, pieces: Iterator[object] | None) -> NoReturn:
    """Trace until nobody is left. ``pieces``: what has not been loaded yet."""
    status = 1
    try:
        tracer_process.name_process("necropsy-trace")
        descriptors.keep_only({task.asker.fileno(), task.link.fileno()})
        _trace(task, pieces)
        status = 0
    except BaseException as error:  # noqa: BLE001 - the last line of this process
        with contextlib.suppress(OSError):
            task.asker.send(f"no the watcher failed: {type(error).__name__}: {error}".encode(errors="replace")[:2000])
    finally:
        os._exit(status)


def _trace(task: Task, pieces: Iterator[object] | None) -> None:
    task.link.setblocking(True)
    task.asker.setblocking(True)

    def tell(what: str, pid: int) -> None:
        with contextlib.suppress(OSError):  # the watcher is gone
            task.link.send(f"{what} {pid}".encode())

    def traced() -> None:
        with task.asker, contextlib.suppress(OSError):
            task.asker.send(b"yes")

    options = RunOptions(core="small", loading=lambda: pieces or iter(()))
    try:
        tracer = RegisteredTracer(
            task.pid,
            options,
            lambda death: _report(task, death),
            tell,
            facts=task.facts,
            traced=traced,
            with_children=task.with_children,
        )
    except OSError as error:
        task.asker.send(b"no " + without_ptrace.refusal(task.pid, error).encode())
        return
    tracer.on_wake = lambda: _listen(task.link, tracer)
    tracer.serve()


def _listen(link: socket.socket, tracer: RegisteredTracer) -> None:
    """What the watcher wants: a process is to be traced no longer, and somebody waits for that."""
    if not select.select([link], [], [], 0)[0]:
        return
    with contextlib.suppress(OSError):
        said, files, _, _ = socket.recv_fds(link, MOST, 1)
        if files:
            asker = socket.socket(fileno=files[0])

            def answer() -> None:
                with asker, contextlib.suppress(OSError):
                    asker.send(b"yes")

            tracer.let_go(int(said.split()[1]), answer)


# ---------------------------------------------------------------- reports


def _report(task: Task, death: Death) -> int:
    """Fork the process that reports; 0 where none is to be had."""
    stderr = _stderr_of(death.root)
    stderr = _stderr_of(death.pid) if stderr is None else stderr
    try:
        reporter = os.fork()
    except OSError:
        reporter = 0
    else:
        if not reporter:
            _report_and_end(task, death, stderr)
    if stderr is not None:
        os.close(stderr)
    return reporter


def _report_and_end(task: Task, death: Death, stderr: int | None) -> NoReturn:
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if stderr is not None:
            os.dup2(stderr, 2)
        wishes = _wishes(task, death)
        if not wishes.keep:
            os.environ["NECROPSY_KEEP"] = "0"
        from necropsy.reporting import ReportRequest, report

        file = os.memfd_create("necropsy-report", os.MFD_CLOEXEC)
        record = death.record()
        if record.crashes:
            command = record.processes[0].command or ()
            report(ReportRequest(command, json_file=Path(f"/dev/fd/{file}"), quiet=not wishes.show), record)
            with contextlib.suppress(OSError):
                _hand_over(task.link, death.pid, file)
        else:
            task.link.send(f"ended {death.pid}".encode())
        status = 0
    except BaseException as error:  # noqa: BLE001 - the last line of this process
        with contextlib.suppress(Exception):
            from necropsy.console import say

            say(f"necropsy: the report on process {death.pid} failed: {type(error).__name__}: {error}")
            task.link.send(f"ended {death.pid}".encode())
    finally:
        os._exit(status)


def _hand_over(link: socket.socket, pid: int, file: int) -> None:
    """Send the report to whoever waits for it. The process is held until they are done with it: see ``held_report``.

    Raises OSError if the watcher is gone.
    """
    done, hold = os.pipe()
    try:
        socket.send_fds(link, [f"report {pid}".encode()], [file, hold])
    finally:
        os.close(hold)
    select.select([done], [], [], _HOLD_S)


def _wishes(task: Task, death: Death) -> Wishes:
    """Those of the process itself, or else of its nearest parent that has any."""
    pids = " ".join(map(str, (death.pid, *death.parents, death.root)))
    try:
        show, keep = ask(task.path, f"wishes {pids}".encode()).split()
    except (OSError, ValueError):
        return Wishes()
    return Wishes(show == b"1", keep == b"1")


def _stderr_of(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            return descriptors_of.duplicate(handle, 2)
        except OSError:
            pass
        finally:
            os.close(handle)
        return os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC)
    return None
