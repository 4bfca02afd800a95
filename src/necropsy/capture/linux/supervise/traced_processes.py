"""The processes of a run as the tracer knows them, and what ``/proc`` says of one."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from necropsy.capture.linux.supervise.crash_context import Request, Sent
from necropsy.capture.run_options import Said
from necropsy.formats import siginfo
from necropsy.model import Crash, Exit, Limit, Process

if TYPE_CHECKING:  # only measured runs have them
    from necropsy.model import HeapUse, ProfileMark, ResourceUse, StackUse, TreeUse

_STARTED_AT = time.time() - time.monotonic()
"""What the wall clock is ahead of the monotonic one."""


_SMALL_STACK = 256 << 10
"""The kernel gives about half of that to every program."""


def now() -> str:
    """The time as ISO 8601 in UTC, to the microsecond."""
    return _iso(time.time())


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")


def status_of(tid: int) -> dict[str, str]:
    """``/proc/TID/status`` by field; empty where the thread is gone."""
    try:
        text = Path(f"/proc/{tid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def has_signal(status: dict[str, str], name: str, signo: int) -> bool:
    """The bit of ``signo`` in one of the signal sets (SigCgt, SigIgn, SigPnd, ShdPnd, SigBlk)."""
    return bool(int(status.get(name, "0"), 16) >> (signo - 1) & 1)


def state_of(tid: int) -> str | None:
    """The letter of the thread's state (R, S, D, T, t, Z, X); None where it is gone."""
    try:
        # The name in parentheses may itself hold parentheses and spaces.
        return Path(f"/proc/{tid}/stat").read_bytes().rpartition(b") ")[2][:1].decode()
    except OSError:
        return None


def main_stack(tid: int, status: dict[str, str]) -> tuple[int, int] | None:
    """How large the main thread's stack is, and its limit, where less than 12 % of that is left. As ``exits.c``."""
    size = int(status.get("VmStk", "0").split()[0]) * 1024
    if size < _SMALL_STACK:
        return None
    try:
        limit, _ = resource.prlimit(tid, resource.RLIMIT_STACK)
    except OSError:
        return None
    return (size, limit) if limit >= 0 and size * 100 > limit * 88 else None


def is_dead(tid: int) -> bool:
    """Its task may still be listed, but it will not stop any more."""
    return state_of(tid) in {"Z", "X", None}


def exit_of(status: int) -> Exit:
    """A wait status as the model says it."""
    if os.WIFSIGNALED(status):
        return Exit(kind="signaled", signal=siginfo.name_of(os.WTERMSIG(status)))
    return Exit(kind="exited", code=os.WEXITSTATUS(status))


def command_of(pid: int) -> tuple[str, ...] | None:
    """The arguments that the process was executed with."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:  # noqa: PTH123 - at every exec: Path takes longer
            line = file.read()
    except OSError:
        return None
    return words_of(line)


def words_of(line: bytes) -> tuple[str, ...] | None:
    """The words of ``/proc/PID/cmdline``, each of which ends with a NUL; None where there are none."""
    return tuple(os.fsdecode(word) for word in line.removesuffix(b"\0").split(b"\0")) if line else None


def executable_of(pid: int) -> str | None:
    """The file that the process runs."""
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - at every exec: Path takes longer
    except OSError:
        return None


@dataclass(slots=True, eq=False)
class Traced:
    """One process: what is remembered from its stops until it has ended. With slots, as there may be thousands."""

    pid: int
    parent: int | None = None
    role: str | None = None
    command: tuple[str, ...] | None = None
    executable: str | None = None
    begun: float = field(default_factory=time.monotonic)
    """Seconds of the monotonic clock."""
    wall_s: float | None = None
    threads: int = 1
    """How many are alive."""
    signals: Mapping[int, bytes] = field(default_factory=dict)
    """Once it has ended, by signal: the siginfo of the last one that may have ended it."""
    sent: dict[int, Sent] = field(default_factory=dict)
    """By signal: who sent the one that ends it."""
    crash: Callable[[], Crash] | None = None
    """What was read of it at ``crash_signo``; to be unpacked where it is needed."""
    crash_signo: int | None = None
    exit: Exit | None = None
    stacks: tuple[StackUse, ...] | None = None
    threads_ended: int = 0
    peak_rss: int | None = None
    main_stack: tuple[int, int] | None = None
    """How large the main thread's stack was at its end, and its limit, where less than 12 % of that was left."""
    peak_address_space: int | None = None
    limits: tuple[Limit, ...] | None = None
    memory: tuple[ResourceUse, ...] | None = None
    heap: HeapUse | None = None
    peaks: ResourceUse | None = None
    marks: tuple[ProfileMark, ...] | None = None
    memory_of_tree: tuple[TreeUse, ...] | None = None
    group_stopped: bool = False
    executed: bool = False
    executions: int = 0
    """How many programs it has executed."""
    said: Said | None = None
    """What it said last, where stderr is not read."""
    libraries: tuple[str, ...] = ()
    """Those that were mapped when it ended badly, if TensorFlow's was among them."""
    forked_from_threads: int | None = None
    """How many threads were alive where it was forked, if there were several and it has not executed anything since."""
    hang: Callable[[], Crash] | None = None
    """Where its threads stood when its time was up."""
    request: Request | None = None
    """Somebody outside asked it to end, and its threads were read."""
    time_is_up: bool = False
    """It was told to end (SIGTERM) with the command, whose time was up."""

    killed_by_ancestor: bool | None = None
    """An ancestor may have sent the SIGKILL that ended it: see ``secondary_exits``."""
    told: bool = False
    """Its death has a report."""

    @property
    def resolved(self) -> dict[int, bytes]:
        """The siginfo of those signals whose sender was looked for."""
        return {signo: sent.info for signo, sent in self.sent.items() if sent.info is not None}

    def become_another(self, executable: str | None = None, command: tuple[str, ...] | None = None) -> None:
        """Handle an exec: one thread is left, earlier facts are void; ``/proc`` gives the program if not given."""
        self.threads = 1
        self.executed = True
        self.executions += 1
        self.said = None
        self.forked_from_threads = None
        self.crash = self.request = None
        self.command = command or command_of(self.pid) or self.command
        self.executable = executable or executable_of(self.pid) or self.executable

    def is_in_group_of(self, other: Traced) -> bool:
        """A Ctrl-C would reach both: they are of one process group."""
        try:
            return os.getpgid(self.pid) == os.getpgid(other.pid)
        except OSError:
            return False

    def stop_with(self, command: Traced) -> None:
        """The command's time is up: this one's too, where it is of its process group."""
        if self.is_in_group_of(command):
            self.time_is_up = True
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGTERM)

    def was_killed(self, status: int) -> bool:
        """By a signal, and not by the one that the time limit had sent."""
        return os.WIFSIGNALED(status) and not (self.time_is_up and os.WTERMSIG(status) == signal.SIGTERM)

    def end(self, status: int, at: float) -> None:
        """It was reaped with this wait status, at this time of the monotonic clock."""
        self.exit = exit_of(status)
        self.wall_s = at - self.begun
        self.threads = 0

    def _with_stack(self) -> tuple[Limit, ...] | None:
        if self.main_stack is None or any(one.name == "RLIMIT_STACK" for one in self.limits or ()):
            return self.limits
        used, limit = self.main_stack
        return (*(self.limits or ()), Limit(name="RLIMIT_STACK", limit=limit, used=used))

    def as_noun(self) -> Process:
        """As the model says it."""
        return Process(
            pid=self.pid,
            parent=self.parent,
            role=self.role,
            command=self.command,
            executable=self.executable,
            started=_iso(_STARTED_AT + self.begun),
            wall_s=round(self.wall_s, 6) if self.wall_s is not None else None,
            exit=self.exit or Exit(kind="running"),
            stacks=self.stacks,
            peak_rss=self.peak_rss,
            peak_address_space=self.peak_address_space,
            limits=self._with_stack(),
            memory=self.memory,
            heap=self.heap,
            peaks=self.peaks,
            marks=self.marks,
            memory_of_tree=self.memory_of_tree,
        )
