"""What the records of 32-bit programs point to: C++ exceptions and DLLs that did not come; written byte by byte."""

from __future__ import annotations

import struct

from necropsy.capture import open_minidump
from necropsy.diagnose import diagnose
from necropsy.formats.minidump import parse
from necropsy.model import Crash
from necropsy.rules import crash_rules
from writers import minidump as w

EXE, DATA, OBJECT = 0x400000, 0x500000, 0x19F000


def crash(code: int, parameters: tuple[int, ...], memory: dict[int, bytes]) -> Crash:
    regs = w.context_x86(eip=EXE + 0x1000, esp=0x19FF00)
    streams = [
        (w.SYSTEM, w.system(architecture=w.X86)),
        (w.THREADS, w.threads([w.Thread(1, regs, 0, 0x19FF00, bytes(64))])),
        (w.MODULES, w.modules([w.Module("C:\\a\\app.exe", EXE, 0x9000)])),
        (w.MEMORY, w.memory(list(memory.items()))),
        (w.EXCEPTION, w.exception(1, code, EXE + 0x1000, parameters, regs)),
    ]
    return open_minidump.crash_of(parse(w.minidump(streams)))


def thrown(names: list[bytes], value: bytes, *, high: int = 0) -> Crash:
    """``names``: of the types as which it may be caught; ``high``: the upper halves of the parameters."""
    info, table = DATA, DATA + 0x20
    rows = [DATA + 0x100 + 0x40 * index for index in range(len(names))]
    memory = {
        info: struct.pack("<IIII", 0, 0, 0, table),
        table: struct.pack(f"<I{len(rows)}I", len(rows), *rows),
        OBJECT: value,
        DATA + 0x900: b"lost 7\0",
    }
    for index, (row, name) in enumerate(zip(rows, names, strict=True)):
        descriptor = DATA + 0x400 + 0x80 * index
        memory[row] = struct.pack("<IIiiiII", 0, descriptor, 0, -1, 0, 12, 0)
        memory[descriptor] = struct.pack("<II", EXE + 0x5000, 0) + name + b"\0"
    return crash(0xE06D7363, tuple(one | high for one in (0x19930520, OBJECT, info)), memory)


def test_an_exception_has_its_type_and_its_text() -> None:
    value = struct.pack("<III", EXE + 0x5000, DATA + 0x900, 1)
    found = thrown([b".?AVruntime_error@std@@", b".?AVexception@std@@"], value)
    assert found.cpp_exception is not None
    assert (found.cpp_exception.type, found.cpp_exception.what) == ("std::runtime_error", "lost 7")
    verdict = diagnose(found, crash_rules()).verdict
    assert verdict is not None and verdict.rule == "uncaught-cpp-exception"


def test_addresses_that_were_extended_by_their_sign() -> None:
    found = thrown([b".?AVBad@@"], bytes(4), high=0xFFFF_FFFF_0000_0000)
    assert found.cpp_exception is not None and found.cpp_exception.type == "Bad"


def test_a_string_and_a_text_were_thrown() -> None:
    text = b".?AV?$basic_string@DU?$char_traits@D@std@@V?$allocator@D@2@@std@@"
    short = thrown([text], b"brief".ljust(16, b"\0") + struct.pack("<II", 5, 15)).cpp_exception
    assert short is not None and short.what == "brief"
    far = thrown([text], struct.pack("<I", DATA + 0x900).ljust(16, b"\0") + struct.pack("<II", 6, 31)).cpp_exception
    assert far is not None and far.what == "lost 7"
    plain = thrown([b".PBD"], struct.pack("<I", DATA + 0x900)).cpp_exception
    assert plain is not None and plain.what == "lost 7"


def test_a_delayed_dll_is_named() -> None:
    info = struct.pack("<9I", 36, 0, 0, DATA + 0x100, 1, DATA + 0x200, 0, 0, 126)
    memory = {DATA: info, DATA + 0x100: b"cudnn64_8.dll\0", DATA + 0x200: b"cudnnCreate\0"}
    found = crash(0xC06D007E, (DATA,), memory)
    (said,) = [one for one in found.messages or () if one.kind == "delay-load-module"]
    assert (said.fields["dll"], said.fields["error"]) == ("cudnn64_8.dll", "126")
    lacking = crash(0xC06D007F, (DATA,), memory)
    (said,) = [one for one in lacking.messages or () if one.kind == "delay-load-procedure"]
    assert said.fields["procedure"] == "cudnnCreate"
