"""The command's side of the fork: everything as necropsy itself was started, then exec.

Between Python's own start and this point three things have changed that exec would hand on: signals that Python
ignores (SIGPIPE, SIGXFSZ), the signal mask, and LC_CTYPE (PEP 538). They are put back.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy.errors import CommandNotFoundError, NecropsyError, NotExecutableError

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.execve.argtypes = (ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_char_p))
_DEFAULT_PATH = b"/bin:/usr/bin"
_SHELL = b"/bin/sh"
_GO_ON = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV, errno.ETIMEDOUT})
"""As execvp(3) of glibc: with these errors the search goes on in the next folder of PATH."""
_COERCED = frozenset({b"C.UTF-8", b"C.utf8", b"UTF-8"})
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True)
class Inherited:
    """What the command is to inherit: taken before anything is changed."""

    environment: tuple[bytes, ...]
    mask: frozenset[int]
    dispositions: tuple[tuple[int, signal.Handlers], ...]
    death_signal: int

    @classmethod
    def now(cls) -> Inherited:
        """As this process has it."""
        # Whether SIGPIPE was ignored when Python started can no longer be known; that it was not is the rule.
        back: list[tuple[int, signal.Handlers]] = [(one, signal.SIG_DFL) for one in _IGNORED_BY_PYTHON]
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, *_IGNORED_BY_PYTHON}:
            handler = signal.getsignal(number)
            if handler == signal.SIG_IGN:
                back.append((number, signal.SIG_IGN))
            elif handler != signal.SIG_DFL:
                back.append((number, signal.SIG_DFL))
        death_signal = ctypes.c_int()
        _LIBC.prctl(2, ctypes.byref(death_signal), 0, 0, 0)  # PR_GET_PDEATHSIG
        return cls(
            environment=original_environment(),
            mask=frozenset(int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            dispositions=tuple(back),
            death_signal=death_signal.value,
        )

    def restore(self) -> None:
        """Make it so in this process, the mask last: what arrived meanwhile is delivered then."""
        for number, handler in self.dispositions:
            signal.signal(number, handler)
        if self.death_signal == signal.SIGKILL:
            # Who starts us so that we die with him means the command. Other signals are forwarded.
            _LIBC.prctl(1, self.death_signal, 0, 0, 0)  # PR_SET_PDEATHSIG
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


def original_environment() -> tuple[bytes, ...]:
    """``NAME=value`` entries as this process got them, order and duplicates included.

    Where the program has changed ``os.environ`` on purpose, its own view is taken instead.
    """
    current = dict(os.environb)
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        block = b""
    entries = tuple(block.removesuffix(b"\0").split(b"\0")) if block else ()
    first: dict[bytes, bytes] = {}
    for entry in entries:
        name, found, value = entry.partition(b"=")
        if found:
            first.setdefault(name, value)
    locale = b"LC_CTYPE"
    if entries and current.get(locale) in _COERCED and current.get(locale) != first.get(locale):
        del current[locale]
        if locale in first:
            current[locale] = first[locale]
    if current == first:
        return entries
    return tuple(name + b"=" + value for name, value in current.items())


def _execve(path: bytes, words: Sequence[bytes], environment: Sequence[bytes]) -> int:
    """The errno of a failed execve."""
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
        return NecropsyError(f"cannot start {shown}: {os.strerror(number)}")
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return CommandNotFoundError(f"{shown}: command not found")
    return NotExecutableError(f"{shown}: {os.strerror(number)}")
