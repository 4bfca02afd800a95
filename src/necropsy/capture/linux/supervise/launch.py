"""Starts the supervised command, in three processes, so that a failure of one cannot take the others down.

The *front* is what the user started; it waits for the *command*, its own child, and ends as the command does. The
*tracer* is the front's other child, in a session of its own; it reads the command when it dies. Whatever happens to
the tracer cannot cost the exit status, whatever happens to the front does not touch the command.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import struct
from _socket import AF_UNIX, SOCK_SEQPACKET, socket, socketpair  # the module above it costs a twentieth of the start
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from necropsy.capture.linux.stderr import log_source
from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import descriptors, tracer_process
from necropsy.capture.linux.supervise.command import Inherited, execute, not_started, refused
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.signal_wait import take
from necropsy.capture.linux.supervise.supervisor import ALL, TIMED_OUT, Helper, Supervisor, end_as
from necropsy.capture.linux.supervise.traced_processes import has_signal, status_of
from necropsy.capture.run_options import RunOptions, RunRecord
from necropsy.errors import NecropsyError

__all__ = ["RunOptions", "RunRecord", "run"]

_ERRNO = struct.Struct("i")


@dataclass(frozen=True)
class _Plumbing:
    """Every descriptor of the start, all close-on-exec and above 9.

    ``ready``, ``go``: the command and the tracer; ``failure``: the errno of exec, negative where it did not get so far;
    ``helper``: sends the tap's listener, and that stderr is being read. ``link``: the front and the tracer. ``pty`` is
    -1 without ``--log pty``.
    """

    ready: tuple[int, int]
    go: tuple[int, int]
    failure: tuple[int, int]
    helper: tuple[socket, socket]
    link: tuple[socket, socket]
    pty: tuple[int, int]


def _socket_pair() -> tuple[socket, socket]:
    one, other = socketpair(AF_UNIX, SOCK_SEQPACKET)
    pair = tuple(socket(fileno=descriptors.lift(end.detach())) for end in (one, other))
    return pair[0], pair[1]


def _lay(log: Log) -> _Plumbing:
    pty = (-1, -1)
    if log.mode == "pty":
        from necropsy.capture.linux.stderr import pty_relay

        pty = pty_relay.open_pair()
    return _Plumbing(
        ready=descriptors.pipe(),
        go=descriptors.pipe(),
        failure=descriptors.pipe(),
        helper=_socket_pair(),
        link=_socket_pair(),
        pty=pty,
    )


def run(command: Sequence[str], options: RunOptions, on_end: Callable[[RunRecord], None]) -> int:
    """Run ``command`` and return its exit code (0 to 255); where a signal killed it, die of the same signal.

    ``on_end`` is called once, in another process, when the command has ended; its stdin and stdout are closed unless
    ``options.keep`` names them. The calling process gives up its own descriptors except stderr, and leaves with all
    signals blocked: it is expected to end with what is returned.

    Raises CommandNotFoundError, NotExecutableError, or NecropsyError where no process or descriptor is left; then
    nothing has been run.
    """
    words = [os.fsencode(word) for word in command]
    inherited = Inherited.now()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would cost us the exit status
    try:
        return _run(words, options, on_end, inherited)
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, inherited.mask)
        raise NecropsyError(f"cannot start: {error.strerror or error}") from error


def _check() -> None:
    """Check that the system allows the wait for the command. Raises OSError where it does not."""
    take((), 0)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def _run(words: list[bytes], options: RunOptions, on_end: Callable[[RunRecord], None], inherited: Inherited) -> int:
    _check()
    log = log_source.choose(options.log)
    facts = Facts()
    plumbing = _lay(log)
    if log.mode == "pty":
        log = replace(log, target=os.fstat(plumbing.pty[1]))
    task = tracer_process.Task(
        words=tuple(os.fsdecode(word) for word in words),
        ready=plumbing.ready[0],
        go=plumbing.go[1],
        link=plumbing.link[1],
    )
    gc.freeze()  # what is loaded by now is shared by all of us, and need not be looked through for garbage
    gc.enable()
    tracer = _fork_tracer(lambda: tracer_process.main(task, log, facts, options, on_end))
    # Until now there was no command: whoever has sent a signal meant us, and it takes its effect here.
    signal.pthread_sigmask(signal.SIG_SETMASK, inherited.mask)
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
    command = os.fork()
    if not command:
        _become(words, plumbing, log, facts, inherited, tracer=tracer, guard=options.guard)
    _hand_over(command, inherited)
    for end in (*plumbing.ready, *plumbing.go, plumbing.failure[1]):
        os.close(end)  # the command learns by it that the tracer is gone
    helper = _start_helper(plumbing, log)
    plumbing.link[1].close()
    failed = os.read(plumbing.failure[0], _ERRNO.size)
    os.close(plumbing.failure[0])
    link = plumbing.link[0]
    if failed:
        raise _give_up(words[0], _ERRNO.unpack(failed)[0], (command, tracer), link, inherited)
    inherited.leave_orphans()
    front = Supervisor((command, tracer), link, facts, helper, options)
    with contextlib.suppress(OSError):
        descriptors.keep_only({2, link.fileno(), *((helper.hold,) if helper else ())})
    with contextlib.suppress(OSError):
        link.send(tracer_process.EXECUTED)
    status = _wait(front)
    if front.lost:
        _say(front.lost)
    if facts.timed_out:
        return TIMED_OUT
    return end_as(status)


def _hand_over(command: int, inherited: Inherited) -> None:
    """Pass on keys that the terminal sent before the fork, when the command did not exist yet."""
    with contextlib.suppress(OSError):
        for signo in signal.sigpending() & {signal.SIGINT, signal.SIGQUIT} - inherited.mask:
            if not has_signal(status_of(command), "ShdPnd", signo):
                os.kill(command, signo)


def _wait(front: Supervisor) -> int:
    """The command's wait status, whatever else fails in the front."""
    try:
        return front.wait()
    except Exception as error:  # noqa: BLE001 - a defect of ours, or a system that forbids us something
        if front.status is None:
            front.status = os.waitpid(front.command, 0)[1]
        front.lost = f"the front: {type(error).__name__}: {error}"
        return front.status


def _fork_tracer(live: Callable[[], None]) -> int:
    """The tracer's pid; 0 where no process is left: the command then runs without it."""
    try:
        pid = os.fork()
    except OSError:
        return 0
    if not pid:
        live()
    return pid


def _become(
    words: list[bytes], plumbing: _Plumbing, log: Log, facts: Facts, inherited: Inherited, *, tracer: int, guard: bool
) -> None:
    front = os.getppid()
    try:
        # An end of our own kept open would hide that the tracer is gone.
        os.close(plumbing.go[1])
        os.close(plumbing.ready[0])
        plumbing.helper[0].close()
        if log.mode == "pty":
            os.dup2(plumbing.pty[1], 2)
        tracer_process.allow_tracing_by(front)
        if log.mode == "tap":
            if log.may_probe and tracer_process.is_heard(plumbing.go[0], tracer, facts):
                plumbing.helper[1].send(b"none")
            else:
                _install_tap(plumbing, log, facts)
        if log.mode in {"tap", "pty"}:
            _await_helper(plumbing.helper[1])
        try:
            os.write(plumbing.ready[1], str(os.getpid()).encode())
            if not facts.late:
                tracer_process.wait_for_go(plumbing.go[0], tracer, facts)
        except BrokenPipeError:  # no tracer
            pass
        environment = inherited.environment_of(front, os.getpid())
        if guard:
            from necropsy.capture.linux.supervise import guard_preload

            environment = guard_preload.added(environment)
        inherited.restore()
        os.write(plumbing.failure[1], _ERRNO.pack(execute(words, environment)))
    except BaseException as error:  # noqa: BLE001 - nothing of ours may run on in the command's process
        os.write(plumbing.failure[1], _ERRNO.pack(-(getattr(error, "errno", None) or errno.ENOSYS)))
    finally:
        os._exit(127)


def _await_helper(word: socket) -> None:
    """Wait until stderr is being read. Raises OSError (EAGAIN) where it will not be."""
    if not word.recv(1):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _install_tap(plumbing: _Plumbing, log: Log, facts: Facts) -> None:
    from necropsy.capture.linux.stderr import seccomp_filter

    try:
        listener = seccomp_filter.install(log.no_new_privs)
    except OSError as error:
        facts.set_log_error(error.errno or errno.EINVAL)
        plumbing.helper[1].send(b"none")
        return
    from socket import fromfd, send_fds

    with fromfd(plumbing.helper[1].fileno(), AF_UNIX, SOCK_SEQPACKET) as way:
        send_fds(way, [b"tap"], [listener])
    os.close(listener)


def _start_helper(plumbing: _Plumbing, log: Log) -> Helper | None:
    """The log's tap or relay; the command waits for it, because without it its writes would fail or be lost."""
    plumbing.helper[1].close()
    ring = log.ring
    helper = None
    if log.mode == "pty" and ring is not None:
        from necropsy.capture.linux.stderr import pty_relay

        ours = plumbing.pty[0]
        helper = Helper(
            serve=lambda: pty_relay.serve(ours, ring),
            hold=ours,
            name="necropsy-relay",
            keep=frozenset({2}),
            ring_idle=lambda: pty_relay.is_drained(ours, ring),
        )
    elif log.mode == "tap" and ring is not None:
        from socket import fromfd, recv_fds

        with fromfd(plumbing.helper[0].fileno(), AF_UNIX, SOCK_SEQPACKET) as way:
            _, listeners, _, _ = recv_fds(way, 16, 1)
        if listeners:
            from necropsy.capture.linux.stderr import seccomp_tap

            listener = descriptors.lift(listeners[0])
            os.set_inheritable(listener, False)
            helper = Helper(serve=lambda: seccomp_tap.serve(listener, ring), hold=listener, name="necropsy-tap")
    try:
        if helper is not None:
            helper.start()
        if ring is not None:
            plumbing.helper[0].send(b"x")
    except OSError:  # no process can be started: the command sees this socket close, and gives up
        helper = None
    plumbing.helper[0].close()
    if plumbing.pty[1] >= 0:
        os.close(plumbing.pty[1])
    return helper


def _give_up(name: bytes, number: int, children: tuple[int, int], link: socket, inherited: Inherited) -> NecropsyError:
    """Restore everything after a failed exec; the error to raise."""
    with contextlib.suppress(OSError):
        link.send(tracer_process.NOTHING)
    for pid in children:
        if pid:
            os.waitpid(pid, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, inherited.mask)
    return refused(name, number) if number > 0 else not_started(name, -number)


def _say(what: str) -> None:
    line = f"necropsy: {what}; the program was not affected\n"
    with contextlib.suppress(OSError):
        os.write(2, line.encode(errors="backslashreplace"))
