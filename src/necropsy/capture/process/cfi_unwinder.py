"""Unwinds stacks by simple rows of unwind tables, in as few operations per frame as possible.

In any table format, most frames are of one kind: the return address and the saved registers are at known distances from
the stack pointer or the frame pointer. A place in the code always leads to its caller in the same way, so a deep
recursion is a few such rows, again and again. Frames of another kind are left to the system's own unwinder, which gets
the registers at that point.

The stack is read in windows of a fixed size. After a run of frames of one kind, a loop of few operations follows them
(``_by_stack_pointer``, ``_by_frame_pointer``); where they repeat, whole windows are compared with their expected
content (``recursion_skip``).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, Literal, TypeVar

from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack, StackMemory
from necropsy.capture.process.recursion_skip import Period, PeriodUnit, SavedRegisters, StackPeriod, times

WINDOW = 256 << 10
"""Bytes of a stack that are read at once."""
_AT_ONCE = 2048
"""Frames that are followed before they are handed on; then the clock is looked at."""
_MOST_STEPS = 20_000
"""Places of the code whose rows are kept."""

Row = TypeVar("Row")
"""What the tables of a format say of one place of the code."""

Followed = Literal["other", "no-code", "late"]
"""The last frame's row is of another kind, or its stack is not at hand; it returns to no code; time is up."""


@dataclass(frozen=True, eq=False, slots=True)
class CfiRowStep(Generic[Row]):
    """What to do at one program counter; ``leads``: its row is a simple one.

    Offsets in bytes from the stack pointer, or with ``by_frame_pointer`` from the frame pointer: of the return address,
    of each register that the frame saved, and of the caller's frame pointer among them (None: it is kept). ``above``:
    from the return address to the caller's stack pointer.
    """

    places: tuple[CodeLocation, ...]
    row: Row | None = None
    is_code: bool = True
    leads: bool = False
    by_frame_pointer: bool = False
    returns_at: int = 0
    frame_pointer: int | None = None
    saved: tuple[tuple[str, int], ...] = ()
    above: int = 8


@dataclass(slots=True)
class _Followed(Generic[Row]):
    """The state of a walk, with the frames that were found since the last ones were handed on."""

    step: CfiRowStep[Row]
    sp: int
    bp: int
    pcs: list[int]
    pointers: list[int]
    """The stack pointers after returning there; on x86-64 each address is in the word before."""
    last: dict[CfiRowStep[Row], int]
    """That pointer after the newest frame of each row, from which its saved registers are found."""


class CfiUnwinder(ABC, Generic[Row]):
    """Walks the stacks of one process."""

    keeps: tuple[str, ...]
    """The registers that calls keep."""

    def __init__(self, memory: Memory) -> None:
        """Nothing is read yet."""
        self.memory = memory
        processor = memory.processor
        self._named = processor.counter, processor.pointer, processor.frame
        self._mask = processor.link_mask
        self.window = StackMemory(b"", 0)
        self.by_stack_pointer = False
        """What was followed last was found by the stack pointer alone."""
        self._exact: dict[int, CfiRowStep[Row]] = {}
        self._returns: dict[int, CfiRowStep[Row]] = {}
        self._ahead: dict[int, int] = {}
        """Of frames found by the stack pointer: from one return address to the caller's, in words."""
        self._sizes: dict[int, int] = {}
        """Bytes of these frames: from the stack pointer to the caller's."""
        self._returns_at: dict[int, int] = {}
        """Of the same frames, where return addresses are signed: in words, from the stack pointer to that address."""
        self._savers: set[int] = set()
        """Those of them that saved the frame pointer."""
        self._framed: set[int] = set()
        """Program counters of the usual frames with a frame pointer: the return address lies above the saved one."""
        self._place: dict[int, CodeLocation] = {}
        """Where nothing is inlined."""

    @property
    def known(self) -> Container[int]:
        """The return addresses that were found so far."""
        return self._returns

    @abstractmethod
    def find(self, pc: int, *, exact: bool) -> CfiRowStep[Row]:
        """What the tables say of ``pc``; where not ``exact``, a call returns there. Asked once for code."""

    @abstractmethod
    def read(self, sp: int, end: int) -> StackMemory:
        """Up to ``WINDOW`` bytes of the stack on which ``sp`` is, so that those before ``end`` are among them."""

    def step(self, pc: int, *, exact: bool) -> CfiRowStep[Row]:
        """As ``find``, kept."""
        steps = self._exact if exact else self._returns
        found = steps.get(pc)
        if found is None:
            found = self.find(pc, exact=exact)
            if found.is_code:
                steps[pc] = found
                if not exact:
                    self._learn(pc, found)
        return found

    def _learn(self, pc: int, step: CfiRowStep[Row]) -> None:
        if len(step.places) == 1:
            self._place[pc] = step.places[0]
        if step.leads and step.by_frame_pointer and (step.returns_at, step.frame_pointer, step.above) == (8, 0, 8):
            self._framed.add(pc)
        elif step.leads and not step.by_frame_pointer and step.returns_at >= 0 and not step.returns_at & 7:
            self._sizes[pc] = step.returns_at + step.above
            self._ahead[pc] = self._sizes[pc] // 8
            self._returns_at[pc] = step.returns_at // 8
            if step.frame_pointer is not None:
                self._savers.add(pc)

    def follow(self, out: NativeStack, start: Cursor, deadline: float) -> tuple[Cursor, Followed]:
        """Append the frame of ``start`` if not ``listed``, and its callers; returns the last frame, and why it is."""
        pc, sp, bp = (start.registers.get(name, 0) for name in self._named)
        step = self.step(pc, exact=start.exact)
        if not start.listed:
            out.add(step.places, sp)
        now = _Followed(step, sp, bp, [], [], {})
        repetition = StackPeriod()
        ended: Followed | None = None
        while ended is None:
            first = now.step
            ended = self._some(now)
            pc = now.pcs[-1] if now.pcs else pc
            self._hand_on(out, now, first, repetition)
            if ended is None and time.monotonic() > deadline:
                ended = "late"
            elif ended is None and (unit := repetition.unit()) is not None:
                self._beyond(out, now, unit, deadline)
                repetition.clear()
        self.by_stack_pointer = not any(step.by_frame_pointer for step in now.last)
        if not now.last:
            return Cursor(start.registers, exact=start.exact), ended
        at = dict(zip(self._named, (pc, now.sp, now.bp), strict=True))
        return Cursor({**self._kept(start.registers, now.last), **at}), ended

    def _some(self, now: _Followed[Row]) -> Followed | None:
        """Some thousand frames more, one by one where not all are of one kind; None where it may go on."""
        pcs, pointers, returns, mask = now.pcs, now.pointers, self._returns, self._mask
        words, low, high = self.window.words, self.window.low, self.window.high
        step, sp, bp = now.step, now.sp, now.bp
        ended: Followed | None = "other"
        while step.leads:
            base = bp if step.by_frame_pointer else sp
            where = base + step.returns_at
            if not low <= where < high or where < sp or where & 7:
                self.window = self.read(sp, where + 8) if where >= sp and not where & 7 else StackMemory(b"", 0)
                words, low, high = self.window.words, self.window.low, self.window.high
                if not low <= where < high:
                    break
            caller = words[where - low >> 3]
            if mask is not None:
                caller &= mask
            following = returns.get(caller)
            known = following is not None
            if following is None:
                following = self.step(caller, exact=False)
                if not following.is_code:
                    ended = "no-code"
                    break
            if step.frame_pointer is not None:
                saved = self._word(base + step.frame_pointer)
                if saved is None:
                    break
                bp = saved
            sp, step = where + step.above, following
            pcs.append(caller)
            pointers.append(sp)
            if not len(pcs) & 15:
                now.step, now.sp, now.bp = step, sp, bp
                self._fast(now)
                step, sp, bp = now.step, now.sp, now.bp
            if not known or len(pcs) >= _AT_ONCE:
                ended = None  # it may have taken long: look at the clock
                break
        now.step, now.sp, now.bp = step, sp, bp
        return ended

    def _word(self, address: int) -> int | None:
        window = self.window
        if window.low <= address < window.high and not address & 7:
            return window.words[address - window.low >> 3]
        return self.memory.u64(address)

    def _fast(self, now: _Followed[Row]) -> None:
        """More frames of the window, where the last ones were all of one kind."""
        recent = now.pcs[-16:]
        if all(map(self._ahead.__contains__, recent)):
            self._by_stack_pointer(now)
        elif all(map(self._framed.__contains__, recent)):
            self._by_frame_pointer(now)

    def _by_stack_pointer(self, now: _Followed[Row]) -> None:
        """Follow frames that are at known distances from each other; ``bp`` is looked up when that is over."""
        before, sp = now.pcs[-1], now.sp
        found = self._ahead_of(before, sp) if self._mask is None else self._signed_ahead_of(before, sp, self._mask)
        if not found:
            return
        left_by = [before, *found[:-1]]
        pointers = list(accumulate(map(self._sizes.__getitem__, left_by), initial=sp))[1:]
        if not self._savers.isdisjoint(left_by):
            index = next(at for at in range(len(left_by) - 1, -1, -1) if left_by[at] in self._savers)
            saver = self._returns[left_by[index]]
            saved = self._word(pointers[index] - saver.above - saver.returns_at + (saver.frame_pointer or 0))
            if saved is None:
                return
            now.bp = saved
        now.pcs += found
        now.pointers += pointers
        now.sp, now.step = pointers[-1], self._returns[found[-1]]

    def _ahead_of(self, before: int, sp: int) -> list[int]:
        """The return addresses of these frames, from the one of ``before`` on, as far as the window goes."""
        words, ahead = self.window.words, self._ahead
        at = (sp - 8 - self.window.low >> 3) + ahead[before]
        found: list[int] = []
        add = found.append
        try:
            while True:
                pc = words[at]
                at += ahead[pc]
                add(pc)
        except (KeyError, IndexError):
            pass  # another kind of frame, or the end of the window
        return found

    def _signed_ahead_of(self, pc: int, sp: int, mask: int) -> list[int]:
        """The same where each return address is signed, and anywhere in its frame."""
        words, ahead, returns_at = self.window.words, self._ahead, self._returns_at
        at = sp - self.window.low >> 3
        found: list[int] = []
        add = found.append
        try:
            while True:
                following = words[at + returns_at[pc]] & mask
                at += ahead[pc]
                pc = following
                ahead[pc]
                add(pc)
        except (KeyError, IndexError):
            pass
        return found

    def _by_frame_pointer(self, now: _Followed[Row]) -> None:
        """Follow frames of the usual kind from one frame pointer to the next."""
        words, low, framed, mask = self.window.words, self.window.low, self._framed, self._mask
        pc, sp, bp = now.pcs[-1], now.sp, now.bp
        found: list[int] = []
        pointers: list[int] = []
        try:
            while pc in framed and bp >= sp and not bp & 7:
                at = bp - low >> 3
                pc, following = words[at + 1], words[at]
                if mask is not None:
                    pc &= mask
                if pc not in self._returns:
                    break
                sp = bp + 16
                bp = following
                found.append(pc)
                pointers.append(sp)
        except IndexError:
            pass  # the end of the window
        if found:
            now.pcs += found
            now.pointers += pointers
            now.bp, now.sp, now.step = bp, sp, self._returns[found[-1]]

    def _hand_on(self, out: NativeStack, now: _Followed[Row], first: CfiRowStep[Row], repetition: StackPeriod) -> None:
        """Give the frames that were found to ``out``; ``first`` is what led to the first of them."""
        pcs, pointers, returns = now.pcs, now.pointers, self._returns
        if not pcs:
            return
        now.last[first] = pointers[0]
        newest = dict(zip(pcs, pointers[1:], strict=False))  # nothing led on from the last one yet
        now.last.update((returns[pc], pointer) for pc, pointer in newest.items())
        try:
            out.extend(list(map(self._place.__getitem__, pcs)), pointers)
        except KeyError:
            for pc, pointer in zip(pcs, pointers, strict=True):
                out.add(returns[pc].places, pointer)
        repetition.add(pcs, pointers)
        now.pcs, now.pointers = [], []
        if len(returns) >= _MOST_STEPS:
            for known in (returns, self._ahead, self._sizes, self._returns_at, self._place):
                known.clear()
            self._framed.clear()
            self._savers.clear()

    def _beyond(self, out: NativeStack, now: _Followed[Row], unit: PeriodUnit, deadline: float) -> None:
        """Go on to the end of a repetition, where what counts the frames can do so too."""
        steps = [self.step(pc, exact=False) for pc in unit.pcs]
        count = sum(len(step.places) for step in steps)
        start = now.sp
        # The frame that is left at an offset is the one that returned there before.
        left = [
            (offset - step.above, step) for offset, step in zip(unit.offsets, [steps[-1], *steps[:-1]], strict=True)
        ]
        savers = [
            (returns_at - step.returns_at + step.frame_pointer, step)
            for returns_at, step in left
            if step.frame_pointer is not None
        ]
        saved: list[SavedRegisters] = []
        for at, _ in savers if any(step.by_frame_pointer for step in steps) else ():
            last, before = self._word(start + at - unit.size), self._word(start + at - 2 * unit.size)
            if last is None or before is None or last - before not in {0, unit.size}:
                return
            saved.append(SavedRegisters(at, last, last - before))
        if not out.may_repeat(count):
            return
        returns = [(returns_at, pc) for (returns_at, _), pc in zip(left, unit.pcs, strict=True)]
        found = times(self.memory, start, Period(unit.size, returns, saved, self._mask), deadline)
        beyond = found * unit.size
        bp = self._word(start + savers[-1][0] + beyond - unit.size) if found and savers else now.bp
        if not found or bp is None:
            return
        out.repeat(count, found, unit.size)
        now.sp, now.bp = now.sp + beyond, bp
        for step in set(steps):
            now.last[step] += beyond

    def _kept(self, registers: Mapping[str, int], last: Mapping[CfiRowStep[Row], int]) -> dict[str, int]:
        """Callee-saved registers at the last frame: saved by the newest frame that saved it, else as at first."""
        found: dict[str, tuple[int, int]] = {}
        for step, pointer in last.items():
            base = pointer - step.above - step.returns_at
            for name, offset in step.saved:
                if pointer > found.get(name, (0, 0))[0]:
                    found[name] = pointer, base + offset
        values = {name: registers[name] for name in self.keeps if name in registers}
        for name, (_, at) in found.items():
            value = self.memory.u64(at)
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        return values
