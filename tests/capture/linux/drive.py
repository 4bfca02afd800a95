"""Runs a command under the supervisor: ``drive.py RECORD OPTIONS COMMAND...``; what was seen is pickled to RECORD.

It replaces the command line, so that a failure here is the supervisor's. The option ``fault`` names one of
``FAULTS``: something that a full machine does now and then, done always.
"""

import contextlib
import dataclasses
import io
import json
import os
import pickle
import select
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from necropsy.capture.linux.stderr import bpf_probe
from necropsy.capture.linux.supervise import launch
from necropsy.errors import NecropsyError


def put(owner: object, name: str, replacement: Callable[..., object]) -> None:
    """Put ``replacement`` in the place of a function or method, which must be there."""
    assert callable(getattr(owner, name))
    setattr(owner, name, replacement)


def in_python() -> None:
    """The loop is the one in Python, where delays can be put."""
    os.environ["NECROPSY_LOOP"] = "python"


def slow_reading() -> None:
    """Reading a dead process takes for ever, and the name of the process that reads tells when it has begun."""
    from necropsy.capture.linux.supervise import crash_capture, tracer_process

    def read(death: object) -> NoReturn:
        tracer_process.name_process("reading")
        time.sleep(1000)
        raise AssertionError(death)

    crash_capture.read = read


def no_helper() -> None:
    """No process can be started for the log's tap or relay."""
    from necropsy.capture.linux.supervise import supervisor

    def start(helper: object) -> NoReturn:
        raise BlockingIOError(11, f"no process for {helper}")

    put(supervisor.Helper, "start", start)


def slow_relay() -> None:
    """What the command wrote is out half a second after it has ended, and after the tracer has."""
    from necropsy.capture.linux.stderr import pty_relay

    begun: list[float] = []
    serve = pty_relay.serve

    def is_drained(*_: object) -> bool:
        begun.append(time.monotonic())
        return begun[-1] - begun[0] > 0.5

    def serve_slowly(*arguments: Any) -> None:
        serve(*arguments)
        time.sleep(1)

    put(pty_relay, "is_drained", is_drained)
    put(pty_relay, "serve", serve_slowly)


def core_of_the_ended() -> None:
    """A core is written when its process has ended, and the next to be read, if any, has had time to die."""
    from necropsy.capture.linux.core import small_core

    write = small_core._write

    def is_mapped(pid: int) -> bool:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
            return bool(file.read(1))
        return False

    def once_ended(known: Any, *arguments: Any) -> None:
        deadline = time.monotonic() + 30
        while is_mapped(known.pid):
            if time.monotonic() > deadline:
                raise TimeoutError("the process waits for its core")
            time.sleep(0.01)
        time.sleep(0.2)
        write(known, *arguments)

    put(small_core, "_write", once_ended)


def no_descriptors_are_passed() -> None:
    """What is to be read cannot be handed to the process that reads, so the tracer reads it."""
    import socket

    def refused(*_: object) -> NoReturn:
        raise OSError(109, "Too many references")

    put(socket, "send_fds", refused)


def core_fails() -> None:
    """There is no room for a core."""
    from necropsy.capture.linux.core import small_core

    def full(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    put(small_core, "_write", full)


def core_is_deadly() -> None:
    """The process that writes a core is killed."""
    from necropsy.capture.linux.core import small_core

    def killed(*_: object) -> None:
        os.kill(os.getpid(), 9)

    put(small_core, "_write", killed)


def slow_to_wait() -> None:
    """The tracer has seen that a thread is about to exit, and is not on the CPU again before long."""
    in_python()
    find = os.waitid

    def waitid(kind: int, number: int, options: int) -> Any:
        found = find(kind, number, options)
        if kind == os.P_ALL and found is not None and found.si_status >> 8 == 6:
            time.sleep(0.3)
        return found

    os.waitid = waitid


def slow_to_continue() -> None:
    """The tracer has seen a new thread, and takes its time before it lets its creator go on."""
    in_python()
    from necropsy.capture.linux.supervise import ptrace, traced_threads

    created, cont = traced_threads.TracedThreads.created, ptrace.cont

    def late(tid: int, signo: int = 0) -> None:
        time.sleep(0.2)
        cont(tid, signo)

    def creates(self: Any, by: Any, event: int, *, go_on: bool) -> None:
        ptrace.cont = late
        try:
            created(self, by, event, go_on=go_on)
        finally:
            ptrace.cont = cont

    put(traced_threads.TracedThreads, "created", creates)


def slow_to_attach() -> None:
    """The tracer sleeps, until the command waits no longer and is executed without it."""
    from necropsy.capture.linux.supervise import tracer_process, watchdog

    watchdog.STILL_S = 1.0
    attach = tracer_process.TracerProcess._attach

    def late(self: tracer_process.TracerProcess, command: int) -> str | None:
        os.read(self.task.ready, 1)  # its other end is closed by the execution
        return attach(self, command)

    put(tracer_process.TracerProcess, "_attach", late)


def asleep() -> None:
    """The tracer sleeps for ever when a second thread is about to end, and is given a second to wake up."""
    in_python()
    from necropsy.capture.linux.supervise import python_loop, watchdog

    watchdog.STILL_S = 1.0
    exits = python_loop.PythonLoop._exit

    def sleep(self: python_loop.PythonLoop, thread: Any) -> Any:
        if thread.tid != thread.process.pid:
            time.sleep(1000)
        return exits(self, thread)

    put(python_loop.PythonLoop, "_exit", sleep)


def time_is_up_at_a_mark() -> None:
    """The time limit passes when the file ``stands`` is there: by the clock, the command races against it."""
    from necropsy.capture.linux.supervise import supervisor

    on_time = supervisor.Supervisor._on_time

    def look(self: supervisor.Supervisor) -> None:
        if not self._terminated and os.path.exists("stands"):
            self.deadline = 0.0
        on_time(self)

    put(supervisor.Supervisor, "_on_time", look)


def probe_refused() -> None:
    """The kernel does not load the probe, although the capabilities are there."""

    def opened(name: str = "") -> NoReturn:
        raise PermissionError(1, name)

    put(bpf_probe.BpfProbe, "open", opened)


def probe_kills() -> None:
    """The tracer dies while it loads the probe."""

    def opened(name: str = "") -> NoReturn:
        os._exit(len(name) + 1)

    put(bpf_probe.BpfProbe, "open", opened)


def no_tracer() -> None:
    """The tracer is gone before the command has told its number."""
    from necropsy.capture.linux.supervise import launch, tracer_process

    def main(*_: object) -> NoReturn:
        os._exit(1)

    def become(words: list[bytes], plumbing: Any, *arguments: Any, **named: Any) -> None:
        reading, writing = plumbing.ready
        os.dup2(os.open(os.devnull, os.O_RDONLY), reading)
        waiting = select.poll()
        waiting.register(writing, 0)
        waiting.poll()  # nobody has the reading end any more
        real(words, plumbing, *arguments, **named)

    real = launch._become
    put(tracer_process, "main", main)
    launch._become = become


def impatient() -> None:
    """Of a process that stands still nothing is expected after a second."""
    from necropsy.capture.linux.supervise import watchdog

    watchdog.STILL_S = 1.0


def patient() -> None:
    """What no budget limits may take any time."""
    from necropsy.capture.linux.supervise import read_jobs

    read_jobs._SLACK_S = 600.0


def late_to_stop() -> None:
    """Threads that are looked at while they write stop late, in whatever call they are by then."""
    from necropsy.capture.linux.stderr import exception_watch
    from necropsy.capture.linux.supervise import brief_stop

    def state_of(tid: int) -> str | None:
        return "R"

    put(brief_stop, "state_of", state_of)
    brief_stop.STOPS_S = -1.0
    exception_watch._A_SECOND = 2.0


def late_to_stop_in_python() -> None:
    """The same with the loop in Python."""
    in_python()
    late_to_stop()


def late_to_look() -> None:
    """Each look after a write comes too late: only the breakpoint shows the exception."""
    from necropsy.capture.linux.stderr import exception_watch

    def look(self: object, living: object) -> None:
        pass

    put(exception_watch.ExceptionWatch, "look", look)


def late_to_look_in_python() -> None:
    """The same with the loop in Python."""
    in_python()
    late_to_look()


FAULTS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        slow_reading,
        no_helper,
        slow_relay,
        core_of_the_ended,
        core_fails,
        no_descriptors_are_passed,
        core_is_deadly,
        slow_to_wait,
        slow_to_continue,
        slow_to_attach,
        asleep,
        impatient,
        patient,
        time_is_up_at_a_mark,
        probe_refused,
        probe_kills,
        no_tracer,
        late_to_stop,
        late_to_stop_in_python,
        late_to_look,
        late_to_look_in_python,
    )
}


def main() -> int:
    path, given, *command = sys.argv[1:]
    options = json.loads(given)
    fault = options.pop("fault", None)

    def on_end(record: launch.RunRecord) -> None:
        if path == "raise":
            raise RuntimeError("a report that fails")
        if path == "crash":
            import ctypes

            ctypes.string_at(0)
        if path:
            cores = {}
            for key, core in record.cores.items():
                with contextlib.suppress(OSError):
                    cores[key] = partial(io.BytesIO, core().read())
            with open(path, "wb") as file:
                pickle.dump(dataclasses.replace(record, cores=cores), file)

    if options.get("log") == "tap" and not options.pop("may_probe", False):
        bpf_probe.is_allowed = lambda: False  # or root would get the probe, and the tap would not be tested
    if fault:
        FAULTS[fault]()
    try:
        return launch.run(command, launch.RunOptions(**options), on_end)
    except NecropsyError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
