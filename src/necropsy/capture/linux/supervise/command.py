"""The command's side of the fork: restores the state in which necropsy itself was started, then calls exec.

Restored is what exec would hand on: signals that Python ignores (SIGPIPE, SIGXFSZ), the signal mask, LC_CTYPE
(PEP 538), and what the launcher did.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from necropsy import launcher
from necropsy.capture.linux.supervise.signal_wait import take
from necropsy.errors import CommandNotFoundError, NecropsyError, NotExecutableError

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.execve.argtypes = (ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_char_p))
_DEFAULT_PATH = b"/bin:/usr/bin"
_SHELL = b"/bin/sh"
_GO_ON = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV, errno.ETIMEDOUT})
"""As execvp(3) of glibc: with these errors the search goes on in the next folder of PATH."""
_COERCED = frozenset({b"C.UTF-8", b"C.utf8", b"UTF-8"})
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "busybox", "ksh", "ksh93", "mksh", "zsh", "systemd"})
"""Who hands on to a command what it ignores itself. (Python, Rust and Go programs give the defaults back.)"""
_NAMES_ITS_READER = (b"LISTEN_PID", b"WATCHDOG_PID", b"SYSTEMD_EXEC_PID")
"""systemd says so for which process the rest is meant: sd_listen_fds(3), sd_watchdog_enabled(3), systemd.exec(5)."""
_NAMES_ITS_READER_BY_INODE = b"LISTEN_PIDFDID"
_RECORD = launcher.VARIABLE.encode() + b"="
_SET_DEATH_SIGNAL, _GET_DEATH_SIGNAL, _SET_SUBREAPER, _GET_SUBREAPER = 1, 2, 36, 37
"""Of prctl(2)."""


@dataclass(frozen=True)
class Inherited:
    """What the command is to inherit: taken before anything is changed."""

    environment: tuple[bytes, ...]
    mask: frozenset[int]
    dispositions: tuple[tuple[int, signal.Handlers], ...]
    death_signal: int
    subreaper: bool
    stack: tuple[int, int] | None
    """RLIMIT_STACK, where the launcher has raised it for Python."""

    @classmethod
    def now(cls) -> Inherited:
        """As this process has it."""
        record = launcher.record()
        ignored = ignored_by_the_shell() if record is None else record.ignored
        back: list[tuple[int, signal.Handlers]] = [
            (one, signal.SIG_IGN if one in ignored else signal.SIG_DFL) for one in _IGNORED_BY_PYTHON
        ]
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, *_IGNORED_BY_PYTHON}:
            handler = signal.getsignal(number)
            if handler == signal.SIG_IGN:
                back.append((number, signal.SIG_IGN))
            elif handler != signal.SIG_DFL:
                back.append((number, signal.SIG_DFL))
        death_signal, subreaper = ctypes.c_int(), ctypes.c_int()
        _LIBC.prctl(_GET_DEATH_SIGNAL, ctypes.byref(death_signal), 0, 0, 0)
        _LIBC.prctl(_GET_SUBREAPER, ctypes.byref(subreaper), 0, 0, 0)
        return cls(
            environment=original_environment(),
            mask=frozenset(int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            dispositions=tuple(back),
            death_signal=death_signal.value,
            subreaper=bool(subreaper.value),
            stack=None if record is None else record.stack,
        )

    def restore(self) -> None:
        """Make it so in this process, the mask last: what arrived meanwhile is delivered then."""
        with contextlib.suppress(OSError):
            # Our own, from writing to a tracer that is gone: blocked, it waits even where it is ignored.
            while take({signal.SIGPIPE}, 0) is not None:
                pass
        for number, handler in self.dispositions:
            signal.signal(number, handler)
        if self.death_signal == signal.SIGKILL:
            # Who starts us so that we die with him means the command. Other signals are forwarded.
            _LIBC.prctl(_SET_DEATH_SIGNAL, self.death_signal, 0, 0, 0)
        if self.subreaper:
            _LIBC.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
        if self.stack is not None:
            # The stack that is in use by now stays ours up to exec.
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_STACK, self.stack)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def leave_orphans(self) -> None:
        """For the front, once the command has been forked: what was asked of this process is the command's to do."""
        if self.subreaper:
            _LIBC.prctl(_SET_SUBREAPER, 0, 0, 0, 0)

    def environment_of(self, front: int, command: int) -> tuple[bytes, ...]:
        """For the command: what names the front as the process that it is meant for names the command instead."""
        ours, theirs = b"%d" % front, b"%d" % command
        if not any(name + b"=" + ours in self.environment for name in _NAMES_ITS_READER):
            return self.environment
        return tuple(
            name + b"=" + theirs if name in _NAMES_ITS_READER and value == ours else entry
            for entry in self.environment
            for name, _, value in (entry.partition(b"="),)
            if name != _NAMES_ITS_READER_BY_INODE
        )


def ignored_by_the_shell() -> frozenset[int]:
    """Signals ignored before Python ignored them: without the launcher, those that a parent shell ignores."""
    try:
        status = Path(f"/proc/{os.getppid()}/status").read_bytes()
    except OSError:
        return frozenset()
    fields = dict(line.split(b":\t", 1) for line in status.splitlines() if b":\t" in line)
    if fields.get(b"Name", b"").decode(errors="replace") not in _SHELLS:
        return frozenset()
    ignored = int(fields.get(b"SigIgn", b"0"), 16)
    return frozenset(number for number in _IGNORED_BY_PYTHON if ignored >> (number - 1) & 1)


def original_environment() -> tuple[bytes, ...]:
    """The process's ``NAME=value`` entries, in order; ``os.environ`` instead where the program has changed it."""
    current = dict(os.environb)
    entries = tuple(one for one in _entries_at_start() if not one.startswith(_RECORD))
    first: dict[bytes, bytes] = {}
    for entry in entries:
        name, found, value = entry.partition(b"=")
        if found:
            first.setdefault(name, value)
    locale = b"LC_CTYPE"
    if current.get(locale) in _COERCED and current.get(locale) != first.get(locale):
        del current[locale]
        if locale in first:
            current[locale] = first[locale]
    if current == first:
        return entries
    return tuple(name + b"=" + value for name, value in current.items())


def _entries_at_start() -> tuple[bytes, ...]:
    """The environment as exec put it on the stack: setenv(3), which Python has called, writes elsewhere."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return _entries_on_the_stack()
    return tuple(block.removesuffix(b"\0").split(b"\0")) if block else ()


def _entries_on_the_stack() -> tuple[bytes, ...]:
    """The same without /proc, where the C library is glibc: argc, the arguments, NULL, the environment, NULL."""
    try:
        start = ctypes.c_void_p.in_dll(_LIBC, "__libc_stack_end").value
    except ValueError:
        return tuple(name + b"=" + value for name, value in os.environb.items())
    if start is None:
        return ()
    words = (ctypes.c_char_p * (ctypes.c_long.from_address(start).value + 2)).from_address(start)
    place, entries = start + ctypes.sizeof(words), []
    while (entry := ctypes.c_char_p.from_address(place).value) is not None:
        entries.append(entry)
        place += ctypes.sizeof(ctypes.c_char_p)
    return tuple(entries)


def _execve(path: bytes, words: Sequence[bytes], environment: Sequence[bytes]) -> int:
    """Returns only where execve failed: its errno."""
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    envp = (ctypes.c_char_p * (len(environment) + 1))(*environment, None)
    _LIBC.execve(path, argv, envp)
    return ctypes.get_errno()


def _execve_or_shell(path: bytes, words: Sequence[bytes], environment: Sequence[bytes]) -> int:
    number = _execve(path, words, environment)
    if number == errno.ENOEXEC:  # a script without #!, as execvp(3) treats it
        return _execve(_SHELL, (_SHELL, path, *words[1:]), environment)
    return number


def execute(words: Sequence[bytes], environment: Sequence[bytes]) -> int:
    """Become the command, as execvp(3) would; the errno if that fails."""
    name = words[0]
    if not name:
        return errno.ENOENT
    if b"/" in name:
        return _execve_or_shell(name, words, environment)
    path = next((entry[5:] for entry in environment if entry.startswith(b"PATH=")), _DEFAULT_PATH)
    denied = False
    for folder in path.split(b":"):
        number = _execve_or_shell(folder + b"/" + name if folder else name, words, environment)
        if number == errno.EACCES:
            denied = True
        elif number not in _GO_ON:
            return number
    return errno.EACCES if denied else errno.ENOENT


def refused(name: bytes, number: int) -> NecropsyError:
    """What to raise where ``execute`` failed with the errno ``number``."""
    shown = os.fsdecode(name)
    if number in {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}:
        return not_started(name, number)
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return CommandNotFoundError(f"{shown}: command not found")
    return NotExecutableError(f"{shown}: {os.strerror(number)}")


def not_started(name: bytes, number: int) -> NecropsyError:
    """What to raise where the system did not let us get as far as ``execute``."""
    return NecropsyError(f"cannot start {os.fsdecode(name)}: {os.strerror(number)}")


TRACER = "necropsy-trace"
"""What a tracer of ours calls itself, see ``watch.name_process``."""


def is_watched() -> bool:
    """Is this process traced by another necropsy? Anybody can take its name: then we merely do not look."""
    try:
        status = Path("/proc/self/status").read_text()
        tracer = next(line.split()[1] for line in status.splitlines() if line.startswith("TracerPid:"))
        return tracer != "0" and Path(f"/proc/{tracer}/comm").read_text().rstrip("\n") == TRACER
    except (OSError, StopIteration, IndexError):
        return False


def step_aside(command: Sequence[str], *, guard: bool = False) -> NoReturn:
    """Become the command, which the outer necropsy observes.

    Raises CommandNotFoundError, NotExecutableError, or NecropsyError where memory or descriptors are used up.
    """
    words = [os.fsencode(word) for word in command]
    inherited = Inherited.now()
    inherited.restore()
    environment = inherited.environment
    if guard:
        from necropsy.capture.linux.supervise import guard_preload

        environment = guard_preload.added(environment)
    raise refused(words[0], execute(words, environment))
