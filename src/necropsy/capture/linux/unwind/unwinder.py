"""Native stacks of any depth: by unwind tables, else by what is on the stack.

Code compiled without frame pointers and tables leaves only return addresses on the stack, and those of an earlier call
look the same. So each such frame says how it was found.

A stack is not always the thread's own: it may be a signal's alternate one, or a coroutine's. The stack pointer alone
cannot tell: a function whose frame is too large for the thread's own stack leaves the pointer in foreign memory too.
But its caller's frame is on the thread's own stack, with only a call between the two. From a signal's stack the way
back leads through the kernel's record of the interrupted code. A coroutine's stack leads nowhere else: its first frame
has no tables, and the frame pointer there is an old one.

Where a stack cannot be read to its end, its outer end is looked for: each word up there that may be a return address is
followed, from the lowest upwards; the first that leads to the thread's first function is taken.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Container, Iterator

from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.unwind.cfi_step import CfiStep
from necropsy.capture.linux.unwind.frame_scan import FrameScan, ends_chain, is_outermost
from necropsy.capture.linux.unwind.symbol_tables import SymbolTables
from necropsy.capture.linux.unwind.symbolizer import Symbolizer
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.guarded import Gaps
from necropsy.capture.process.memory import Memory, Registers
from necropsy.capture.process.native_stack import Cursor, NativeStack
from necropsy.capture.process.recursion_skip import RecursionSkip
from necropsy.model import Address, Stack

LATE = "the time for reading it was used up"
LONGEST_S = 1.0
"""What looking for the other end may take, after the time for the stack is over."""
_SEARCHED = 256 << 10
"""Bytes below the end of the stack."""
_MOST_TRIES = 64
_FEWEST = 3
"""Frames that lead to the thread's first function by chance are fewer."""


def read(
    out: NativeStack,
    memory: Memory,
    stack: Stack | None,
    known: Container[int],
    follow: Callable[[NativeStack, Cursor, float], None],
) -> None:
    """Where the time for ``out`` was up: add its outer end, and about how many frames it has in all.

    ``known``: return addresses on the stack; ``follow`` adds a frame and its callers until a deadline (monotonic, s).
    """
    if out.why != LATE or stack is None or stack.high is None or len(out) < 2:
        return
    last, high = out.pointers[-1], stack.high
    if not out.pointers[0] <= last < high:
        return
    deadline = time.monotonic() + LONGEST_S
    for at in _starts(memory, max(last, high - _SEARCHED), high, known):
        found = NativeStack()
        found.recover(0, "scan")
        follow(found, at, deadline)
        if found.complete and len(found) >= _FEWEST:
            out.outer = found
            break
        if time.monotonic() > deadline:
            break
    end = high if out.outer is None else out.outer.pointers[0]
    each = (last - out.pointers[0]) / (len(out) - 1)
    more = len(out.outer) if out.outer is not None else 0
    out.estimate = len(out) + more + (round(max(end - last, 0) / each) if each else 0)


def _starts(memory: Memory, low: int, high: int, known: Container[int]) -> Iterator[Cursor]:
    """Frames that may begin in ``[low, high)``, the innermost first."""
    low = low + 7 & ~7
    data = memory.some(low, max(high - low, 0))
    words = array("Q", data[: len(data) & ~7])
    tries, mask = 0, memory.processor.link_mask
    for index, word in enumerate(words):
        value = word if mask is None else word & mask
        if value not in known:
            continue
        pointer = low + index * 8 + 8
        # Where the callee keeps frame pointers, its caller's lies below the return address.
        below = words[index - 1] if index else 0
        cpu = memory.processor
        registers = {cpu.counter: value, cpu.pointer: pointer}
        if pointer <= below < high:
            registers[cpu.frame] = below
        yield Cursor(registers, listed=False)
        tries += 1
        if tries >= _MOST_TRIES:
            return


_TO_SIZE = 16
"""From ``ss_sp`` to ``ss_size`` in ``stack_t``."""
_LARGEST = 1 << 40


def watch(maps: MemoryMap, stack: Stack | None, unwound: NativeStack) -> None:
    """Have ``unwound`` note what ``ran_on`` will ask for; before its first frame is added."""
    region = None if stack is None else _region(maps, stack)
    if region is not None:
        unwound.watch(region.low, region.high)


def _region(maps: MemoryMap, stack: Stack) -> MapEntry | None:
    """The mapping of a stack that the thread's pointer is on instead of ``stack``."""
    pointer = stack.pointer
    if pointer is None or (stack.low is not None and stack.high is not None and stack.low <= pointer <= stack.high):
        return None
    region = maps.writable_from(pointer)
    if region is None or (stack.low is not None and region.low <= stack.low < region.high):
        return None
    return region


def ran_on(maps: MemoryMap, memory: Memory, stack: Stack, unwound: NativeStack) -> Stack:
    """``stack``, or the one that the thread had been moved to; ``unwound`` then knows where it was moved.

    ``stack`` is what ``stack_bounds.of_thread`` found; its ``guard_hit`` is left to ``exhausted`` there either way.
    """
    pointer, region, stay = stack.pointer, _region(maps, stack), unwound.stay
    if pointer is None or region is None or stay is None:
        return stack
    returns = memory.processor.returns_from_signal
    interrupted = memory.exactly(stay.place.pc, len(returns)) == returns
    # AArch64's coroutines begin in a function with tables (``__start_context``), which takes nothing of their stack.
    beyond = stay.following is not None and stay.following != region.high
    called = beyond and not stay.recovered and stay.place.unwinds is not False
    if not interrupted and (called or stay.end == 0 or "scan" in unwound.guesses):
        return stack
    unwound.switched.add(stay.end)
    at = stay.pointer
    low, high = _given(memory, at) if interrupted else (0, 0)
    if not (high - low < _LARGEST and region.low <= low <= at < high <= region.high):
        # A mapping may hold more than this stack above it, and it begins where the outermost frame is.
        low, high = region.low, min(at + memory.page - 1 & -memory.page, region.high)
    return Stack(
        low=Address(low),
        high=Address(high),
        size=high - low,
        used=max(high - pointer, 0),
        pointer=Address(pointer),
        is_main=stack.is_main,
        is_alternate=True,
    )


def _given(memory: Memory, context: int) -> tuple[int, int]:
    """The arguments of ``sigaltstack``, by the kernel's record at ``context``; 0, 0 where it cannot be read.

    ``context`` is the stack pointer when the handler has returned.
    """
    at = context + memory.processor.to_signal_stack
    low, size = memory.u64(at), memory.u64(at + _TO_SIZE)
    return (low, low + size) if low and size else (0, 0)


_MOST_SCANS = 32
"""How many callers of one stack are searched for among the words on it."""


class Unwinder:
    """Unwinds the threads of one stopped process."""

    def __init__(
        self, maps: MemoryMap, memory: Memory, files: MappedFiles, names: Symbolizer | SymbolTables | None = None
    ) -> None:
        """``names``: what is at a program counter; by default, the symbol tables alone decide."""
        self._maps, self._memory = maps, memory
        self._names = names or SymbolTables(maps, memory, files)
        fits = self._names.fits if isinstance(self._names, SymbolTables) else None
        self._scan = FrameScan(maps, memory, fits)
        self._tables = CfiStep(maps, memory, files, self._names.at)

    @property
    def unreadable(self) -> list[str]:
        """Files that could not be opened."""
        return self._names.unreadable

    def close(self) -> None:
        """Give back what is held."""
        self._names.close()

    def is_return_address(self, value: int) -> bool:
        """Whether a call instruction stands right before it, in executable memory."""
        return self._scan.is_return_address(value)

    def place_of(self, pc: int) -> CodeLocation:
        """What is known of the function that a call returns to."""
        return self._names.at(pc, False)[-1]

    def unwind(self, registers: Registers, stack: Stack | None, deadline: float) -> NativeStack:
        """The stack of the thread with these registers, to its first frame or until ``deadline`` (monotonic, s)."""
        out = NativeStack()
        watch(self._maps, stack, out)
        at = self._scan.innermost(out, registers, stack, self._names.at)
        if at is not None:
            self._follow(out, self._tables.with_stack_pointer(at), registers, stack, deadline)

        def follow(outer: NativeStack, start: Cursor, until: float) -> None:
            self._follow(outer, start, registers, stack, until)

        read(out, self._memory, stack, self._tables.known, follow)
        out.why = None if out.complete else out.why or "no caller was found for the last frame"
        return out

    def _follow(
        self, out: NativeStack, start: Cursor, registers: Registers, stack: Stack | None, deadline: float
    ) -> None:
        at: Cursor | None = start
        cpu = self._memory.processor
        scans = 0
        repeats = RecursionSkip(self._memory, self.place_of)
        seen: set[tuple[int, int, bool]] = set()
        self._tables.only_simple = True
        while at is not None:
            where = (at.registers.get(cpu.counter, 0), at.registers.get(cpu.pointer, 0), at.listed)
            if where in seen:
                out.why = "the chain of frames goes in circles"
                return
            seen.add(where)
            at, ended = self._tables.walk(out, at, deadline)
            if ended != "bottom" and time.monotonic() > deadline:
                out.why = LATE
                return
            if ended == "bottom" or is_outermost(out, registers, self._memory) or ends_chain(at, cpu):
                out.complete = True
                simple = self._tables.only_simple and self._tables.by_stack_pointer
                out.plain = ended == "bottom" and len(seen) == 1 and simple
                return
            at = self._scan.caller(out, at, stack)
            if at is not None and out.recovered.get(len(out)) == "scan":
                scans += 1
                high = stack.high if stack is not None else None
                if scans > _MOST_SCANS:
                    at = None
                elif cpu.link is None:
                    at = repeats.beyond(out, at, high, deadline)
            at = at and self._tables.with_stack_pointer(at)


def with_names(maps: MemoryMap, memory: Memory, files: MappedFiles, gaps: Gaps) -> Unwinder:
    """One whose names and lines are drgn's, or else those of symbol tables; a gap says what that costs."""
    try:
        return Unwinder(maps, memory, files, Symbolizer(maps, memory, files))
    except Exception as error:  # noqa: BLE001 - stacks without lines are worth more than none
        what = "is not installed" if isinstance(error, ImportError) else f"failed: {error}"
        gaps.add("frames", f"drgn {what}; frames have no source lines, and inlined calls are not seen")
        return Unwinder(maps, memory, files)
