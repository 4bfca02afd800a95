"""Unwind tables of an ELF file: which function holds an address, and where its caller's registers are saved.

Layouts from the Linux Standard Base 5.0, 10.6 (``.eh_frame``, ``.eh_frame_hdr``), DWARF 5, 6.4 (call frame
instructions); register numbers are the processor's (``formats/processors.py``). A ``CfiRow`` holds the simple cases,
``CallRules`` the rare ones (expressions, a signal's frame). Files are untrusted: each read is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from necropsy.errors import InputError
from necropsy.formats.call_rules import CallRules, Kind, Rule, number, signed_number
from necropsy.formats.elf import PT_GNU_EH_FRAME, ElfFile, Segment
from necropsy.formats.processors import BY_MACHINE, X86_64, Processor

_LONGEST_ENTRY = 1 << 14
"""Bytes; the longest of the 674,459 in libtensorflow_cc has 6,080."""
_DEEPEST = 64
"""States that are remembered at once; compilers need one or two."""
_FOUR_BYTES = {0x1B, 0x3B, 0x03, 0x0B}
"""Encodings of code addresses that take four bytes: what every linker writes."""
_POINTER_SIZES = {0x00: 8, 0x03: 4, 0x04: 8, 0x0B: 4, 0x0C: 8}
_USUAL_FORM = bytes([1, 0x1B, 0x03, 0x3B])
"""What every linker writes: version 1, .eh_frame pointer pcrel|sdata4, count udata4, table datarel|sdata4."""
_SIZE = struct.Struct("<I")
_UNDEFINED, _SAME = Rule("undefined"), Rule("same")
_Rule = int | Rule
"""Where a register is saved: an offset from the CFA in bytes, or a more complicated rule."""


@dataclass(frozen=True, eq=False)
class CfiRow:
    """Rule for the caller at one address: its stack pointer is the CFA, ``cfa_register + cfa_offset``.

    ``saved``: a register's DWARF number, and the offset from the CFA at which it is saved, the return address included,
    except where the frame is ``outermost``, that is, was not called.
    """

    cfa_register: int
    cfa_offset: int
    saved: tuple[tuple[int, int], ...]
    outermost: bool = False


@dataclass(frozen=True)
class _Common:
    """Fields of a CIE, which all its functions share."""

    code_align: int
    data_align: int
    is_signal: bool
    instructions: bytes


@dataclass(frozen=True)
class _Entry:
    """One FDE: its place in the file, and the function that it describes."""

    at: int
    start: int
    size: int


class UnwindTables:
    """The tables of one file; addresses are the file's own."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._header = next((one for one in elf.segments if one.type == PT_GNU_EH_FRAME), None)
        self._processor = BY_MACHINE.get(elf.machine, X86_64)
        self._commons: dict[int, _Common | None] = {}

    def covers(self, address: int) -> bool | None:
        """Whether the tables say something about ``address``; None where the file has none that we can read."""
        try:
            return self._find(address) is not None
        except _ERRORS:
            return None

    def function(self, address: int) -> tuple[int, int] | None:
        """First address and size in bytes of the function that holds ``address``, or of the part of it."""
        try:
            entry = self._find(address)
        except _ERRORS:
            return None
        return (entry.start, entry.size) if entry else None

    def programs(self) -> Iterator[tuple[int, int, bytes, bytes]]:
        """Per function: first address, size, initial and own instructions; none for tables of another form."""
        header = self._header
        try:
            if header is None or self._elf.bytes_at(header.offset, 4) != _USUAL_FORM:
                return
            (count,) = struct.unpack("<I", self._elf.bytes_at(header.offset + 8, 4))
            count = min(count, max(header.file_size - 12, 0) // 8)
            table = self._elf.bytes_at(header.offset + 12, count * 8)
        except _ERRORS:
            return
        for start, entry in struct.iter_unpack("<ii", table):
            try:
                at = self._elf.offset_of(header.address + entry)
                found = self._program(at) if at is not None else None
            except _ERRORS:
                continue
            if found is not None:
                yield header.address + start, *found

    def program_at(self, address: int) -> tuple[int, int, bytes, bytes] | None:
        """The same of the function that holds ``address``."""
        try:
            entry = self._find(address)
            found = self._program(entry.at) if entry is not None else None
        except _ERRORS:
            return None
        return (entry.start, *found) if entry is not None and found is not None else None

    def _program(self, at: int) -> tuple[int, bytes, bytes] | None:
        length, back = struct.unpack("<II", self._elf.bytes_at(at, 8))
        common = self._common(at + 4 - back)
        if common is None or common.is_signal or not 12 <= length <= _LONGEST_ENTRY:
            return None
        data = self._elf.bytes_at(at + 12, length - 8)
        skipped = data[4]  # augmentation data: at most one pointer, so its length is one byte
        return (_SIZE.unpack_from(data)[0], common.instructions, data[5 + skipped :]) if skipped < 0x80 else None

    def row(self, address: int) -> CfiRow | None:
        """How to unwind from ``address``; None where the tables do not say so, or not in so simple a way."""
        try:
            entry = self._find(address)
            return self._row(entry, address) if entry else None
        except _ERRORS:
            return None

    def rules(self, address: int) -> CallRules | None:
        """The same in full; None where the tables do not say it, or nobody called what is there."""
        try:
            entry = self._find(address)
            machine = self._run(entry, address) if entry else None
        except _ERRORS:
            return None
        return machine.call_rules() if machine is not None else None

    # ------------------------------------------------------------ finding

    def _find(self, address: int) -> _Entry | None:
        """The entry that covers ``address``, or None. Raises InputError where that cannot be known."""
        header = self._header
        if header is None:
            raise InputError("no unwind tables")
        if self._elf.bytes_at(header.offset, 4) != _USUAL_FORM:
            raise InputError("unwind tables of another form")
        index = self._last_before(header, address)
        if index < 0:
            return None
        start, entry = struct.unpack("<ii", self._elf.bytes_at(header.offset + 12 + index * 8, 8))
        at = self._elf.offset_of(header.address + entry)
        if at is None:
            raise InputError("an entry of the unwind tables is not in the file")
        length, back = struct.unpack("<II", self._elf.bytes_at(at, 8))
        common = self._common(at + 4 - back)
        if length in {0, 0xFFFFFFFF} or common is None:
            raise InputError("an entry of another form")
        (size,) = struct.unpack("<I", self._elf.bytes_at(at + 12, 4))
        begin = header.address + start
        return _Entry(at, begin, size) if address < begin + size else None

    def _last_before(self, header: Segment, address: int) -> int:
        """Index of the last entry of the search table that begins at or before ``address``; -1 for none."""
        (count,) = struct.unpack("<I", self._elf.bytes_at(header.offset + 8, 4))
        low, high = 0, min(count, max(header.file_size - 12, 0) // 8)
        wanted = address - header.address
        while low < high:
            middle = (low + high) // 2
            (start,) = struct.unpack("<i", self._elf.bytes_at(header.offset + 12 + middle * 8, 4))
            if start <= wanted:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _common(self, at: int) -> _Common | None:
        if at not in self._commons:
            try:
                self._commons[at] = self._read_common(at)
            except _ERRORS:
                self._commons[at] = None
        return self._commons[at]

    def _read_common(self, at: int) -> _Common | None:
        length, kind = struct.unpack("<II", self._elf.bytes_at(at, 8))
        if kind or not 5 <= length <= _LONGEST_ENTRY:
            return None
        data = self._elf.bytes_at(at + 8, length - 4)
        version, end = data[0], data.index(b"\0", 1)
        augmentation = data[1:end]
        if version not in {1, 3} or not augmentation.startswith(b"z"):
            return None
        code, place = number(data, end + 1)
        align, place = signed_number(data, place)
        back, place = (data[place], place + 1) if version == 1 else number(data, place)
        size, place = number(data, place)
        form, after = None, place + size
        for letter in augmentation[1:]:
            if letter == ord("R"):
                form, place = data[place], place + 1
            elif letter == ord("P"):
                place += 1 + _POINTER_SIZES[data[place] & 0x0F]
            elif letter == ord("L"):
                place += 1
            elif letter not in b"SB":
                return None
        if form not in _FOUR_BYTES or back != self._processor.return_column:
            return None
        return _Common(code, align, b"S" in augmentation, data[after:])

    # ------------------------------------------------------------ the program of one function

    def _row(self, entry: _Entry, address: int) -> CfiRow | None:
        machine = self._run(entry, address)
        return None if machine is None or machine.is_signal else machine.row()

    def _run(self, entry: _Entry, address: int) -> _Machine | None:
        length, back = struct.unpack("<II", self._elf.bytes_at(entry.at, 8))
        common = self._common(entry.at + 4 - back)
        if common is None or not 12 <= length <= _LONGEST_ENTRY:
            return None
        data = self._elf.bytes_at(entry.at + 16, length - 12)
        skipped, place = number(data, 0)
        machine = _Machine(common, self._processor)
        machine.run(common.instructions, None)
        machine.first = dict(machine.rules)
        machine.run(data[place + skipped :], address - entry.start)
        return machine


def deepest(before: bytes, program: bytes) -> tuple[int, bool] | None:
    """How far below its CFA a function moves the stack pointer, in bytes; None where the program is not understood.

    Second: whether another register defines the CFA from some point on, so that the program does not say all. Compilers
    count code in bytes and data in words downwards.
    """
    machine = _Machine(_Common(1, -8, is_signal=False, instructions=before))
    try:
        machine.run(before, None)
        machine.first = dict(machine.rules)
        machine.run(program, None)
    except _ERRORS:
        return None
    return machine.deepest, machine.leaves_rsp


class _Machine:
    """Runs call frame instructions up to an address; raises one of ``_ERRORS`` at an unknown one."""

    def __init__(self, common: _Common, processor: Processor = X86_64) -> None:
        self._processor = processor
        self._code, self._data = common.code_align, common.data_align
        self.is_signal = common.is_signal
        self.cfa: tuple[int, int] | bytes | None = None
        self.rules: dict[int, _Rule] = {}
        self.first: dict[int, _Rule] = {}
        self._remembered: list[tuple[tuple[int, int] | bytes | None, dict[int, _Rule]]] = []
        self.deepest, self.leaves_rsp = 0, False

    def run(self, code: bytes, until: int | None) -> None:
        """Run all of ``code``, or up to the row for the instruction ``until`` bytes into the function."""
        at = location = 0
        while at < len(code):
            byte = code[at]
            at += 1
            kind, low = byte & 0xC0, byte & 0x3F
            if kind == 0x40 or byte in _ADVANCES:
                delta, at = (low, at) if kind else _ADVANCES[byte](code, at)
                location += delta * self._code
                if until is not None and location > until:
                    return
            elif kind == 0x80:  # DW_CFA_offset
                offset, at = number(code, at)
                self.rules[low] = offset * self._data
            elif kind == 0xC0:  # DW_CFA_restore
                self._restore(low)
            else:
                at = self._extended(byte, code, at)

    def _restore(self, register: int) -> None:
        if register in self.first:
            self.rules[register] = self.first[register]
        else:
            self.rules.pop(register, None)

    def _extended(self, byte: int, code: bytes, at: int) -> int:
        # nop; how a return address is signed on AArch64, which does not matter to who only takes the signature off
        if byte in {0x00, 0x2C, 0x2D}:
            return at
        if byte == 0x0A:  # remember_state
            if len(self._remembered) >= _DEEPEST:
                raise InputError("too many states to remember")
            self._remembered.append((self.cfa, dict(self.rules)))
            return at
        if byte == 0x0B:  # restore_state
            self.cfa, self.rules = self._remembered.pop()
            return at
        register, at = number(code, at)
        if byte in {0x05, 0x11, 0x2F}:  # offset_extended, its signed form, GNU_negative_offset_extended
            offset, at = signed_number(code, at) if byte == 0x11 else number(code, at)
            self.rules[register] = offset * self._data * (-1 if byte == 0x2F else 1)
        elif byte == 0x06:  # restore_extended
            self._restore(register)
        elif byte in {0x07, 0x08}:  # undefined, same_value
            self.rules[register] = _UNDEFINED if byte == 0x07 else _SAME
        elif byte == 0x09:  # register
            other, at = number(code, at)
            self.rules[register] = Rule("register", other)
        elif byte == 0x0C:  # def_cfa
            offset, at = number(code, at)
            self._define(register, offset)
        elif byte == 0x0D:  # def_cfa_register
            if isinstance(self.cfa, tuple):
                self._define(register, self.cfa[1])
        elif byte == 0x0E:  # def_cfa_offset
            if isinstance(self.cfa, tuple):
                self._define(self.cfa[0], register)
        elif byte == 0x0F:  # def_cfa_expression: the number was its length
            self.cfa, self.leaves_rsp, at = code[at : at + register], True, at + register
        elif byte in {0x10, 0x16}:  # expression, val_expression
            size, at = number(code, at)
            kind: Kind = "expression" if byte == 0x10 else "value-expression"
            self.rules[register], at = Rule(kind, code=code[at : at + size]), at + size
        elif byte == 0x12:  # def_cfa_sf
            offset, at = signed_number(code, at)
            self._define(register, offset * self._data)
        elif byte in {0x14, 0x15}:  # val_offset, its signed form
            offset, at = signed_number(code, at) if byte == 0x15 else number(code, at)
            self.rules[register] = Rule("value-offset", offset * self._data)
        elif byte != 0x2E:  # GNU_args_size says nothing to us
            raise InputError(f"call frame instruction {byte:#x}")
        return at

    def _define(self, register: int, offset: int) -> None:
        self.cfa = register, offset
        if register == self._processor.stack_column:
            self.deepest = max(self.deepest, offset)
        else:
            self.leaves_rsp = True

    def row(self) -> CfiRow | None:
        """The row that was reached; None where it is not simple."""
        if not isinstance(self.cfa, tuple):
            return None
        processor = self._processor
        if self.rules.get(processor.return_column) == _UNDEFINED:
            return CfiRow(*self.cfa, (), outermost=True)
        saved = []
        for register in (processor.return_column, *processor.kept_by_calls):
            rule = self.rules.get(register, _SAME)
            if isinstance(rule, int):
                saved.append((register, rule))
            elif rule != _SAME or register == processor.return_column:
                return None
        return None if self.rules.get(processor.stack_column, _SAME) != _SAME else CfiRow(*self.cfa, tuple(saved))

    def call_rules(self) -> CallRules | None:
        """The row that was reached, of any kind; None for the outermost frame, or if the caller cannot be found.

        Where calls leave the return address in a register, no rule for it says that it is still there.
        """
        unsaid = _UNDEFINED if self._processor.link is None else _SAME
        returns = self.rules.get(self._processor.return_column, unsaid)
        if self.cfa is None or returns == _UNDEFINED or (returns == _SAME and self._processor.link is None):
            return None
        rules = {
            register: Rule("offset", rule) if isinstance(rule, int) else rule for register, rule in self.rules.items()
        }
        return CallRules(self.cfa, rules, is_signal=self.is_signal)


def _fixed(layout: struct.Struct) -> Callable[[bytes, int], tuple[int, int]]:
    def read(data: bytes, at: int) -> tuple[int, int]:
        return layout.unpack_from(data, at)[0], at + layout.size

    return read


_ADVANCES = {0x02: _fixed(struct.Struct("<B")), 0x03: _fixed(struct.Struct("<H")), 0x04: _fixed(struct.Struct("<I"))}
_ERRORS = (InputError, struct.error, IndexError, KeyError, ValueError)
