"""How calls are made: as in a plain process, with guarded buffers, on a small stack, in a graph, or by threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from necropsy.capture.linux.supervise import guard_preload
from necropsy.errors import NecropsyError
from necropsy.model import FuzzNeed, Gap

GuardWish = Literal["auto", "on", "off"]
Placement = Literal["end", "begin"]

SMALL_STACK = 512 << 10
"""What macOS gives to threads; musl and many thread pools give less."""
SMALL_BLOCKS = 100
"""Of blocks below 1 KiB, the first ones of a call that are guarded: TensorFlow makes dozens, and each takes time."""


@dataclass(frozen=True)
class Threads:
    """``many`` threads that make a call concurrently, in a loop of ``seconds``.

    ``beside``: other calls of the same op that they also make, as Python source.
    """

    many: int = 8
    seconds: float = 1.0
    beside: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Configuration:
    """``guard``: the side of each buffer that a forbidden page is at; ``stack``: bytes for the thread that calls.

    ``small_blocks``: of how many buffers below 1 KiB, tensors excepted, which are always guarded. ``sanitized``: the
    library is the build with AddressSanitizer, in all workers of an engine or in none.
    """

    guard: Placement | None = None
    small_blocks: int = 0
    stack: int | None = None
    sanitized: bool = False
    limit: float | None = None
    """Seconds after which a call counts as one that does not end."""
    memory: int | None = None
    """Bytes of data that the process may have. Workers have such a limit anyway, a plain process has none."""
    graph: bool = False
    """The op runs in a graph, not eagerly."""
    threads: Threads | None = None
    """Several threads make the call; None: one, and once."""

    @property
    def needs(self) -> tuple[FuzzNeed, ...]:
        """What a plain process lacks."""
        if self.sanitized:
            return ("sanitizer",)
        if self.memory is not None:
            return ("memory-limit",)
        guard: tuple[FuzzNeed, ...] = ("guard",) if self.guard is not None else ()
        stack: tuple[FuzzNeed, ...] = ("stack-size",) if self.stack is not None else ()
        graph: tuple[FuzzNeed, ...] = ("graph",) if self.graph else ()
        threads: tuple[FuzzNeed, ...] = ("threads",) if self.threads is not None else ()
        return (*guard, *stack, *graph, *threads)

    @property
    def is_of_plain_python(self) -> bool:
        """A call that a test makes in its own process shows it."""
        return replace(self, graph=False) == PLAIN

    @property
    def guard_options(self) -> str | None:
        """The value of ``NECROPSY_GUARD`` for a process that arms the guard before a call."""
        if self.guard is None:
            return None
        return "disarmed,small=1,large=1" + (",begin" if self.guard == "begin" else "")

    def __str__(self) -> str:
        """As the end of a sentence: ``in plain Python``."""
        if self.sanitized:
            return "with the library built with AddressSanitizer"
        if self.memory is not None:
            return f"in plain Python with at most {self.memory / (1 << 30):.2g} GiB of data (`ulimit -d`)"
        where = "in plain Python" if self.guard is None else "with `necropsy run --guard`"
        where += f" with a stack of {self.stack >> 10:,} KiB" if self.stack is not None else ""
        where += " in a graph (`tf.function`)" if self.graph else ""
        return where if self.threads is None else f"{where} by {self.threads.many} threads at the same time"


PLAIN = Configuration()
SANITIZED = Configuration(sanitized=True)


def rotation(*, guard: bool, stack: int, is_python: bool) -> tuple[Configuration, ...]:
    """What the batches of a campaign take turns in. Whatever dies plainly dies guarded as well."""
    small = Configuration(stack=stack)
    if not guard:
        return (PLAIN, PLAIN, small, PLAIN)
    few = SMALL_BLOCKS if is_python else 0  # a function's arrays are no tensors
    end, begin = Configuration(guard="end", small_blocks=few), Configuration(guard="begin", small_blocks=few)
    all_blocks = Configuration(guard="end", small_blocks=SMALL_BLOCKS)
    return (PLAIN, end, begin, small, PLAIN, all_blocks, begin, end)


def why_unguarded(wish: GuardWish, *, loaded: bool | None = None) -> Gap | None:
    """Why calls cannot be guarded; None where they can. ``loaded``: the target's process has the guard.

    Raises:
        NecropsyError: they cannot, and the wish is ``on``.

    """
    error = None
    try:
        guard_preload.check()
        if loaded is False:
            error = NecropsyError("--guard does not work: the interpreter did not load the guard library")
    except NecropsyError as missing:
        error = missing
    if error is not None and wish == "on":
        raise error
    if error is None:
        return None
    return Gap(part="guard", why=f"{error}; accesses just beyond a buffer were not looked for")
