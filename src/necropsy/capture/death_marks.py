"""What identifies the process in a text: its number, its signal, its stack, the test that it ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from necropsy.formats.exit_status import signal_name
from necropsy.formats.lines import line
from necropsy.formats.log_prefixes import Unwrap
from necropsy.formats.readers import endings_shells
from necropsy.formats.text_reports import TextReport
from necropsy.lazy_re import regex
from necropsy.model import Crash, Message

Role = Literal["dump", "bare", "end", "lost", "words", "before", "other"]
"""``dump``: what a dying process or somebody who watched it wrote; ``bare``: only the head of one;
``end``: a sentence that names its signal; ``lost``: one that does not; ``words``: the process's own, before it aborts;
``before``: may be a cause of the death that follows; ``other``: proves nothing."""
_CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"})
_WORDS = frozenset(
    {
        *("check-failed", "non-ok-status", "not-reached", "fatal-log", "last-words", "cpp-terminate"),
        *("cpp-terminate-bare", "glibc-abort", "malloc-complaint", "stack-smash", "fortify", "assertion"),
        *("libstdcxx-assertion", "pure-virtual", "mcheck", "python-fatal", "foreign-free", "sanitizer"),
    }
)
"""Kinds of messages after which a process aborts."""
_OTHER = frozenset({"python-traceback", "process-lost", "worker-killed", "python-worker-died", "test-failed"})
"""Kinds of messages that are as often about a death before them."""
_KERNEL = frozenset({"kernel-log", "core-dump-notice", "oom-killer"})
KERNEL = "kernel"
_WATCHERS = _KERNEL | {
    *("apple-crash-text", "apple-ips", "apple-lines", "elfutils", "gdb", "lldb", "py-spy", "pystack"),
    *("visual-studio", "windbg", "windows-dialog", "windows-error-report"),
}
"""Kinds of texts that others write about a process, often long after its end."""
_FRAMES = 8


@dataclass(frozen=True)
class Marks:
    """``by``: whose process numbers these are: in a container, the kernel's are others.

    ``watched``: another one than the process wrote it, and may do so long after its end. ``stack``: the innermost calls
    of the thread that crashed. ``is_last``: nothing of the process itself comes after it.
    """

    role: Role
    pid: int | None = None
    watched: bool = False
    by: str = ""
    signal: str | None = None
    stack: tuple[str, ...] = ()
    test: str | None = None
    is_last: bool = False
    thread: int | None = None
    """The number that the kernel gives the thread: of a main thread, that of the process."""

    @property
    def is_crash(self) -> bool:
        """By a signal that a process gets for its own errors."""
        return self.signal in _CRASHES

    @property
    def function(self) -> str:
        """Of the test: ``test_b`` of ``test_x.py::test_b[1]``."""
        return (self.test or "").rpartition("::")[2].partition("[")[0]


def marks_of(told: TextReport | Message) -> Marks:
    """The marks of one text."""
    if isinstance(told, Message):
        return Marks("words" if told.kind in _WORDS else "other" if told.kind in _OTHER else "before")
    crash = told.crash
    signal = _signal(crash)
    by = KERNEL if told.kind in _KERNEL else ""
    stack = _stack(crash)
    if told.kind == "ending":
        return _of_sentence(crash, signal, by)
    if told.kind == "oom-killer" or signal in _CRASHES or _is_dump(crash, signal):
        role: Role = "dump" if stack or told.threads or crash.pid is not None or crash.fault is not None else "bare"
        return Marks(role, crash.pid, told.kind in _WATCHERS, by, signal, stack, thread=_thread(crash, by))
    is_cause = crash.exit is None and crash.threads is None and told.kind != "pytest-failures"
    return Marks("before" if is_cause else "other", crash.pid, by=by)


def _of_sentence(crash: Crash, signal: str | None, by: str) -> Marks:
    test = next((one.fields["test"] for one in crash.messages or () if "test" in one.fields), None)
    said = crash.exit.text if crash.exit is not None else None
    waited = said is not None and _has_waited(said)
    if signal in _CRASHES or (signal == "SIGKILL" and waited):
        return Marks("end", crash.pid, by=by, signal=signal, test=test, is_last=waited)
    if crash.exit is not None and crash.exit.kind == "lost":
        return Marks("lost", crash.pid, by=by, test=test)
    return Marks("other", crash.pid, by=by)


_TASK = regex(r"\S{1,40}\[(?P<number>\d{1,10})\]:? ")


def _thread(crash: Crash, by: str) -> int | None:
    said = crash.exit.text if by == KERNEL and crash.exit is not None else None
    match = _TASK.search(said) if said is not None else None
    return int(match["number"]) if match is not None else None


_MAKE = regex(r"\S{0,200}make(?:\[\d+\])?: \*{3} ")


def _has_waited(said: str) -> bool:
    """A shell or make says so, which wait for a process and write where it wrote: nothing of it comes after that."""
    is_shell = endings_shells.READER.read((line(1, said, Unwrap()),), 0) is not None
    return is_shell or _MAKE.match(said) is not None


def _is_dump(crash: Crash, signal: str | None) -> bool:
    """It shows how a process died; that it is dead has to be said."""
    if crash.exit is not None and crash.exit.kind == "running":
        return False
    if crash.fault is not None:
        return True
    thread = crash.crashed_thread
    return thread is not None and (crash.exit is not None or thread.frames is not None or signal is not None)


def _signal(crash: Crash) -> str | None:
    if crash.fault is not None:
        return crash.fault.signal
    end = crash.exit
    if end is None:
        return None
    if end.kind == "exited" and end.code is not None and end.ntstatus is None and _SHELLS < end.code < _HIGHEST:
        return signal_name(end.code - _SHELLS)
    return end.signal


_SHELLS, _HIGHEST = 128, 160
"""A shell says 128 and the signal's number."""


def _stack(crash: Crash) -> tuple[str, ...]:
    thread = crash.crashed_thread
    if thread is None:
        return ()
    calls = thread.python or thread.frames or ()
    return tuple(one.function or "?" for one in calls[:_FRAMES])
