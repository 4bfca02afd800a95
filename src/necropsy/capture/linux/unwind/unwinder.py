"""Native stacks to the bottom, however deep: by the unwind tables as far as they are simple, and drgn for the rest.

drgn gives up after 1,024 frames, so what it reads of a deep stack is read in pieces: the registers of the last frame
start the next piece. That is exact because a return address less one stands in the same row of the unwind tables as
the call did. It is told of a file when a frame in it turns up: reading all tables of a large library takes it longer
than everything else together.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from typing import Any

from necropsy.capture.linux.inspect import modules as mapped
from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.registers import NAMES
from necropsy.capture.linux.unwind import alternate_stacks, outermost_frames
from necropsy.capture.linux.unwind.cfi_step import CfiStep, Ended
from necropsy.capture.linux.unwind.drgn_eh_frame_fix import labelled_for_drgn
from necropsy.capture.linux.unwind.frame_scan import OUTERMOST, FrameScan, is_outermost
from necropsy.capture.linux.unwind.jit_symbols import GeneratedCode
from necropsy.capture.linux.unwind.symbolizer import Symbolizer
from necropsy.capture.process.code_location import CodeLocation
from necropsy.capture.process.memory import PAGE, Memory
from necropsy.capture.process.native_stack import LARGE_FRAME, Cursor, NativeStack
from necropsy.capture.process.recursion_skip import RecursionSkip
from necropsy.capture.process.registers import Registers
from necropsy.model import Stack

_PIECE = 1024
"""Where drgn stops (``max_stack_frames`` in its libdrgn/stack_trace.c)."""
_HIGHEST = 1 << 47
"""Where user space ends."""
_NEAR = 64 << 10
"""Bytes that are read at once for drgn."""
_MOST_RECOVERIES = 32
_MOST_TURNS = 64
"""So often drgn takes over from the tables on one stack; each time it may read ``_PIECE`` frames."""
_PT_REGS = struct.Struct("<21Q")


class Unwinder:
    """Unwinds the threads of one stopped process."""

    def __init__(self, maps: MemoryMap, memory: Memory, files: mapped.MappedFiles) -> None:
        """Nothing is read yet.

        Raises:
            ImportError: drgn is not installed; it has wheels for Linux x86-64 only.

        """
        import drgn

        self._drgn = drgn
        self._maps, self._memory, self._files = maps, memory, files
        self._walker = FrameScan(maps, memory)
        self._program = drgn.Program(drgn.Platform(drgn.Architecture.X86_64))
        word = self._program.int_type("unsigned long", 8, False)
        members = [drgn.TypeMember(word, name, index * 64) for index, name in enumerate(_PT_REGS_NAMES)]
        self._pt_regs = self._program.struct_type("pt_regs", _PT_REGS.size, members)
        self._close = contextlib.ExitStack()
        self.unreadable: list[str] = []
        """Files that could not be opened; frames in them are found by frame pointer or scan."""
        self._told: set[int] = set()
        """The files that drgn knows of, by their lowest addresses."""
        self._knows_memory = False
        self._near: tuple[int, bytes] = (0, b"")
        """What was read last."""
        self._places = Symbolizer(self._program, maps, files, self._tell, GeneratedCode(memory, files).function)
        self._tables = CfiStep(maps, memory, files, self._places.at)

    def close(self) -> None:
        """Give back the files that were made for drgn."""
        self._close.close()

    def _tell_memory(self) -> None:
        if self._knows_memory:
            return
        self._knows_memory = True
        self._program.add_memory_segment(0, _HIGHEST, self._read)

    def _read(self, address: int, count: int, _offset: int, _physical: bool) -> bytes:
        """Unwinding asks for 8 bytes at a time, of what lies near each other."""
        low, data = self._near
        if not low <= address <= address + count <= low + len(data):
            low = address & -PAGE
            data = self._memory.some(low, max(_NEAR, address + count - low))
            if address + count > low + len(data):
                raise self._drgn.FaultError("not mapped", address)
            self._near = low, data
        return data[address - low : address - low + count]

    def _tell(self, address: int) -> bool:
        """Tell drgn of the file at ``address``; true if it did not know it."""
        file = self._files.at(address)
        if file is not None:
            if file.low in self._told:
                return False
            self._told.add(file.low)
            self._add_file(file.path, file.low, file.high, self._for_drgn(file))
            return True
        one = self._maps.at(address)
        if one is None or one.path != "[vdso]" or one.low in self._told:
            return False
        self._told.add(one.low)
        vdso = mapped.vdso_image(self._maps, self._memory)
        if vdso is not None:
            low, high, path, close = vdso
            self._close.callback(close)
            self._add_file("[vdso]", low, high, path)
        return True

    def _for_drgn(self, file: mapped.MappedFile) -> str:
        copy = labelled_for_drgn(file.elf, file.readable_path)
        if copy is None:
            return file.readable_path
        self._close.callback(os.close, copy)
        return f"/proc/self/fd/{copy}"

    def _add_file(self, name: str, low: int, high: int, path: str) -> None:
        try:
            module = self._program.extra_module(name, low, create=True)
            module.address_ranges = [(low, high)]
            module.debug_file_status = self._drgn.ModuleFileStatus.DONT_WANT
            module.try_file(path, force=True)
            if module.wants_loaded_file():
                self.unreadable.append(name)
        except (OSError, ValueError, LookupError, self._drgn.MissingDebugInfoError):
            self.unreadable.append(name)

    def is_return_address(self, value: int) -> bool:
        """Whether a call instruction stands right before it, in executable memory."""
        return self._walker.is_return_address(value)

    def place_of(self, pc: int) -> CodeLocation:
        """What is known of the function that a call returns to."""
        return self._places.at(pc, False)[-1]

    def unwind(self, registers: Registers, stack: Stack | None, deadline: float) -> NativeStack:
        """The stack of the thread with these registers, to its first frame or until ``deadline`` (monotonic, s)."""
        out = NativeStack()
        alternate_stacks.watch(self._maps, stack, out)
        at = self._walker.innermost(out, registers, stack, self._places.at)
        if at is not None:
            self._follow(out, at, registers, stack, deadline)

        def follow(outer: NativeStack, start: Cursor, until: float) -> None:
            self._follow(outer, start, registers, stack, until)

        outermost_frames.read(out, self._memory, stack, self._tables.known, follow)
        out.why = None if out.complete else out.why or "no caller was found for the last frame"
        return out

    def _follow(
        self, out: NativeStack, start: Cursor, registers: Registers, stack: Stack | None, deadline: float
    ) -> None:
        """Append the frame ``start`` and its callers; ``out`` says how that ended."""
        at: Cursor | None = start
        recoveries = by_drgn = 0
        repeats = RecursionSkip(self._memory, lambda pc: self._places.at(pc, False)[-1])
        seen: set[tuple[int, int, bool]] = set()
        while at is not None:
            where = (at.registers.get("rip", 0), at.registers.get("rsp", 0), at.listed)
            if where in seen:
                out.why = "the chain of frames goes in circles"
                return
            seen.add(where)
            if time.monotonic() > deadline:
                out.why = outermost_frames.LATE
                return
            # Where the tables lead on for a few frames only, again and again, drgn alone is faster.
            both = by_drgn < _MOST_TURNS
            ended: Ended | None = None
            if both:
                at, ended = self._tables.walk(out, at, deadline)
            if ended in {None, "unknown"}:
                by_drgn += 1
                at, ended = self._piece(out, at, both=both)
            if ended == "bottom" or (ended == "stuck" and is_outermost(out, registers, self._memory)):
                out.complete = True
                out.plain = ended == "bottom" and len(seen) == 1 and not by_drgn and self._tables.by_stack_pointer
                return
            if ended == "stuck":
                recoveries += 1
                at = None if recoveries > _MOST_RECOVERIES else self._walker.caller(out, at.registers, stack)
                if at is not None and out.recovered.get(len(out)) == "scan":
                    at = repeats.beyond(out, at, stack.high if stack is not None else None, deadline)

    def _piece(self, out: NativeStack, start: Cursor, *, both: bool) -> tuple[Cursor, Ended | None]:
        """Append up to ``_PIECE`` frames by drgn; the last one, and how it ended (None: it goes on).

        With ``both`` it ends where a frame comes that the tables lead on from.
        """
        self._tell_memory()
        values = [start.registers.get(name, 0) for name in NAMES[:21]]
        if not start.exact:
            values[_RIP] -= 1
        self._tell(values[_RIP])
        raw = self._drgn.Object.from_bytes_(self._program, self._pt_regs, _PT_REGS.pack(*values))
        at = self._places.at
        try:
            trace = self._program.stack_trace(raw)
        except Exception:  # noqa: BLE001 - drgn gives all of it up for one file on the way whose headers lie
            if not start.listed:
                out.add(at(start.registers.get("rip", 0), start.exact), start.registers.get("rsp", 0))
            return Cursor(start.registers, exact=start.exact), "stuck"
        last, exact, is_new = trace[0], start.exact, False
        for index, frame in enumerate(trace):
            try:
                pc, pointer = frame.pc, frame.sp
            except LookupError:
                # The tables say that there is no caller; or its return address could not be read.
                return _at(last, exact), "bottom" if self._at_bottom(out) else "stuck"
            if index == 0:
                if start.listed:
                    continue
                here = at(pc + (not exact), exact)
            else:
                is_new = self._tell(pc if frame.interrupted else pc - 1)
                here = at(pc, frame.interrupted)
            if not here[-1].executable and len(out):
                return _at(last, exact), "stuck"
            if index and out.places[-1].module is None and pointer - out.pointers[-1] > LARGE_FRAME:
                # Generated code has no tables, and drgn took rbp for a frame pointer: this one belongs to a caller.
                return _at(last, exact), "stuck"
            last, exact = frame, start.exact if index == 0 else frame.interrupted
            out.add(here, pointer)
            # What drgn found behind a file that it did not know, it found by frame pointer.
            if index and (is_new or (both and self._tables.knows(pc, exact=exact))):
                return _at(last, exact), None
        if len(trace) < _PIECE:
            return _at(last, exact), "stuck"
        return _at(last, exact), None

    def _at_bottom(self, out: NativeStack) -> bool:
        if not len(out):
            return False
        if out.places[-1].function in OUTERMOST:
            return True
        return out.places[-1].unwinds is not False and self._maps.at(out.pointers[-1]) is not None


def _at(frame: Any, exact: bool) -> Cursor:
    return Cursor(frame.registers(), exact=exact)


_RIP = NAMES.index("rip")
_PT_REGS_NAMES = (
    *("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di"),
    *("orig_ax", "ip", "cs", "flags", "sp", "ss"),
)
