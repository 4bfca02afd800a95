"""A stack as drgn unwinds it, to compare ours with."""

from __future__ import annotations

import contextlib
import struct

from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.memory import Memory, Registers
from necropsy.formats.processors import X86_64

PT_REGS = (
    *("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di"),
    *("orig_ax", "ip", "cs", "flags", "sp", "ss"),
)


def callers(files: MappedFiles, memory: Memory, now: Registers) -> list[int]:
    """The program counters of the thread with these registers, innermost first; 1,024 at most."""
    import drgn

    program = drgn.Program(drgn.Platform(drgn.Architecture.X86_64))

    def read(address: int, count: int, _offset: int, _physical: bool) -> bytes:
        data = memory.exactly(address, count)
        if data is None:
            raise drgn.FaultError("not mapped", address)
        return data

    program.add_memory_segment(0, 1 << 47, read)
    for file in files.files:
        module = program.extra_module(file.path, file.low, create=True)
        module.address_ranges = [(file.low, file.high)]
        module.debug_file_status = drgn.ModuleFileStatus.DONT_WANT
        module.try_file(file.readable_path, force=True)
    word = program.int_type("unsigned long", 8, False)
    members = [drgn.TypeMember(word, name, index * 64) for index, name in enumerate(PT_REGS)]
    values = struct.pack("<21Q", *(now.values.get(name, 0) for name in X86_64.status[:21]))
    layout = program.struct_type("pt_regs", len(values), members)
    found: list[int] = []
    with contextlib.suppress(LookupError):  # there is no caller: what was found before is the answer
        found.extend(frame.pc for frame in program.stack_trace(drgn.Object.from_bytes_(program, layout, values)))
    return found
