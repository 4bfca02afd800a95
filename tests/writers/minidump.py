"""Writes minidumps byte by byte after minidumpapiset.h and Breakpad's minidump_format.h; shares nothing with the reader.

A dump is put together from streams; each is told where it will lie, and may put further bytes behind itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

THREADS, MODULES, MEMORY, EXCEPTION, SYSTEM, THREADS_EX, MEMORY64 = 3, 4, 5, 6, 7, 8, 9
COMMENT_A, COMMENT_W, HANDLES, UNLOADED, MISC, MEMORY_INFO, THREAD_INFO = 10, 11, 12, 14, 15, 16, 17
THREAD_NAMES = 24
AMD64, X86, ARM64, ARM64_OLD = 9, 0, 12, 0x8003


@dataclass
class Blob:
    """The bytes of one stream, with places in it that will hold the offset of something further behind."""

    data: bytearray = field(default_factory=bytearray)
    later: list[tuple[int, bytes, str]] = field(default_factory=list)

    def add(self, fmt: str, *values: int | bytes) -> None:
        self.data += struct.pack("<" + fmt, *values)

    def rva(self, content: bytes, fmt: str = "I") -> None:
        """A place for the offset of ``content``; 0 where there is none."""
        if content:
            self.later.append((len(self.data), content, fmt))
        self.add(fmt, 0)

    def located(self, content: bytes) -> None:
        """A MINIDUMP_LOCATION_DESCRIPTOR."""
        self.add("I", len(content))
        self.rva(content)


def string(text: str) -> bytes:
    """MINIDUMP_STRING: its length in bytes without the NUL, and the text."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return struct.pack("<I", len(raw)) + raw + b"\0\0"


def utf8(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw + b"\0"


def context(**values: int) -> bytes:
    """CONTEXT of x64: 1,232 bytes."""
    places = {"rax": 0x78, "rcx": 0x80, "rdx": 0x88, "rbx": 0x90, "rsp": 0x98, "rbp": 0xA0, "rsi": 0xA8, "rdi": 0xB0}
    places |= {f"r{number}": 0xB8 + 8 * (number - 8) for number in range(8, 16)} | {"rip": 0xF8}
    data = bytearray(1232)
    struct.pack_into("<I", data, 0x30, 0x10000F)
    struct.pack_into("<I", data, 0x44, values.pop("eflags", 0x246))
    for name, value in values.items():
        struct.pack_into("<Q", data, places[name], value)
    return bytes(data)


def context_x86(**values: int) -> bytes:
    """CONTEXT of 32-bit x86: 716 bytes."""
    places = {"edi": 0x9C, "esi": 0xA0, "ebx": 0xA4, "edx": 0xA8, "ecx": 0xAC, "eax": 0xB0, "ebp": 0xB4, "eip": 0xB8}
    places |= {"cs": 0xBC, "eflags": 0xC0, "esp": 0xC4}
    data = bytearray(716)
    struct.pack_into("<I", data, 0, 0x1003F)
    for name, value in values.items():
        struct.pack_into("<I", data, places[name], value)
    return bytes(data)


def context_arm64(*, old: bool = False, cpsr: int = 0, pc: int = 0, sp: int = 0, **x: int) -> bytes:
    """ARM64_NT_CONTEXT (912 bytes) or, ``old``, Breakpad's MDRawContextARM64_Old (796 bytes)."""
    numbers = [x.get(f"x{index}", 0) for index in range(29)] + [x.get("fp", 0), x.get("lr", 0), sp, pc]
    if old:
        return (struct.pack("<Q33QI", 0x80000006, *numbers, cpsr)).ljust(796, b"\0")
    return struct.pack("<II33Q", 0x400007, cpsr, *numbers).ljust(912, b"\0")


def system(
    *,
    architecture: int = AMD64,
    version: tuple[int, int, int] = (10, 0, 19045),
    platform: int = 2,
    service_pack: str = "",
    vendor: bytes = bytes(24),
) -> Blob:
    blob = Blob()
    blob.add("HHHBBIIII", architecture, 6, 0x9E0A, 8, 1, *version, platform)
    blob.rva(string(service_pack) if service_pack else b"")
    blob.add("HH24s", 0x100, 0, vendor)
    return blob


def exception(
    tid: int,
    code: int,
    address: int,
    parameters: Sequence[int] = (),
    regs: bytes = b"",
    *,
    flags: int = 0,
    record: int = 0,
) -> Blob:
    blob = Blob()
    numbers = [*parameters, *([0] * (15 - len(parameters)))]
    blob.add("IIIIQQII15Q", tid, 0, code, flags, record, address, len(parameters), 0, *numbers)
    blob.located(regs)
    return blob


@dataclass
class Thread:
    tid: int
    regs: bytes = b""
    teb: int = 0
    low: int = 0
    stack: bytes = b""


def threads(all_of_them: Sequence[Thread], *, padded: bool = False, extended: bool = False) -> Blob:
    blob = Blob()
    blob.add("I", len(all_of_them))
    if padded:
        blob.add("I", 0)
    for one in all_of_them:
        blob.add("IIIIQQ", one.tid, 0, 32, 0, one.teb, one.low)
        blob.located(one.stack)
        blob.located(one.regs)
        if extended:
            blob.add("QII", 0, 0, 0)
    return blob


@dataclass
class Module:
    path: str
    base: int
    size: int
    timestamp: int = 0x5F000000
    version: tuple[int, int, int, int] | None = None
    codeview: bytes = b""


def rsds(guid: bytes, age: int, pdb: str) -> bytes:
    return b"RSDS" + guid + struct.pack("<I", age) + pdb.encode() + b"\0"


def nb10(stamp: int, age: int, pdb: str) -> bytes:
    return b"NB10" + struct.pack("<III", 0, stamp, age) + pdb.encode() + b"\0"


def build_id(identity: bytes) -> bytes:
    """MDCVInfoELF: 'BpEL' as a number, so that its letters stand the other way round."""
    return struct.pack("<I", 0x4270454C) + identity


def modules(all_of_them: Sequence[Module], *, padded: bool = False) -> Blob:
    blob = Blob()
    blob.add("I", len(all_of_them))
    if padded:
        blob.add("I", 0)
    for one in all_of_them:
        blob.add("QIII", one.base, one.size, 0x1234, one.timestamp)
        blob.rva(string(one.path))
        if one.version is None:
            blob.add("52x")
        else:
            major, minor, build, revision = one.version
            high, low = major << 16 | minor, build << 16 | revision
            blob.add("13I", 0xFEEF04BD, 0x10000, high, low, high, low, 0x3F, 0, 0x40004, 2, 0, 0, 0)
        blob.located(one.codeview)
        blob.add("IIQQ", 0, 0, 0, 0)
    return blob


def memory(ranges: Sequence[tuple[int, bytes]], *, padded: bool = False) -> Blob:
    blob = Blob()
    blob.add("I", len(ranges))
    if padded:
        blob.add("I", 0)
    for address, content in ranges:
        blob.add("Q", address)
        blob.located(content)
    return blob


def memory64(ranges: Sequence[tuple[int, bytes]]) -> Blob:
    blob = Blob()
    blob.add("Q", len(ranges))
    blob.rva(b"".join(content for _, content in ranges), "Q")
    for address, content in ranges:
        blob.add("QQ", address, len(content))
    return blob


def memory_info(rows: Sequence[tuple[int, int, int, int, int, int]]) -> Blob:
    """``rows``: base, allocation base, size, state, protect, type."""
    blob = Blob()
    blob.add("IIQ", 16, 48, len(rows))
    for base, allocation, size, state, protect, kind in rows:
        blob.add("QQIIQIIII", base, allocation, protect, 0, size, state, protect, kind, 0)
    return blob


def thread_names(names: Sequence[tuple[int, str]]) -> Blob:
    blob = Blob()
    blob.add("I", len(names))
    for tid, name in names:
        blob.add("I", tid)
        blob.rva(string(name), "Q")
    return blob


def thread_info(rows: Sequence[tuple[int, int, int, int]]) -> Blob:
    """``rows``: thread id, flags, create time (100 ns since 1601), start address."""
    blob = Blob()
    blob.add("III", 12, 64, len(rows))
    for tid, flags, created, start in rows:
        blob.add("IIIIQQQQQQ", tid, flags, 0, 0x103, created, 0, 0, 0, start, 0xFF)
    return blob


def unloaded(rows: Sequence[tuple[int, int, int, str]]) -> Blob:
    blob = Blob()
    blob.add("III", 12, 24, len(rows))
    for base, size, timestamp, path in rows:
        blob.add("QIII", base, size, 0, timestamp)
        blob.rva(string(path))
    return blob


def handles(rows: Sequence[tuple[int, str, str]], *, second: bool = False) -> Blob:
    blob = Blob()
    blob.add("IIII", 16, 40 if second else 32, len(rows), 0)
    for handle, kind, name in rows:
        blob.add("Q", handle)
        blob.rva(string(kind) if kind else b"")
        blob.rva(string(name) if name else b"")
        blob.add("IIII", 0, 0x1F0003, 2, 65536)
        if second:
            blob.add("II", 0, 0)
    return blob


def misc(*, pid: int | None = None, created: int | None = None, size: int = 24, build: str = "") -> Blob:
    """MINIDUMP_MISC_INFO to _5, by ``size``: 24, 44, 232, 832, 1364."""
    flags = (1 if pid is not None else 0) | (2 if created is not None else 0)
    blob = Blob()
    blob.add("IIIIII", size, flags, pid or 0, created or 0, 3, 1)
    blob.data = blob.data.ljust(size, b"\0")
    if size >= 832:
        raw = build.encode("utf-16-le")
        blob.data[232 : 232 + len(raw)] = raw
    return blob


def raw(content: bytes) -> Blob:
    return Blob(bytearray(content))


def minidump(
    streams: Sequence[tuple[int, Blob]],
    *,
    flags: int = 0,
    written: int = 0x65000000,
    count: int | None = None,
    change: Callable[[int, int, int], tuple[int, int]] | None = None,
) -> bytes:
    """The whole file. ``count``: the number of streams that the header claims; ``change``: kind, size, offset -> both."""
    body = bytearray(32 + 12 * len(streams))
    places: list[tuple[int, int, int]] = []
    for kind, blob in streams:
        body += bytes(-len(body) % 8)
        start = len(body)
        body += blob.data
        for at, content, fmt in blob.later:
            body += bytes(-len(body) % 4)
            struct.pack_into("<" + fmt, body, start + at, len(body))
            body += content
        places.append((kind, len(blob.data), start))
    struct.pack_into(
        "<4sIIIIIQ", body, 0, b"MDMP", 0xA05DA793, len(streams) if count is None else count, 32, 0, written, flags
    )
    for index, (kind, size, offset) in enumerate(places):
        told = change(kind, size, offset) if change else (size, offset)
        struct.pack_into("<III", body, 32 + 12 * index, kind, *told)
    return bytes(body)
