"""What a supervised run is asked for, and where the cores of its processes are until the report is written."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, get_args

from necropsy.model import Frame, RunRecord

CoreMode = Literal["off", "small", "full"]
CORE_MODES: tuple[str, ...] = get_args(CoreMode)
MOST = 16
"""Cores of one run: a small one is a megabyte, and a program that dies of the same thing a thousand times needs few."""


_PATIENCE_MS = 10_000
"""How long a report waits for a core to be written, which mostly takes less than a second."""


@dataclass(eq=False)
class CoreFile:
    """A core in gzip, or a minidump, which another process may still be writing."""

    file: BinaryIO
    written: BinaryIO | None = None
    """If another process writes it: the end of a pipe, which has one byte once the file is complete."""

    def expect(self) -> int:
        """Make a pipe, and return the end for the process that will write. Raises OSError if no descriptor is left."""
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        self.written = open(ours, "rb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor
        return theirs

    def __call__(self) -> BinaryIO:
        """Wait until the file is complete, and return it, at its beginning. Raises OSError if that fails."""
        if self.written is not None:
            waiting = select.poll()
            waiting.register(self.written, select.POLLIN)
            if not waiting.poll(_PATIENCE_MS):
                raise OSError(f"it was not written in {_PATIENCE_MS // 1000} s")
            if not self.written.read(1):
                raise OSError("the process that wrote it failed")
            self.written = None
        self.file.seek(0)
        return self.file

    def close(self) -> None:
        """Close it in this process."""
        self.file.close()
        if self.written is not None:
            self.written.close()


class Cores:
    """Files that hold a core in gzip each, by the process and the moment of its death."""

    def __init__(self, mode: str) -> None:
        """``mode``: small ones are kept in memory, full ones in unnamed files below ``TMPDIR``."""
        self.mode = mode
        self.kept: dict[tuple[int, str | None], CoreFile] = {}

    @property
    def full_memory(self) -> bool:
        """Everything that the process could write belongs into the core."""
        return self.mode == "full"

    def new(self) -> CoreFile | None:
        """A file to write the next core to; None where none is wanted, there are enough, or there is no room."""
        if self.mode == "off" or len(self.kept) >= MOST:
            return None
        try:
            return CoreFile(_on_disk() if self.full_memory else _in_memory())
        except OSError:
            return None

    def keep(self, pid: int, at: str | None, core: CoreFile | None) -> None:
        """Keep a core that has been written, or is being written; one without contents is not kept."""
        # A process that is still writing has the same position in the file, so that must not be moved.
        if core is not None and (core.written is not None or core.file.seek(0, io.SEEK_END)):
            self.kept[pid, at] = core

    def forget(self, pid: int) -> None:
        """The report of this process is being written by another one, which has its own descriptors."""
        for key in [key for key in self.kept if key[0] == pid]:
            self.kept.pop(key).close()


def _on_disk() -> BinaryIO:
    import tempfile

    return tempfile.TemporaryFile()


def _in_memory() -> BinaryIO:
    """A file that a forked process can fill; only Linux forks. Raises OSError without descriptors or room."""
    if sys.platform != "linux":
        return io.BytesIO()
    try:
        return open(os.memfd_create("necropsy-core", os.MFD_CLOEXEC), "w+b")  # noqa: PTH123 - a descriptor
    except OSError:  # a seccomp profile may forbid it
        return _on_disk()


__all__ = ["LOG_MODES", "STACK_SIGNALS", "LogMode", "RunOptions", "RunRecord", "Said"]

LogMode = Literal["auto", "probe", "tap", "pty", "pipe", "off"]
LOG_MODES: tuple[str, ...] = get_args(LogMode)
STACK_SIGNALS = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGXCPU")
"""Signals that ask a process to end: where one comes from outside, the process's threads are read."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to supervise.

    ``timeout_s``: after this time SIGTERM, five seconds later SIGKILL, to the command only (as ``timeout
    --foreground``); the run then ends with 124. ``log``: how the end of stderr is read, see ``stderr.py``. ``always``:
    the peak of every thread's stack after healthy runs too. ``profile_s``: with ``always``, that of threads that end
    before, too; all are looked at each time that so many seconds have passed. ``heap_sample``: with ``profile_s``, what
    was running while memory grew. ``budget_s``: seconds for reading one
    dead process. ``report_s``: how long the end of the command may be held back by its report, as long as that gets on.
    ``keep``: file descriptors that ``on_end`` writes to; of the others it has stderr alone, stdin and stdout are
    /dev/null. ``core``: what to keep of a dead process's memory: ``off``, ``small`` (see ``small_core.py``), ``full``
    (all that it could write). ``loading``: gets ready what ``on_end`` will need, piece by piece, while the command
    runs; each piece yields whether the next is worth its time in short runs too.
    ``guard``: the command is preloaded with the guard allocator (``guard_preload.check`` says whether it can be).
    ``no_stacks_at``: those of ``STACK_SIGNALS`` at which threads are not read.
    ``at_terminal``: threads are read at Ctrl-C as well, for a document that is written.
    ``tied``: where the supervisor is killed, the kernel ends the command and all that it has started: for the runs of
    an experiment, which nobody wants without it.
    """

    timeout_s: float | None = None
    log: str = "auto"
    python_locals: bool = False
    always: bool = False
    profile_s: float | None = None
    heap_sample: bool = False
    budget_s: float = 20.0
    report_s: float = 60.0
    keep: tuple[int, ...] = ()
    core: str = "off"
    tied: bool = False
    guard: bool = False
    no_stacks_at: frozenset[str] = frozenset()
    at_terminal: bool = False
    loading: Callable[[], Iterator[object]] = lambda: iter((False,))

    def __post_init__(self) -> None:
        if self.log not in LOG_MODES:
            raise ValueError(f"log is one of {', '.join(LOG_MODES)}, not {self.log!r}")
        if self.core not in CORE_MODES:
            raise ValueError(f"core is one of {', '.join(CORE_MODES)}, not {self.core!r}")


@dataclass(frozen=True)
class Said:
    """What a process said last before it ended, where stderr was not read.

    ``uncaught``: the exception that ended its Python; ``handled``: one in an ``except`` block at the last look;
    ``written``: what Python wrote last; ``left``: words found in its memory.
    """

    kind: Literal["uncaught", "handled", "written", "left"]
    text: str
    frames: tuple[Frame, ...] = ()
    """Where its Python stood, innermost first, if it had not left it yet."""
    callers: tuple[Frame, ...] = ()
    """Who called exit(3), innermost first."""
    where: str | None = None
    """Where the words were found, if that is not simply its memory."""
