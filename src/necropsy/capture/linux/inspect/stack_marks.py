"""The high-water mark of a thread's stack: the lowest page that was ever touched, from the kernel's page map.

Pages stay until the thread ends, also long after the call that touched them has returned. What is marked was touched,
by a frame or by a probe ahead of one (``-fstack-clash-protection``), to a page; swapped pages count.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from necropsy.capture.linux.inspect import memory_map
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.inspect.resident_pages import PAGE, PageMap
from necropsy.capture.linux.unwind import stack_bounds
from necropsy.capture.process.memory import Memory, Registers
from necropsy.model import Frame, SetBy, Stack, StackFunction, StackUse

_DEFAULT = 2 << 20
"""ARCH_STACK_DEFAULT_SIZE of glibc on x86-64 and AArch64: the size of a thread's stack where the limit is unlimited."""
_HUGE = 2 << 20
_FARTHEST = 64 << 20
"""Bytes of a stack without a limit that are looked at below what was mapped of it."""
_LAID_OUT = 32 << 10
"""Bytes at the top of a stack: thread-local data, and what glibc leaves of an ended thread (``PTHREAD_STACK_MIN``)."""
_MOST_KNOWN = 4096
"""Stacks that are remembered: glibc gives them to other threads."""
_LONGEST_COMM = 64
"""Bytes: TASK_COMM_LEN is 16, and names of workers of the kernel can be a little longer."""


@dataclass
class StackCopy:
    """The bytes of a stack from its lowest touched page on, and the mappings of its process.

    With ``registers``, from the stack pointer that the thread had then.
    """

    pid: int
    low: int
    data: bytes
    maps: memory_map.MemoryMap
    reused: bool = False
    """Another thread had it before, and may have left something at its top."""
    registers: Registers | None = None
    python: tuple[Frame, ...] = ()
    """The thread's Python frames, innermost first, as far as they were read."""


@dataclass
class StackMark:
    """A thread's stack, ``[low, high)``, and the lowest page of it that was seen to be touched."""

    tid: int
    is_main: bool
    name: str | None
    low: int
    high: int
    size: int | None
    guard: int | None
    set_by: SetBy | None = None
    base: int = 0
    """Where its control block is, of a thread that Python started."""
    python_name: str | None = None
    lowest: int | None = None
    at: float | None = None
    """When ``lowest`` was first seen, in seconds of the monotonic clock."""
    looked: float | None = None
    """When its pages were last looked at, as ``at``."""
    inherited: int | None = None
    """The lowest page that a forked process has from its parent."""
    exact: bool = False
    ended: bool = False
    copy: StackCopy | None = None
    """What was on it when it was last looked at, of threads that used much of it."""
    copied_at: int = 0
    """The mark when the thread was last stopped for ``live``."""
    copied_after: float = 0.0
    """Not to be tried before, in seconds of the monotonic clock."""
    live: StackCopy | None = None
    """What was on it while it was in use."""
    elsewhere: bool = False
    """The thread was seen to run on other memory, as coroutines and signal handlers do."""
    functions: tuple[StackFunction, ...] | None = None
    """What filled it."""

    def __post_init__(self) -> None:
        """No copy was tried yet."""
        self.copied_at = self.high

    def look(self, pages: PageMap, now: float) -> None:
        """Move the mark if a lower page was touched since the last look. Raises OSError, TooLargeError."""
        self.looked = now
        until = self.high if self.lowest is None else self.lowest
        # Of memory that the program brought, the first page may hold something else at its beginning.
        found = pages.lowest(-(-self.low // PAGE) * PAGE, until)
        if found is not None and (self.lowest is None or found < self.lowest):
            self.lowest, self.at = max(found, self.low), now

    def has_grown(self, pages: PageMap) -> bool:
        """Whether the main thread's stack reaches lower than ``low`` by now. Raises OSError, TooLargeError.

        Its mapping grows to where a page is touched. To read all mappings takes a hundred times as long.
        """
        return pages.lowest(max(self.high - (self.size or _FARTHEST), 0), self.low) is not None

    def inherit(self, parent: int | None) -> None:
        """The process was forked: the pages that its parent has touched are not its own.

        ``parent`` may have touched more since, and the process before it was looked at: what was there at the fork is
        within both. Raises OSError, TooLargeError.
        """
        found = None
        if parent is not None and self.lowest is not None:
            with PageMap(parent) as pages:
                found = pages.lowest(self.low, self.high)
        self.copied_at = self.lowest if self.lowest is not None else self.high
        self.inherited = self.lowest if found is None or self.lowest is None else max(self.lowest, found)

    def note_pointer(self, pointer: int) -> None:
        """See whether the thread's stack pointer is in its stack; that of the main thread may have grown meanwhile."""
        low = max(self.high - (self.size or 1 << 40), 0) if self.is_main else self.low
        if not low <= pointer <= self.high:
            self.elsewhere = True

    @property
    def share(self) -> float:
        """How much of the stack was used, as a share of its size."""
        return (self.high - self.lowest) / self.size if self.lowest is not None and self.size else 0.0

    def take_copy(self, pid: int, maps: memory_map.MemoryMap, *, reused: bool) -> None:
        """Keep what is on it. Raises OSError."""
        if self.lowest is None:
            return
        with ProcessMemory(pid) as memory:
            self.copy = StackCopy(pid, self.lowest, memory.some(self.lowest, self.high - self.lowest), maps, reused)

    def as_noun(self, begun: float) -> StackUse:
        """As the model says it. ``begun``: the start of the process."""
        own = self.lowest if self.inherited is None or self.lowest is None or self.lowest < self.inherited else None
        at = self.at if own is not None else None
        return StackUse(
            tid=self.tid,
            name="main" if self.is_main else self.name,
            python_name=self.python_name,
            size=self.size,
            peak=None if own is None else self.high - own,
            guard=self.guard,
            peak_at=None if at is None else round(max(at - begun, 0.0), 3),
            ended=self.ended,
            exact=self.exact,
            inherited=None if self.inherited is None else self.high - self.inherited or None,
            set_by=self.set_by,
            functions=self.functions if own is not None else None,
        )


class ForkedStacks:
    """What a fork has of its parent's stacks: what was touched when it created its first thread.

    glibc takes the stacks of threads that the fork does not have for its new ones (``__reclaim_stacks``).
    """

    def __init__(self, pid: int, maps: memory_map.MemoryMap) -> None:
        """Read it, while no thread runs but the first one. Raises OSError, TooLargeError."""
        self._maps = maps
        self._lowest: dict[int, int] = {}
        """By the upper end of what lies above a guard."""
        below: memory_map.MapEntry | None = None
        with PageMap(pid) as pages:
            for one in maps:
                if one.writable and below is not None and below.high == one.low and not below.readable:
                    self._lowest[one.high] = pages.lowest(one.low, one.high) or one.high
                below = one

    def inherited(self, mark: StackMark) -> int | None:
        """The lowest page that a thread created since then has on its stack of another one; None where unknown."""
        if self._maps.at(mark.high - 1) is None:
            return mark.high
        lowest = self._lowest.get(mark.high)
        # Thread-local data is laid out before the thread begins, and its own frames follow on the same pages.
        return mark.high if lowest is not None and mark.high - lowest <= _LAID_OUT else lowest


class StackReader:
    """Finds the stacks of one process's threads. What is read once is kept: its mappings, its limit, its variables."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._maps: memory_map.MemoryMap | None = None
        self.limit = stack_bounds.soft_limit(pid)
        """At the first look: the C library reads it when the program starts."""
        self._has_omp_size: bool | None = None
        self._known: dict[int, tuple[tuple[tuple[int, bytes], ...], StackMark]] = {}
        """By control block: the words of it that say whose stack that is, and the mark of a thread that had it."""

    def maps(self, *, fresh: bool = False) -> memory_map.MemoryMap:
        """The mappings, as they were at some time before unless ``fresh``. Raises OSError."""
        if self._maps is None or fresh:
            self._maps = memory_map.read(self.pid)
        return self._maps

    def main(self, tid: int) -> StackMark | None:
        """The main thread's stack; its lower end moves, and is that of now. Raises OSError."""
        stack = stack_bounds.of_main(self.maps(fresh=True), self.limit)
        return None if stack is None else self._mark(tid, stack, is_main=True, set_by="ulimit -s")

    def other(self, tid: int, base: int) -> StackMark | None:
        """The stack of a thread whose control block is at ``base``; None where it cannot be told. Raises OSError."""
        with ProcessMemory(self.pid) as memory:
            maps = self.maps()
            if maps.at(base) is None:
                maps = self.maps(fresh=True)
            stack = stack_bounds.of_control_block(maps, memory, base)
            if stack is None:
                stack = stack_bounds.of_control_block(self.maps(fresh=True), memory, base)
            if stack is None or stack.low is None or stack.high is None:
                return None
            starter, word = self._starter(memory, base)
            mark = self._mark(tid, stack, is_main=False, set_by=self._set_by(stack, starter))
            if mark is not None and "python" in starter:
                mark.base = base
            if mark is not None:
                self._remember(memory, base, mark, word)
            return mark

    def _remember(self, memory: Memory, base: int, mark: StackMark, starter: tuple[int, bytes]) -> None:
        first, last = memory.processor.control_block
        block = mark.low - (mark.guard or 0)
        bounds = struct.pack("<QQ", block, mark.high - block)
        at = memory.some(base + first, last - first + 24).find(bounds)
        if at >= 0 and len(self._known) < _MOST_KNOWN:
            self._known[base] = (((base + first + at, bounds), starter), mark)

    def reused(self, tid: int, base: int) -> StackMark | None:
        """As ``other``, if a thread that was found before had the same stack, and its control block says the same."""
        words, before = self._known.get(base, ((), None))
        if before is None:
            return None
        with ProcessMemory(self.pid) as memory:
            if any(memory.some(at, len(word)) != word for at, word in words):
                return None
        return StackMark(
            tid, False, None, before.low, before.high, before.size, before.guard, set_by=before.set_by, base=before.base
        )

    def around(self, tid: int, pointer: int) -> StackMark | None:
        """The stack of a thread of which only the stack pointer is known. Raises OSError."""
        maps = self.maps()
        stack = stack_bounds.around(maps, pointer)
        if stack is None:
            stack = stack_bounds.around(self.maps(fresh=True), pointer)
        if stack is None or stack.size is None:
            return None
        is_the_limit = self.limit is not None and self.limit // PAGE * PAGE in {
            stack.size,
            stack.size + (stack.guard or 0),
        }
        return self._mark(tid, stack, is_main=False, set_by="ulimit -s" if is_the_limit else None)

    def _mark(self, tid: int, stack: Stack, *, is_main: bool, set_by: SetBy | None) -> StackMark | None:
        if stack.low is None or stack.high is None:
            return None
        return StackMark(
            tid, is_main, name_of(self.pid, tid), stack.low, stack.high, stack.size, stack.guard, set_by=set_by
        )

    def _set_by(self, stack: Stack, starter: str) -> SetBy | None:
        if stack.size is None:
            return None
        sizes = {stack.size, stack.size + (stack.guard or 0)}
        if self.limit is not None and self.limit // PAGE * PAGE in sizes:
            return "ulimit -s"
        if not stack.guard:
            return "pthread_attr_setstack"
        if "gomp" in starter or "iomp" in starter or "libomp" in starter:
            return "OMP_STACKSIZE" if self._names_omp_size() else "attribute"
        if self.limit == -1 and _DEFAULT in sizes:
            return "glibc"
        return "threading.stack_size" if "python" in starter else "attribute"

    def _starter(self, memory: Memory, base: int) -> tuple[str, tuple[int, bytes]]:
        """The name of the file whose function the thread began with, as its control block says; else empty.

        And where the control block says that, and how.
        """
        first, last = memory.processor.starter
        data = memory.some(base + first, last - first)
        for number, (word,) in enumerate(struct.iter_unpack("<Q", data[: len(data) & ~7])):
            one = self.maps().at(word)
            if one is not None and one.executable and one.path is not None:
                return one.path.rpartition("/")[2], (base + first + 8 * number, word.to_bytes(8, "little"))
        return "", (base, b"")

    def _names_omp_size(self) -> bool:
        if self._has_omp_size is None:
            try:
                text = Path(f"/proc/{self.pid}/environ").read_bytes()
            except OSError:
                text = b""
            self._has_omp_size = re.search(rb"(?:^|\0)(?:OMP|GOMP|KMP)_STACKSIZE=", text) is not None
        return self._has_omp_size


def name_of(pid: int, tid: int) -> str | None:
    """The thread's name, as the kernel has it."""
    try:
        handle = os.open(f"/proc/{pid}/task/{tid}/comm", os.O_RDONLY | os.O_CLOEXEC)  # often; Path takes longer
        try:
            return os.read(handle, _LONGEST_COMM).decode(errors="replace").rstrip("\n") or None
        finally:
            os.close(handle)
    except OSError:
        return None


def is_backed_by_huge_pages(pid: int, mark: StackMark) -> bool:
    """Whether the mark may be that of a huge page, which is touched as a whole: then it says nothing below 2 MiB."""
    if mark.lowest is None or mark.lowest % _HUGE or mark.high - mark.lowest < _HUGE:
        return False
    return (_of_mapping(pid, mark.lowest, "AnonHugePages") or 0) > 0


def is_locked(pid: int, mark: StackMark) -> bool:
    """Whether all of its pages are present because the program asked for that (mlockall)."""
    if mark.lowest is None or mark.lowest != mark.low:
        return False
    return (_of_mapping(pid, mark.lowest, "Locked") or 0) > 0


def _of_mapping(pid: int, address: int, field: str) -> int | None:
    """A field of the mapping at ``address`` in ``/proc/PID/smaps``, in bytes."""
    inside = False
    try:
        with Path(f"/proc/{pid}/smaps").open(errors="replace") as file:
            for line in file:
                head = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
                if head is not None:
                    inside = int(head[1], 16) <= address < int(head[2], 16)
                elif inside and line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None
