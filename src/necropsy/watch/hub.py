"""The watcher's process: it accepts who registers, forks a tracer for each, and keeps reports for those who ask."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.linux.supervise import descriptors, tracer_process
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.traced_processes import is_dead, state_of, status_of
from necropsy.capture.linux.supervise.watchdog import LOOK_S, Watchdog, is_held
from necropsy.watch import descriptors_of, tracing
from necropsy.watch.client import GREETING, MOST, TRACER, WATCHER
from necropsy.watch.tracing import Wishes

_LINGER_S = 1.0
"""How long it waits for another client after the last."""
_FIRST_S = 30.0
"""How long it waits for the first."""
_REQUEST_S = 10.0
"""How long a client may take to say what it wants."""
_UNTOLD_S = 0.5
"""A process that has ended without a word from its tracer ended well, if that does not come within this time."""
_STALE_S = 60.0
"""A socket on which nobody listens is that of a watcher that was killed, if it is older than this."""
MOST_REPORTS = 32
_SERVING_S = 40.0
"""How long a tracer may serve one death: reading it has 20 s, and its report 10."""
_CREDENTIALS = struct.Struct("3i")


@dataclass(eq=False)
class Connection:
    """Somebody who has connected: he has yet to speak, or waits for a report."""

    socket: socket.socket
    pid: int
    until: float
    awaited: int = 0
    """The process whose report is waited for, or its connections at ``port``."""
    port: int = 0


@dataclass(eq=False)
class Client:
    """A process that has registered."""

    handle: int
    """Its pidfd: readable when it has ended."""
    wishes: Wishes
    ended_at: float | None = None


@dataclass(eq=False)
class Tracer:
    """A process that traces for us."""

    pid: int
    link: socket.socket
    client: int
    facts: Facts
    watchdog: Watchdog

    def stands_still(self) -> bool:
        """A process has waited for it for longer than that may take."""
        held = is_held(self.client, self.pid, at_rest=self.facts.at_rest)
        if held or self.facts.reading or state_of(self.pid) == "T":
            return self.watchdog.look(self.pid, urgent=held)
        self.watchdog.reset()
        return False


@dataclass(eq=False)
class Hub:
    """All that is known."""

    listener: socket.socket
    path: str
    connections: list[Connection] = field(default_factory=list)
    clients: dict[int, Client] = field(default_factory=dict)
    tracers: list[Tracer] = field(default_factory=list)
    reports: dict[int, int] = field(default_factory=dict)
    """By process, the latest last: an open file with the document."""
    dying: set[int] = field(default_factory=set)
    last: float = field(default_factory=time.monotonic)
    patience_s: float = _FIRST_S
    pieces: Iterator[object] | None = field(default_factory=tracing.loading)
    has_swept: bool = False

    def serve(self) -> None:
        """Until nobody is left."""
        while self._is_needed():
            poll = select.poll()
            sockets = [self.listener, *(one.socket for one in self.connections), *(one.link for one in self.tracers)]
            for one in (*(one.fileno() for one in sockets), *(one.handle for one in self.clients.values())):
                poll.register(one, select.POLLIN)
            ready = {number for number, _ in poll.poll(0 if self.pieces is not None else LOOK_S * 1000)}
            if not ready and self.pieces is not None:
                self.pieces = self.pieces if next(self.pieces, self) is not self else None
            if ready:
                self._serve(ready)
            self._look()

    def _is_needed(self) -> bool:
        if self.tracers or self.connections:
            self.last, self.patience_s = time.monotonic(), _LINGER_S
        return time.monotonic() < self.last + self.patience_s

    def _serve(self, ready: set[int]) -> None:
        for tracer in [one for one in self.tracers if one.link.fileno() in ready]:
            self._hear(tracer)
        now = time.monotonic()
        for pid, client in list(self.clients.items()):
            if client.handle in ready:
                os.close(client.handle)
                del self.clients[pid]
                for one in self.connections:
                    if one.awaited == pid and pid not in self.dying:
                        one.until = min(one.until, now + _UNTOLD_S)
        for connection in [one for one in self.connections if one.socket.fileno() in ready]:
            self._answer(connection)
        if self.listener.fileno() in ready:
            self._accept()

    def _look(self) -> None:
        """Whoever has waited long enough gets no answer any more, and whoever is held by a tracer goes on."""
        for tracer in self.tracers:
            if tracer.stands_still():
                os.kill(tracer.pid, signal.SIGKILL)  # it is not reaped yet; the kernel lets go of all that it traces
        if self.pieces is None and not self.has_swept:  # at its end it may be killed as well
            self.has_swept = True
            _sweep(Path(self.path).parent.parent)
        now = time.monotonic()
        for one in [one for one in self.connections if now > one.until]:
            self._close(one, b"none" if one.awaited else b"")

    # ------------------------------------------------------------ clients

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            one, _ = self.listener.accept()
            one.setblocking(False)
            try:
                pid, uid, _ = _CREDENTIALS.unpack(one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if uid not in {os.getuid(), 0}:
                    raise PermissionError
                one.send(GREETING + str(os.getpid()).encode())
            except OSError:
                one.close()
                raise
            self.connections.append(Connection(one, pid, time.monotonic() + _REQUEST_S))

    def _close(self, one: Connection, answer: bytes = b"") -> None:
        self.connections.remove(one)
        with one.socket, contextlib.suppress(OSError):
            if answer:
                one.socket.send(answer)

    def _answer(self, one: Connection) -> None:
        try:
            words = one.socket.recv(MOST).split()
        except OSError:
            words = []
        try:
            match words:
                case [b"register", pid, show, keep]:
                    self._register(one, int(pid), Wishes(show=show == b"1", keep=keep == b"1"))
                case [b"release"]:
                    self._release(one)
                case [b"report", pid, seconds]:
                    self._await_report(one, int(pid), float(seconds))
                case [b"connections", pid, port, seconds]:
                    self._await_connections(one, int(pid), int(port), float(seconds))
                case [b"wishes", *pids]:
                    found = (self.clients.get(int(pid)) for pid in pids)
                    wishes = next((client.wishes for client in found if client is not None), Wishes())
                    self._close(one, b"%d %d" % (wishes.show, wishes.keep))
                case _:
                    self._close(one)
        except ValueError:
            self._close(one)

    def _register(self, one: Connection, pid: int, wishes: Wishes) -> None:
        """``pid``: 0 for the one that asks."""
        with_children, pid = pid != 0, pid or one.pid
        tracer = int(status_of(pid).get("TracerPid") or 0)
        if not pid or is_dead(pid):
            self._close(one, b"no the watcher does not see this process: it is in another PID namespace, or has ended")
            return
        if tracer and status_of(tracer).get("Name") != TRACER:
            self._close(one, f"no {status_of(tracer).get('Name')} (process {tracer}) traces it already".encode())
            return
        if pid not in self.clients:
            try:
                self.clients[pid] = Client(os.pidfd_open(pid), wishes)
            except OSError as error:
                self._close(one, f"no {error.strerror}: this needs Linux 5.3 or newer".encode())
                return
        self.clients[pid].wishes = wishes
        if tracer:
            self._close(one, b"yes")
            return
        self._trace(one, pid, with_children=with_children)

    def _trace(self, one: Connection, pid: int, *, with_children: bool) -> None:
        if self.tracers:  # the first is not to wait; of several, each would load the same
            for _ in self.pieces or ():
                continue
            self.pieces = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        facts = Facts()
        try:
            tracer = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            self._close(one, f"no the watcher cannot start a tracer: {error.strerror}".encode())
            return
        if not tracer:
            tracing.main(tracing.Task(pid, self.path, one.socket, theirs, facts, with_children), self.pieces)
        theirs.close()
        ours.setblocking(False)
        self.tracers.append(Tracer(tracer, ours, pid, facts, Watchdog(facts, _SERVING_S)))
        self.connections.remove(one)
        one.socket.close()  # the tracer answers

    def _release(self, one: Connection) -> None:
        """It is traced no longer: its tracer answers."""
        holder = int(status_of(one.pid).get("TracerPid") or 0)
        tracer = next((found for found in self.tracers if found.pid == holder), None)
        if tracer is None:
            self._close(one, b"yes" if not holder else b"no")
            return
        with contextlib.suppress(OSError):
            socket.send_fds(tracer.link, [b"release %d" % one.pid], [one.socket.fileno()])
            os.kill(tracer.pid, tracing.WAKES)
        client = self.clients.pop(one.pid, None)
        if client is not None:
            os.close(client.handle)
        self._close(one)

    # ------------------------------------------------------------ reports

    def _await_report(self, one: Connection, pid: int, seconds: float) -> None:
        if pid in self.reports:
            self._send_report(one, pid)
        elif pid not in self.dying and is_dead(pid):
            one.awaited, one.until = pid, time.monotonic() + min(_UNTOLD_S, seconds)
        else:
            one.awaited, one.until = pid, time.monotonic() + seconds
            self._follow(pid)

    def _await_connections(self, one: Connection, pid: int, port: int, seconds: float) -> None:
        """What others have connected to at a port of the process, once it dies: it is held then."""
        one.awaited, one.port, one.until = pid, port, time.monotonic() + seconds
        if pid in self.dying:
            self._send_connections(one)
        elif pid in self.reports or is_dead(pid):
            self._close(one, b"none")
        else:
            self._follow(pid)

    def _send_connections(self, one: Connection) -> None:
        files = descriptors_of.connections(one.awaited, one.port)
        with contextlib.suppress(OSError):
            socket.send_fds(one.socket, [b"connections"], files)
        for file in files:
            os.close(file)
        self._close(one)

    def _follow(self, pid: int) -> None:
        """Notice its end, though it is only the child of one that has registered."""
        if pid not in self.clients:
            with contextlib.suppress(OSError):
                self.clients[pid] = Client(os.pidfd_open(pid), Wishes())

    def _send_report(self, one: Connection, pid: int, hold: Sequence[int] = ()) -> None:
        """``hold``: what keeps the process held as long as somebody has it open."""
        with contextlib.suppress(OSError):
            socket.send_fds(one.socket, [b"document"], [self.reports[pid], *hold])
        self._close(one)

    def _hear(self, tracer: Tracer) -> None:
        """What a tracer says, or a process of its that reports."""
        try:
            said, files, _, _ = socket.recv_fds(tracer.link, MOST, 2)
        except BlockingIOError:
            return
        except OSError:
            said, files = b"", []
        words = said.split()
        if not words:
            self._tracer_ended(tracer)
            return
        pid = int(words[1])
        if words[0] == b"dying":
            self.dying.add(pid)
            for one in [one for one in self.connections if one.awaited == pid and one.port]:
                self._send_connections(one)
            return
        self.dying.discard(pid)
        if words[0] == b"report" and files:
            self._keep(pid, files[0])
        for one in [one for one in self.connections if one.awaited == pid]:
            if pid in self.reports and not one.port:
                self._send_report(one, pid, files[1:])
            else:
                self._close(one, b"none")
        for file in files[1:]:
            os.close(file)

    def _keep(self, pid: int, file: int) -> None:
        if pid in self.reports:
            os.close(self.reports.pop(pid))
        self.reports[pid] = file
        while len(self.reports) > MOST_REPORTS:
            os.close(self.reports.pop(next(iter(self.reports))))

    def _tracer_ended(self, tracer: Tracer) -> None:
        tracer.link.close()
        self.tracers.remove(tracer)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(tracer.pid, 0)


def main(listener: int, path: str) -> None:
    """The process, from its first breath to its last."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # it ends with its last client, not before
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    tracer_process.name_process(WATCHER)
    descriptors.keep_only({listener})
    os.chdir("/")
    tracing.raise_limits()
    try:
        Hub(socket.socket(fileno=listener), path).serve()
    finally:
        _remove(Path(path))
        _sweep(Path(path).parent.parent)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
        path.parent.rmdir()


def _sweep(place: Path) -> None:
    """Remove the sockets of watchers that were killed."""
    for path in place.glob("necropsy-*/watcher"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
            told = path.lstat()
            if told.st_uid == os.getuid() and told.st_mtime < time.time() - _STALE_S:
                asker.settimeout(0)
                try:
                    asker.connect(str(path))
                except ConnectionRefusedError:
                    _remove(path)
