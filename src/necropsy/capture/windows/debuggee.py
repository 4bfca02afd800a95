"""One process of the run, as the debug events tell of it, from its beginning to its end."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone

from necropsy.capture.windows import winapi
from necropsy.capture.windows.dll_events import DllEvents
from necropsy.capture.windows.live_target import LiveProcess
from necropsy.formats.exit_status import nt_status
from necropsy.formats.minidump_records import UnloadedModule
from necropsy.formats.windows_exits import is_status
from necropsy.model import Crash, Exit, Process, StackUse

MOST_SAID = 64 << 10
"""Letters of what it told the debugger that are kept, the last ones."""


def now() -> str:
    """The time as ISO 8601 in UTC, to the microsecond."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


@dataclass
class Debuggee:
    """What is remembered of it. ``handle`` is the system's own, good until the process has ended."""

    pid: int
    handle: winapi.Handle
    main_tid: int
    role: str | None = None
    parent: int | None = None
    peb: int = 0
    command: tuple[str, ...] | None = None
    started: str = field(default_factory=now)
    begun: float = field(default_factory=time.monotonic)
    threads: dict[int, LiveProcess] = field(default_factory=dict)
    modules: dict[int, str] = field(default_factory=dict)
    """Path of each loaded image by its base; the program's own first."""
    unloaded: deque[UnloadedModule] = field(default_factory=lambda: deque(maxlen=256))
    loads: DllEvents = field(default_factory=DllEvents)
    """The same with those that are gone, for the loads that failed."""
    loader_breaks: set[int] = field(default_factory=set)
    """The codes by which the loader has told that the process is ready."""
    overflow: Crash | None = None
    """Its stack overflowed, and it was read then: at the second chance there may be no room to come to."""
    overflow_tid: int | None = None
    crash: Crash | None = None
    plain: Crash | None = None
    """It ended by itself, badly, after loads that failed: news where it is the command."""
    code: int | None = None
    peak_rss: int | None = None
    stacks: tuple[StackUse, ...] | None = None
    timed_out: bool = False
    wall_s: float | None = None
    _said: deque[str] = field(default_factory=deque)
    _said_size: int = 0

    @property
    def executable(self) -> str | None:
        """The program's file."""
        return next(iter(self.modules.values()), None)

    @property
    def exit(self) -> Exit | None:
        """How it ended; None while it runs."""
        if self.code is None:
            return None
        return Exit(kind="timeout", code=None) if self.timed_out else exit_of(self.code)

    def end(self, code: int) -> None:
        """It has ended with this code."""
        self.code = code
        self.wall_s = time.monotonic() - self.begun
        self.peak_rss = winapi.peak_memory(self.handle)

    def say(self, text: str) -> None:
        """It told the debugger something."""
        self._said.append(text)
        self._said_size += len(text)
        while self._said_size > MOST_SAID and len(self._said) > 1:
            self._said_size -= len(self._said.popleft())

    @property
    def said(self) -> str:
        """The end of what it told the debugger."""
        return "".join(self._said)[-MOST_SAID:]

    @property
    def last_said(self) -> str | None:
        """The last of it."""
        return self._said[-1] if self._said else None

    def as_noun(self) -> Process:
        """As the model says it."""
        return Process(
            pid=self.pid,
            parent=self.parent,
            role=self.role,
            command=self.command,
            executable=self.executable,
            started=self.started,
            wall_s=round(self.wall_s, 6) if self.wall_s is not None else None,
            exit=self.exit or Exit(kind="running"),
            stacks=self.stacks,
            peak_rss=self.peak_rss,
        )


def exit_of(code: int) -> Exit:
    """An exit code of 32 bits as the model says it: signed, and with the status where it is one that has a name."""
    status = nt_status(code)
    is_one = is_status(code) and status.name is not None
    return Exit(kind="exited", code=status.signed, ntstatus=status if is_one else None)
