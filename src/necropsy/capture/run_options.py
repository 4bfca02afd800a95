"""What a supervised run is asked for; ``RunRecord`` is what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from necropsy.capture.core_spool import CORE_MODES
from necropsy.model import Frame, RunRecord

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
