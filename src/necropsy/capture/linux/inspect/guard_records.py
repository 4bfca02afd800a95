"""The guard allocator's records (``csrc/guard/guard.h``): the block that an access missed, and where it came from.

A record holds, for the allocation and for the release of its block, the registers and the innermost bytes of the
thread's stack. The frames are found from these as for a living thread, as far as the piece of the stack goes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.unwind.cfi_step import CfiStep
from necropsy.capture.linux.unwind.symbol_tables import SymbolTables
from necropsy.capture.linux.unwind.symbolizer import Symbolizer
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack, StackMemory
from necropsy.formats.processors import AARCH64, X86_64
from necropsy.model import Address, Crash, Fault, Frame, Gap, GuardedBlock, Misuse

FILES = "_guard-"
"""What the library's name begins with, on every processor."""
SYMBOL = "necropsy_guard"
VERSION = 1
REACH = 4096
"""Bytes beyond a block within which an address is taken to be meant for it, without a pointer to the block."""
_MOST_FRAMES = 24
_LONGEST_S = 2.0
_NEVER_USED, _LIVE, _FREED = range(3)
_HEAD = struct.Struct("<16sIIIIII")
_CLASS = struct.Struct("<9Q")
_COMPLAINT = struct.Struct("<5Q")
_COUNTS = struct.Struct("<3QI")
_AFTER = _COMPLAINT.size + _COUNTS.size
_BLOCK = struct.Struct("<QQIIQQ")
_REGISTERS = {
    X86_64: ("rip", "rsp", "rbx", "rbp", "r12", "r13", "r14", "r15"),
    AARCH64: ("pc", "sp", *(f"x{number}" for number in range(19, 29)), "fp", "lr"),
}
"""``struct registers`` of ``csrc/guard/place_*.h``."""
_COMPLAINTS: dict[int, Misuse] = {1: "overwritten-after", 2: "overwritten-before", 3: "freed-twice", 4: "freed-inside"}


@dataclass(frozen=True)
class _Slots:
    """Slots of one size: ``[low, high)``, and where their records begin."""

    low: int
    size: int
    count: int
    records: int

    @property
    def high(self) -> int:
        return self.low + self.size * self.count


@dataclass(frozen=True)
class _Place:
    """Where a thread was: its registers and a piece of its stack."""

    registers: Mapping[str, int]
    pointer: int
    """The stack pointer, where ``stack`` begins."""
    thread: int
    stack: bytes


@dataclass(frozen=True)
class _Record:
    address: int
    size: int
    alignment: int
    state: int
    allocated: _Place
    freed: _Place

    def distance(self, address: int) -> int:
        """0 inside the block; otherwise how far the address is from its first or last byte."""
        return max(self.address - address, address - (self.address + self.size - 1), 0)


class Records:
    """The records in one process. Raises ValueError where they are of another version, or damaged."""

    def __init__(self, memory: Memory, at: int) -> None:
        self._memory, self._processor = memory, memory.processor
        self._place = struct.Struct(f"<{len(_REGISTERS[self._processor])}QQQ")
        head = memory.exactly(at, _HEAD.size)
        if head is None:
            raise ValueError("its state could not be read")
        magic, version, _size, self._record_size, classes, self._first, self._second = _HEAD.unpack(head)
        if not magic.startswith(b"necropsy guard") or version != VERSION:
            raise ValueError(f"its records are of version {version}, not {VERSION}")
        whole = _BLOCK.size + 2 * self._place.size + self._first + self._second
        rest = memory.exactly(at + _HEAD.size, classes * _CLASS.size + _AFTER) if classes < 64 else None
        if rest is None or self._record_size < whole:
            raise ValueError("its state is damaged")
        rows = [_CLASS.unpack_from(rest, index * _CLASS.size)[:4] for index in range(classes)]
        self._slots = [_Slots(*row) for row in rows if row[0]]
        self.complaint = _COMPLAINT.unpack_from(rest, classes * _CLASS.size)
        guarded, _live, _unplaced, armed = _COUNTS.unpack_from(rest, classes * _CLASS.size + _COMPLAINT.size)
        self.was_idle = bool(armed) and not guarded
        """Although armed, it was never asked for a block."""

    def at(self, record: int) -> _Record | None:
        """The record at this address of the process; None where no block was ever in its slot."""
        data = self._memory.exactly(record, self._record_size)
        if data is None:
            return None
        address, size, alignment, state, _pattern, _kept = _BLOCK.unpack_from(data)
        if state not in {_LIVE, _FREED}:
            return None
        second = _BLOCK.size + self._place.size + self._first
        return _Record(address, size, alignment, state, self._place_in(data, _BLOCK.size), self._place_in(data, second))

    def _place_in(self, data: bytes, at: int) -> _Place:
        *values, thread, size = self._place.unpack_from(data, at)
        stack = data[at + self._place.size : at + self._place.size + size]
        registers = dict(zip(_REGISTERS[self._processor], values, strict=True))
        return _Place(registers, registers[self._processor.pointer], thread, stack)

    def around(self, address: int) -> Iterator[_Record]:
        """The blocks in the slot that holds an address, and in those beside it."""
        for one in self._slots:
            if one.low <= address < one.high:
                slot = (address - one.low) // one.size
                for index in (slot, slot - 1, slot + 1):
                    found = self.at(one.records + index * self._record_size) if 0 <= index < one.count else None
                    if found is not None:
                        yield found


# ---------------------------------------------------------------- which block


def _by_pointer(records: Records, crash: Crash, address: int) -> tuple[_Record, str] | None:
    """The block that a register of the faulting instruction points into, and that register."""
    for operand in crash.instruction.operands if crash.instruction is not None else ():
        for name, value in operand.registers.items():
            for one in records.around(value):
                if one.address <= value < one.address + one.size and one.distance(address):
                    return one, name
    return None


def _nearest(records: Records, address: int) -> _Record | None:
    """A freed block that holds the address; else the nearest block in use, else the nearest freed one."""
    found = sorted(records.around(address), key=lambda one: (one.distance(address), one.state))
    if found and not found[0].distance(address):
        return found[0]
    return next((one for one in found if one.state == _LIVE), found[0] if found else None)


def _of_fault(records: Records, crash: Crash, fault: Fault) -> tuple[_Record, GuardedBlock] | None:
    if fault.signal != "SIGSEGV" or fault.address is None or fault.sender is not None:
        return None
    address = int(fault.address)
    by_pointer = _by_pointer(records, crash, address)
    record = by_pointer[0] if by_pointer is not None else _nearest(records, address)
    if record is None or (by_pointer is None and not any(records.around(address))):
        return None
    beyond, inside = record.distance(address), address - record.address
    pointer = by_pointer[1] if by_pointer is not None else None
    if record.state == _FREED:
        return record, _noun(record, "freed", offset=inside, pointer=pointer)
    if not beyond:
        return None  # in use, and may be used: another reason
    if inside > 0:
        return record, _noun(record, "after-end", distance=beyond - 1, offset=inside, pointer=pointer)
    operands = crash.instruction.operands if crash.instruction is not None else ()
    width = next((one.size for one in operands if one.address == address and one.size), 1)
    distance = max(beyond - width, 0)
    return record, _noun(record, "before-start", distance=distance, offset=inside, pointer=pointer)


def _of_complaint(records: Records, fault: Fault) -> tuple[_Record, GuardedBlock] | None:
    kind, _thread, at, address, count = records.complaint
    record = records.at(at) if fault.signal == "SIGABRT" and kind in _COMPLAINTS else None
    if record is None:
        return None
    misuse = _COMPLAINTS[kind]
    if misuse in {"freed-twice", "freed-inside"}:
        return record, _noun(record, misuse, offset=address - record.address if misuse == "freed-inside" else None)
    nearest = address if misuse == "overwritten-after" else address + count - 1
    distance = record.distance(nearest) - 1
    return record, _noun(record, misuse, distance=distance, offset=address - record.address, overwritten=count)


def _noun(
    record: _Record,
    misuse: Misuse,
    *,
    distance: int | None = None,
    offset: int | None = None,
    overwritten: int | None = None,
    pointer: str | None = None,
) -> GuardedBlock:
    return GuardedBlock(
        misuse=misuse,
        address=Address(record.address),
        size=record.size,
        alignment=record.alignment,
        distance=distance,
        offset=offset,
        overwritten=overwritten,
        pointer=pointer,
        allocated_by=record.allocated.thread,
        freed_by=record.freed.thread if misuse in {"freed", "freed-twice"} else None,
    )


# ---------------------------------------------------------------- where from


class _SnapshotMemory(Memory):
    """The process's memory, with a kept piece of a stack in place of what the stack holds by now."""

    def __init__(self, inner: Memory, maps: MemoryMap, place: _Place) -> None:
        self._inner, self._low, self._stack = inner, place.pointer, place.stack
        self.processor, self.page = inner.processor, inner.page
        now = maps.at(self._low)
        self._now = range(now.low, now.high) if now is not None else range(0)

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``; of the stack only what was kept."""
        if self._low <= address < self._low + len(self._stack):
            return self._stack[address - self._low :][:size]
        return b"" if address in self._now else self._inner.some(address, size)


class _SnapshotStep(CfiStep):
    """Walks the kept piece of a stack."""

    def of(self, place: _Place) -> _SnapshotStep:
        self._piece = StackMemory(place.stack, place.pointer)
        return self

    def read(self, sp: int, end: int) -> StackMemory:
        """As ``CfiUnwinder.read``: there is this one piece only."""
        return self._piece if self._piece.low <= sp and end <= self._piece.high else StackMemory(b"", 0)


class _Frames:
    """Finds the frames of kept places; names and lines as those of the threads."""

    def __init__(self, memory: Memory, maps: MemoryMap, files: MappedFiles) -> None:
        self._memory, self._maps, self._files = memory, maps, files
        self._names: Symbolizer | SymbolTables
        try:
            self._names = Symbolizer(maps, memory, files)
        except Exception:  # noqa: BLE001 - the threads' own reading has told why
            self._names = SymbolTables(maps, memory, files)
        self._deadline = time.monotonic() + _LONGEST_S

    def close(self) -> None:
        self._names.close()

    def of(self, place: _Place) -> tuple[Frame, ...] | None:
        """The functions that asked for it, without those of the guard; None where none is known."""
        memory = _SnapshotMemory(self._memory, self._maps, place)
        out = NativeStack()
        step = _SnapshotStep(self._maps, memory, self._files, self._at).of(place)
        step.walk(out, Cursor(place.registers, exact=True, listed=False), self._deadline)
        frames = [frame for frame in out.kept() if not (frame.module or "").startswith(FILES)][:_MOST_FRAMES]
        found = (msgspec.structs.replace(one, index=index, stack_bytes=None) for index, one in enumerate(frames))
        return tuple(found) or None

    def _at(self, pc: int, exact: bool) -> tuple[CodeLocation, ...]:
        return self._names.at(pc, exact)


def added(crash: Crash, memory: Memory, maps: MemoryMap, files: MappedFiles) -> tuple[Crash, Gap | None]:
    """The crash with the block that was misused; and why that is not known, where the guard was asked for."""
    file = files.named(FILES)
    if file is None:
        variables = (crash.environment.variables if crash.environment is not None else None) or {}
        if f"/{FILES}" not in variables.get("LD_PRELOAD", ""):
            return crash, None
        return crash, Gap(part="guard", why="the library was not loaded: the program is static, or set-uid")
    at = file.symbol(SYMBOL)
    if at is None or crash.fault is None:
        return crash, None
    try:
        records = Records(memory, at)
    except ValueError as error:
        return crash, Gap(part="guard", why=str(error))
    if records.was_idle:
        return crash, Gap(part="guard", why="no block was guarded: another allocator serves this program's memory")
    found = _of_fault(records, crash, crash.fault) or _of_complaint(records, crash.fault)
    if found is None:
        return crash, None
    record, block = found
    frames = _Frames(memory, maps, files)
    try:
        allocated = frames.of(record.allocated)
        freed = frames.of(record.freed) if block.freed_by is not None else None
    finally:
        frames.close()
    return msgspec.structs.replace(
        crash, guarded_block=msgspec.structs.replace(block, allocated=allocated, freed=freed)
    ), None
