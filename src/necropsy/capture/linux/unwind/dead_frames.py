"""Which functions filled a stack, from the return addresses that calls have left below the stack pointer.

They stay until something as deep overwrites them. From the lowest touched page up, each word that is a return address
(in code, right behind a call) may belong to a frame: unwind tables lead from there to its callers, and a chain of
several that all fit is believed. Where the chain breaks because a later call has overwritten a link, the search goes on
above it; the last frame below such a break has the size that its own unwind table says. A large array leaves hardly
more than that: one frame that takes most of the stack is believed if a call from it reached the lowest page. Calls that
break every chain at the same place in each level of a recursion leave parts that repeat; these are multiplied, and
called partial, as they may have been left one after the other on the way back.

On AArch64 a return address does not show where its caller's frame begins, so only frames of a thread that was copied in
the middle of its calls are known there.

Works on a copy, so that the thread is held no longer than copying takes. Code and tables come from the files.
"""

from __future__ import annotations

import contextlib
import struct
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from necropsy.capture.linux.inspect import modules
from necropsy.capture.linux.inspect.stack_marks import StackCopy
from necropsy.capture.linux.supervise.ptrace import HERE
from necropsy.capture.linux.unwind.cfi_step import CfiStep
from necropsy.capture.linux.unwind.copied_memory import CopiedMemory
from necropsy.capture.linux.unwind.frame_scan import FrameScan
from necropsy.capture.linux.unwind.function_table import FrameTally, Function, rows_seen, static_size, with_static_sizes
from necropsy.capture.linux.unwind.symbol_tables import SymbolTables
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.native_stack import Cursor, call_target
from necropsy.formats.eh_frame import CfiRow
from necropsy.model import StackFunction

_STARTS = 24
"""Return addresses at which a chain may begin, in a row."""
_FEWEST = 3
"""Frames of a chain that is believed though it does not reach the thread's first function."""
_WHOLE = 0.9
"""The share of a function's bytes that has to be in the chain from the lowest page; else its row is called partial."""
_MOST_PARTS = 4096
_REPEATS = 8
"""How often a return address has to be there at equal distances, where a chain of its calls is not to be found."""
_BUDGET_S = 3.0
_BELOW = 8192
"""Bytes that a function's own calls into the C library may take below its frame."""
_LEFT_BEHIND = 32 << 10
"""glibc keeps 16 KiB and the frames of its own of an ended thread's stack."""
_FARTHEST = 64 << 10
"""Bytes from one call of a recursion to the next, where a chain of its calls is not to be found."""


@dataclass(frozen=True)
class _Chain:
    """Calls that fit: from the return address at ``slot`` up."""

    slot: int
    tally: FrameTally
    is_whole: bool
    """It reaches the thread's first function."""
    is_multiplied: bool = False
    """Its frames were counted as often as they are there at equal distances, between which other calls have written."""
    doubtful: tuple[int, int] | None = None
    """A large frame of it whose end only a frame pointer shows, which is wrong where an exception was caught."""

    def shows_more_than(self, other: _Chain) -> bool:
        """It shows what was in a frame of the other one that is doubtful."""
        low, high = other.doubtful or (0, 0)
        return self.doubtful is None and min(self.tally.end, high) - max(self.slot, low) > (high - low) / 2


def functions(copy: StackCopy, live: StackCopy | None = None) -> tuple[StackFunction, ...] | None:
    """The functions whose frames filled the stack, those with the most bytes first; None where none is to be found.

    ``live``: the same stack while it was in use, of which the unwinder knows more, if it was as deep then.
    """
    if live is not None and live.registers is not None:
        share = len(live.data) / len(copy.data)
        seen = _of(live, lambda search: search.seen(is_all=share >= _WHOLE))
        if seen is not None and share >= _WHOLE:
            return seen
        recovered = _recovered(copy)
        return recovered if seen is None or _bytes(recovered) > _bytes(seen) else seen
    return _recovered(copy)


def _recovered(copy: StackCopy) -> tuple[StackFunction, ...] | None:
    return _of(copy, _Search.table) if HERE.link is None else None


def _of(
    copy: StackCopy, read: Callable[[_Search], tuple[StackFunction, ...] | None]
) -> tuple[StackFunction, ...] | None:
    memory = CopiedMemory(copy)
    try:
        return read(_Search(copy, memory))
    finally:
        memory.close()


def _bytes(rows: tuple[StackFunction, ...] | None) -> int:
    return sum(row.bytes for row in rows or ())


class _Search:
    def __init__(self, copy: StackCopy, memory: CopiedMemory) -> None:
        self._copy = copy
        self._memory = memory
        self._files = modules.find(copy.pid, copy.maps, memory)
        self._names = SymbolTables(copy.maps, memory, self._files)
        self._scan = FrameScan(copy.maps, memory)
        self._places: dict[tuple[int, bool], CodeLocation] = {}
        self._asked: dict[CodeLocation, tuple[int, bool]] = {}
        self._tables = CfiStep(copy.maps, memory, self._files, self._place)
        self._words = array("Q", copy.data[: len(copy.data) & ~7])
        self._code = [(one.low, one.high) for one in copy.maps if one.executable and one.is_file]
        self._is_return: dict[int, bool] = {}
        self._until = time.monotonic() + _BUDGET_S
        self._high = copy.low + len(self._words) * 8

    def _place(self, pc: int, exact: bool) -> tuple[CodeLocation, ...]:
        """What stands at a program counter, without a name: most chains that are tried are not believed."""
        asked = pc, exact
        found = self._places.get(asked)
        if found is None:
            executable = self._copy.maps.executable_at(pc if exact or pc == 0 else pc - 1)
            found = self._places[asked] = CodeLocation(pc, None, None, None, executable=executable)
            self._asked[found] = asked
        return (found,)

    def _named(self, place: CodeLocation) -> CodeLocation:
        return self._names.at(*self._asked[place])[-1]

    def table(self) -> tuple[StackFunction, ...] | None:
        self._tables.crosses_signals = False  # the registers that the kernel saved there may be overwritten
        times: Counter[Function] = Counter()
        octets: Counter[Function] = Counter()
        sure: Counter[Function] = Counter()
        places: set[CodeLocation] = set()
        at, deepest = self._copy.low, None
        for _ in range(_MOST_PARTS):
            chain = self._chain(at) if at < self._high and time.monotonic() < self._until else None
            if chain is None:
                break
            callee = self._callee(chain.slot)
            if callee is not None and deepest is None:
                deepest = callee
                for counted, size in ((times, 1), (octets, chain.slot + 8 - at), (sure, chain.slot + 8 - at)):
                    counted[callee] += size
            chain.tally.name(self._named)
            places.update(chain.tally.times)
            for place, count in chain.tally.times.items():
                function = place.function, place.module
                times[function] += count
                octets[function] += chain.tally.bytes[place]
                # Where the chain that reached the lowest page has gaps, what begins a little above is of it too.
                is_sure = callee is not None and not chain.is_multiplied
                sure[function] += chain.tally.bytes[place] if is_sure else 0
            if chain.is_whole:
                break
            at = chain.tally.end
        rows = tuple(
            StackFunction(
                function=function[0],
                module=function[1],
                frame_bytes=round(size / times[function]),
                times=times[function],
                bytes=size,
                how="recovered",
                partial=sure[function] < _WHOLE * size,
            )
            for function, size in octets.most_common()
            if size > 0
        )
        return with_static_sizes(rows, places, self._files) or None

    def seen(self, *, is_all: bool) -> tuple[StackFunction, ...] | None:
        """The same of a thread that was stopped; ``is_all``: this was its peak."""
        registers = self._copy.registers
        if registers is None:
            return None
        tally = FrameTally()
        with contextlib.suppress(struct.error, OSError):
            at, ended = self._tables.walk(tally, Cursor(registers.values, exact=True, listed=False), self._until)
            if ended != "bottom":
                self._finish(tally, at)
            if ended == "bottom" or tally.end - self._copy.low >= _WHOLE * len(self._copy.data):
                tally.name(self._named)
                rows = rows_seen(tally, self._copy.python, is_all=is_all)
                return with_static_sizes(rows, tally.times, self._files) or None
        return None

    def _callee(self, slot: int) -> Function | None:
        """The function that a return address was pushed for, where its frame may reach the lowest page.

        Below that address are its own frame, and what the functions that it has called wrote last.
        """
        value = self._word(slot) or 0
        below = slot + 8 - self._copy.low
        target = call_target(self._memory, value)
        frame = (static_size(target, self._files) if target is not None else None) or 0
        if below > _BELOW + frame:
            return None
        place = self._names.at(target, True)[-1] if target is not None else None
        return (place.function, place.module) if place is not None else (None, None)

    def _chain(self, low: int) -> _Chain | None:
        """The chain that begins next above ``low``."""
        best: _Chain | None = None
        tried = 0
        for slot in self._return_slots(low):
            if best is not None and (best.doubtful is None or slot >= best.tally.end):
                break
            if best is not None and best.doubtful is not None and slot < best.doubtful[0]:
                continue  # a part of that one
            if tried >= _STARTS or time.monotonic() > self._until:
                break
            tried += 1
            found = self._walk(slot)
            if found is not None and (best is None or found.shows_more_than(best)):
                best = found
        return best

    def _walk(self, slot: int) -> _Chain | None:
        value = self._word(slot)
        saved = self._word(slot - 8)
        is_frame = saved is not None and slot < saved < self._copy.low + len(self._copy.data)
        start = Cursor({"rip": value or 0, "rsp": slot + 8, "rbp": saved or 0 if is_frame else 0}, listed=False)
        tally = FrameTally()
        with contextlib.suppress(struct.error, OSError):
            at, ended = self._tables.walk(tally, start, self._until)
            if all(self._returns(place.pc) or self._tables.ends_a_handler(place.pc) for place in tally.times):
                is_believed = ended == "bottom" or sum(tally.times.values()) >= _FEWEST
                if ended != "bottom":
                    self._finish(tally, at)
                is_multiplied = False
                is_believed = is_believed or (slot - self._copy.low <= _BELOW and self._is_most(tally.end - slot))
                if ended != "bottom" and not self._is_most(tally.end - slot):
                    times, stride = self._repeats(slot, tally)
                    if times >= _REPEATS and slot < tally.end <= slot + stride + 8:
                        tally.multiply(times, slot + 8 + times * stride)
                        is_believed = is_multiplied = True
                if is_believed:
                    return _Chain(slot, tally, ended == "bottom", is_multiplied, self._doubtful(tally))
        return None

    def _repeats(self, slot: int, tally: FrameTally) -> tuple[int, int]:
        """How often these frames are there at equal distances, and the distance; a recursion leaves them so."""
        first = (slot - self._copy.low) // 8
        words = self._words
        try:
            stride = words.index(words[first], first + 1, first + _FARTHEST // 8) - first
        except ValueError:
            return 0, 0
        found = [(pointer - self._copy.low) // 8 - 1 for pointer in tally.pointers]
        found = [at for at in found if at < first + stride]
        times = 1
        while found[-1] + times * stride < len(words) and all(words[at + times * stride] == words[at] for at in found):
            times += 1
        return times, stride * 8

    def _finish(self, tally: FrameTally, at: Cursor) -> None:
        """Count the last frame, whose return address was overwritten, with the size that its table says."""
        sp, bp, pc = (at.registers.get(name, 0) for name in (HERE.pointer, HERE.frame, HERE.counter))
        row = self._row(pc)
        end = 0
        if row is not None and row.cfa_register == HERE.stack_column:
            end = sp + row.cfa_offset
        elif row is not None and row.cfa_register == HERE.frame_column and sp <= bp < self._high:
            end = bp + row.cfa_offset
        elif row is not None and row.cfa_register == HERE.frame_column:
            # Its frame grows as it runs (alloca); all the space up to what was called later is its own.
            following = next(self._return_slots(sp), self._high)
            end = following if self._is_most(following - sp) else 0
        if sp < end <= self._high:
            tally.close(end)

    def _doubtful(self, tally: FrameTally) -> tuple[int, int] | None:
        for place, begin, end in tally.large:
            row = self._row(place.pc)
            if row is not None and row.cfa_register == HERE.frame_column:
                return begin, end
        return None

    def _row(self, returns_to: int) -> CfiRow | None:
        file = self._files.at(returns_to - 1)
        return file.row(returns_to - 1) if file is not None else None

    def _is_most(self, size: int) -> bool:
        return size >= len(self._copy.data) / 2

    def _return_slots(self, low: int) -> Iterator[int]:
        first, last = min(self._code)[0] if self._code else 0, max(self._code)[1] if self._code else 0
        base = self._copy.low
        # What a former thread has left at the top of a stack is not of this one.
        end = len(self._words) - (_LEFT_BEHIND // 8 if self._copy.reused else 0)
        for index in range(max(low - base, 0) // 8, end):
            value = self._words[index]
            if first < value <= last and self._returns(value):
                yield base + index * 8

    def _returns(self, value: int) -> bool:
        known = self._is_return.get(value)
        if known is None:
            known = self._is_return[value] = self._scan.is_return_address(value)
        return known

    def _word(self, address: int) -> int | None:
        index = address - self._copy.low
        return self._words[index // 8] if 0 <= index < len(self._words) * 8 else None
