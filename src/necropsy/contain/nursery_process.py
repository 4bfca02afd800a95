"""The nursery's process: it imports what workers need, and forks them.

It is started as a script, in the interpreter of the caller. Until the first message has set ``sys.path``, nothing but
the standard library can be imported. A fork has no threads but the one that forked: where a module that was imported
has started threads that do not handle this, workers are new processes that import everything themselves.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
from typing import NoReturn

STATUS = struct.Struct("i")
MOST = 1 << 18
"""Bytes of a request."""
_CLONE_UNTRACED = 0x00800000
_CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call."""


def main(control: int, lifeline: int) -> None:
    """``control``: requests; ``lifeline``: a pipe that the caller closes when it ends. Both were inherited."""
    for handle in (control, lifeline):
        os.set_inheritable(handle, False)
    connection = socket.socket(fileno=control)
    first = connection.recv(MOST)
    if not first:
        return
    imports = _prepare(first)
    _escape()
    from necropsy.contain import worker

    worker.die_with_the_caller(lifeline)
    _Nursery(connection, lifeline, first, imports).serve()


def become_worker(first: int, *handles: int) -> NoReturn:
    """In a process that was started to be a worker. ``first``: a file with the first message of the nursery."""
    for handle in (first, *handles):
        os.set_inheritable(handle, False)
    imports = _prepare(os.pread(first, MOST, 0))
    os.close(first)
    from necropsy.contain import worker

    _import(imports)
    worker.main(handles)


def _prepare(first: bytes) -> tuple[str, ...]:
    """Take over what the caller says; returns what is to be imported."""
    path, argv, imports = pickle.loads(first)  # noqa: S301 - from our own parent
    sys.path[:] = path
    sys.argv[:] = argv
    return tuple(imports)


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(Exception):  # the call that needs it will tell
            importlib.import_module(name)


def _escape() -> None:
    """Under ``necropsy run``, which reports at the end of its command only: go on in a process that it does not trace.

    A process can have one tracer, and the caller of a worker wants its report when it has died.
    """
    from necropsy.watch import client

    tracer = _field("self", "TracerPid")
    number = _CLONE.get(os.uname().machine)
    if number is None or _field(tracer, "Name") != client.TRACER:
        return
    if _field(_field(tracer, "PPid"), "Name") == client.WATCHER:
        return  # it traces for the watcher, which has the report
    import ctypes

    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    child = ctypes.PyDLL(None).syscall(
        ctypes.c_long(number), ctypes.c_long(_CLONE_UNTRACED | signal.SIGCHLD), *[ctypes.c_long(0)] * 4
    )
    if child:
        python.PyOS_AfterFork_Parent()
        if child > 0:
            os.waitpid(child, 0)
            os._exit(0)
    else:
        python.PyOS_AfterFork_Child()


def _field(pid: str, name: str) -> str:
    """One line of what the kernel says of a process; empty where there is none."""
    path = f"/proc/{pid}/status"
    with contextlib.suppress(OSError, StopIteration), open(path, encoding="utf-8", errors="replace") as file:
        return next(line.split()[1] for line in file if line.startswith(f"{name}:"))
    return ""


class _Nursery:
    """The loop over requests."""

    def __init__(self, connection: socket.socket, lifeline: int, first: bytes, imports: tuple[str, ...]) -> None:
        self.connection, self.lifeline, self.first = connection, lifeline, first
        self.children: dict[int, int] = {}
        """By worker: where its wait status is to be written."""
        self.wakes = os.pipe()
        for end in self.wakes:
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wakes[1], warn_on_full_buffer=False)
        _start_watcher()
        _import(imports)
        self.is_sound = _forks_soundly()

    def serve(self) -> None:
        """Until the caller closes the connection."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        poll.register(self.wakes[0], select.POLLIN)
        while True:
            ready = {handle for handle, _ in poll.poll()}
            if self.wakes[0] in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wakes[0], 1024)
                self._tell_ends()
            if self.connection.fileno() in ready:
                said, handles, _, _ = socket.recv_fds(self.connection, MOST, 8)
                if not said:
                    return
                for handle in handles:
                    os.set_inheritable(handle, False)
                self._start(pickle.loads(said), handles)  # noqa: S301 - from the caller

    def _tell_ends(self) -> None:
        for pid, told in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.children[pid]
                with contextlib.suppress(OSError):
                    os.write(told, STATUS.pack(status))
                os.close(told)

    def _start(self, functions: tuple[bytes, ...], handles: list[int]) -> None:
        """Start a worker with these descriptors: those of ``worker.main``, and for its wait status, last."""
        _start_watcher()
        *handles, told = handles
        try:
            pid = os.fork()
        except OSError:  # the caller learns it from the end of the connection
            os.close(told)
        else:
            if not pid:
                self._be_worker(functions, handles, told)
            self.children[pid] = told
        for handle in handles:
            os.close(handle)

    def _be_worker(self, functions: tuple[bytes, ...], handles: list[int], told: int) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            self.connection.close()
            for handle in (*self.wakes, self.lifeline, told, *self.children.values()):
                os.close(handle)
            if self.is_sound:
                from necropsy.contain import worker

                worker.main(handles, functions)
            from necropsy.contain.unnamed_files import unnamed_file

            first = unnamed_file("first")
            os.write(first, self.first)
            for handle in (first, *handles):
                os.set_inheritable(handle, True)
            flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001
            os.execv(sys.executable, [sys.executable, *flags, __file__, str(first), *map(str, handles)])  # noqa: S606
        except SystemExit:  # a call's: the process ends with its code
            raise
        except BaseException:  # noqa: BLE001 - nothing of the nursery may run on here
            os._exit(1)


def _start_watcher() -> None:
    """Where there is none that answers."""
    from necropsy.watch import client

    path = os.environ.get(client.VARIABLE)
    with contextlib.suppress(OSError):  # workers are not watched then
        if path is not None:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                probe.connect(path)
                return
        client.start()


def _forks_soundly() -> bool:
    """By a trial: threads that handle a fork, such as OpenBLAS's, have ended after one."""
    from necropsy.contain import messages, worker

    _ = messages, worker
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    gc.collect()
    gc.freeze()  # what is here stays, and is shared with the workers
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # not Linux
        return False


if __name__ == "__main__":
    try:
        words = [int(word) for word in sys.argv[1:]]
        main(*words) if len(words) == 2 else become_worker(*words)
    except (ConnectionError, KeyboardInterrupt):  # the caller has gone
        os._exit(0)
