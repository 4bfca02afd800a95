"""Writes PE images byte by byte, sharing nothing with the reader."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BASE = 0x180000000
FILE_ALIGN, SECTION_ALIGN = 0x200, 0x1000
CODE, DATA, CONSTANT = 0x60000020, 0xC0000040, 0x40000040
"""Characteristics: code that may be executed and read; data that may be written; data that may only be read."""


@dataclass
class Writer:
    """An image to be: the parts of one section after another, each at an RVA that is given out when it is added."""

    timestamp: int = 0x5F3759DF
    machine: int = 0x8664
    base: int = BASE
    reserve: int = 0x100000
    commit: int = 0x1000
    checksum: int = 0
    flags: int = 0x22
    linker: tuple[int, int] = (14, 0)
    sections: list[tuple[str, int, bytes, int, int]] = field(default_factory=list)
    """Name, RVA, content, size in memory, characteristics."""
    directories: dict[int, tuple[int, int]] = field(default_factory=dict)
    symbols: bytes = b""
    symbol_count: int = 0

    @property
    def next(self) -> int:
        """The RVA of the next section."""
        if not self.sections:
            return SECTION_ALIGN
        _, rva, _, size, _ = self.sections[-1]
        return -(-(rva + size) // SECTION_ALIGN) * SECTION_ALIGN

    def section(self, name: str, content: bytes, flags: int = CONSTANT, size: int | None = None) -> int:
        """Add a section; its RVA."""
        rva = self.next
        self.sections.append((name, rva, content, max(size or 0, len(content), 1), flags))
        return rva

    @property
    def size_of_image(self) -> int:
        """Bytes that the image takes once it is loaded."""
        return self.next

    def written(self, *, wide: bool = True) -> bytes:
        """The file; ``wide``: PE32+, else PE32."""
        optional_size = (112 if wide else 96) + 16 * 8
        headers = 64 + 24 + optional_size + 40 * len(self.sections)
        headers = -(-headers // FILE_ALIGN) * FILE_ALIGN
        offset = headers
        rows, body = b"", b""
        for name, rva, content, size, flags in self.sections:
            raw = content + b"\0" * (-len(content) % FILE_ALIGN)
            rows += struct.pack(
                "<8sIIIIIIHHI", name.encode(), size, rva, len(raw), offset if raw else 0, 0, 0, 0, 0, flags
            )
            offset += len(raw)
            body += raw
        symbols_at = offset if self.symbols else 0
        head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
        head += b"PE\0\0" + struct.pack(
            "<HHIIIHH",
            self.machine,
            len(self.sections),
            self.timestamp,
            symbols_at,
            self.symbol_count,
            optional_size,
            self.flags,
        )
        if wide:
            head += struct.pack("<HBBIIIII", 0x20B, *self.linker, 0, 0, 0, 0x1234, 0x1000) + struct.pack(
                "<Q", self.base
            )
        else:
            head += struct.pack("<HBBIIIIII", 0x10B, *self.linker, 0, 0, 0, 0x1234, 0x1000, 0) + struct.pack(
                "<I", self.base
            )
        head += struct.pack("<IIHHHHHHI", SECTION_ALIGN, FILE_ALIGN, 6, 0, 0, 0, 6, 0, 0)
        head += struct.pack("<IIIHH", self.size_of_image, headers, self.checksum, 3, 0)
        head += struct.pack("<QQQQ" if wide else "<IIII", self.reserve, self.commit, 0x100000, 0x1000)
        head += struct.pack("<II", 0, 16)
        for number in range(16):
            head += struct.pack("<II", *self.directories.get(number, (0, 0)))
        return (head + rows).ljust(headers, b"\0") + body + self.symbols

    def loaded(self, *, base: int | None = None) -> dict[int, bytes]:
        """As it lies in memory: the headers and each section, by address."""
        base = self.base if base is None else base
        file = self.written()
        pieces = {base: file[: len(file) - sum(len(one[2]) + -len(one[2]) % FILE_ALIGN for one in self.sections)]}
        for _, rva, content, size, _ in self.sections:
            pieces[base + rva] = content.ljust(size, b"\0")
        return pieces

    # -- tables ---------------------------------------------------------------------------------------------------

    def functions(self, entries: Sequence[tuple[int, int, int]]) -> None:
        """The exception directory: begin, end, and where the unwind information lies."""
        data = b"".join(struct.pack("<III", *entry) for entry in entries)
        self.directories[3] = self.section(".pdata", data), len(data)

    def exports(self, names: Mapping[str, int], forwarded: Mapping[str, str] | None = None) -> None:
        """The export directory: functions by name, and names that other DLLs stand for."""
        rva = self.next
        every = sorted((*names, *(forwarded or {})))
        count = len(every)
        texts = bytearray()
        at_texts = 40 + 4 * count + 4 * count + 2 * count

        def text(value: str) -> int:
            at = rva + at_texts + len(texts)
            texts.extend(value.encode() + b"\0")
            return at

        functions, pointers = b"", b""
        own = text("own.dll")
        for name in every:
            functions += struct.pack("<I", names[name] if name in names else text((forwarded or {})[name]))
            pointers += struct.pack("<I", text(name))
        ordinals = b"".join(struct.pack("<H", index) for index in range(count))
        head = struct.pack(
            "<IIHHIIIIIII",
            0,
            0,
            0,
            0,
            own,
            1,
            count,
            count,
            rva + 40,
            rva + 40 + 4 * count,
            rva + 40 + 8 * count,
        )
        data = head + functions + pointers + ordinals + bytes(texts)
        self.directories[0] = self.section(".edata", data), len(data)

    def imports(self, names: Sequence[str], *, delayed: bool = False) -> None:
        """The DLLs that it needs; the functions themselves are left out."""
        width = 32 if delayed else 20
        rva = self.next
        texts = bytearray()
        rows = b""
        for name in names:
            at = rva + width * (len(names) + 1) + len(texts)
            texts.extend(name.encode() + b"\0")
            rows += struct.pack("<II", 1, at).ljust(32, b"\0") if delayed else struct.pack("<IIIII", 0, 0, 0, at, at)
        data = rows + b"\0" * width + bytes(texts)
        self.directories[13 if delayed else 1] = self.section(".didat" if delayed else ".idata", data), len(data)

    def takes(self, rows: Mapping[str, Sequence[str | int]], *, wide: bool = True, lookup: bool = True) -> None:
        """An import directory with functions, by name or number; ``lookup``: beside the tables of addresses."""
        width = "<Q" if wide else "<I"
        table, body = b"", b""
        first = self.next + 20 * (len(rows) + 1)

        def placed(data: bytes) -> int:
            nonlocal body
            at = first + len(body)
            body += data + b"\0" * (-len(data) % 8)
            return at

        for dll, functions in rows.items():
            entries = b""
            for one in functions:
                number = 1 << (63 if wide else 31)
                entry = number | one if isinstance(one, int) else placed(b"\x05\x00" + one.encode() + b"\0")
                entries += struct.pack(width, entry)
            entries += struct.pack(width, 0)
            name, addresses = placed(dll.encode() + b"\0"), placed(entries)
            table += struct.pack("<5I", addresses if lookup else 0, 0, 0, name, addresses)
        self.directories[1] = self.section(".idata", table + bytes(20) + body), len(table) + 20

    def pdb(self, guid: bytes, age: int, path: str) -> None:
        """The debug directory with one entry: the PDB that belongs to it."""
        rva = self.next
        record = b"RSDS" + guid + struct.pack("<I", age) + path.encode() + b"\0"
        data = struct.pack("<IIHHIIII", 0, self.timestamp, 0, 0, 2, len(record), rva + 28, 0) + record
        self.directories[6] = self.section(".debug_d", data), 28

    def version(self, *numbers: int) -> None:
        """The version resource: type 16, one name, one language."""
        rva = self.next
        fixed = struct.pack("<II", 0xFEEF04BD, 0x10000) + struct.pack(
            "<II", numbers[0] << 16 | numbers[1], numbers[2] << 16 | numbers[3]
        )
        key = "VS_VERSION_INFO\0".encode("utf-16-le")
        info = struct.pack("<HHH", 0, len(fixed), 0) + key + b"\0\0" + fixed.ljust(52, b"\0")

        def level(number: int, entry: int) -> bytes:
            return struct.pack("<IIHHHH", 0, 0, 0, 0, 0, 1) + struct.pack("<II", number, entry)

        data = level(16, 0x80000018) + level(1, 0x80000030) + level(1033, 72)
        data += struct.pack("<IIII", rva + 88, len(info), 0, 0) + info
        self.directories[2] = self.section(".rsrc", data), len(data)

    def relocations(self, places: Sequence[int]) -> None:
        """Where addresses lie that change with the place to which the image is loaded."""
        data = b""
        for page in sorted({place & ~0xFFF for place in places}):
            entries = [0xA000 | place & 0xFFF for place in sorted(places) if place & ~0xFFF == page]
            entries += [0] * (len(entries) % 2)
            data += struct.pack("<II", page, 8 + 2 * len(entries)) + struct.pack(f"<{len(entries)}H", *entries)
        self.directories[5] = self.section(".reloc", data), len(data)

    def coff(self, rows: Sequence[tuple[str, int, int, int, int]]) -> None:
        """The symbol table: name, value, number of the section, type, storage class; each with one row that follows."""
        strings = bytearray()
        data = b""
        for name, value, section, kind, storage in rows:
            raw = name.encode()
            if len(raw) > 8:
                raw, at = b"", 4 + len(strings)
                strings.extend(name.encode() + b"\0")
                short = struct.pack("<II", 0, at)
            else:
                short = raw.ljust(8, b"\0")
            data += short + struct.pack("<IhHBB", value, section, kind, storage, 1) + b"\xee" * 18
        self.symbols = data + struct.pack("<I", 4 + len(strings)) + bytes(strings)
        self.symbol_count = 2 * len(rows)


# -- unwind information -----------------------------------------------------------------------------------------------

REGISTERS = (
    "rax",
    "rcx",
    "rdx",
    "rbx",
    "rsp",
    "rbp",
    "rsi",
    "rdi",
    "r8",
    "r9",
    "r10",
    "r11",
    "r12",
    "r13",
    "r14",
    "r15",
)


def code(offset: int, operation: int, info: int, *more: int) -> bytes:
    """One unwind code with the slots that follow it."""
    return struct.pack("<BB", offset, info << 4 | operation) + b"".join(struct.pack("<H", slot) for slot in more)


def push(offset: int, register: str) -> bytes:
    return code(offset, 0, REGISTERS.index(register))


def alloc(offset: int, size: int, *, form: str | None = None) -> bytes:
    """The shortest form, or the one that is named: ``small``, ``large``, ``huge``."""
    form = form or ("small" if size <= 128 else "large" if size <= 0x7FFF8 else "huge")
    if form == "small":
        return code(offset, 2, size // 8 - 1)
    if form == "large":
        return code(offset, 1, 0, size // 8)
    return code(offset, 1, 1, size & 0xFFFF, size >> 16)


def set_frame(offset: int) -> bytes:
    return code(offset, 3, 0)


def save(offset: int, register: str, at: int, *, far: bool = False) -> bytes:
    number = REGISTERS.index(register)
    return code(offset, 5, number, at & 0xFFFF, at >> 16) if far else code(offset, 4, number, at // 8)


def save_xmm(offset: int, number: int, at: int, *, far: bool = False) -> bytes:
    return code(offset, 9, number, at & 0xFFFF, at >> 16) if far else code(offset, 8, number, at // 16)


def machine_frame(offset: int, *, error_code: bool = False) -> bytes:
    return code(offset, 10, int(error_code))


def epilogues(size: int, *before_end: int, at_end: bool = False) -> bytes:
    """Version 2: the size of each epilogue, and where each begins, in bytes before the end of the function."""
    out = code(size, 6, int(at_end))
    return out + b"".join(code(one & 0xFF, 6, one >> 8) for one in before_end)


def unwind(
    prologue: int,
    codes: Sequence[bytes] = (),
    *,
    version: int = 1,
    flags: int = 0,
    frame: str | None = None,
    frame_offset: int = 0,
    chained: tuple[int, int, int] | None = None,
) -> bytes:
    """One UNWIND_INFO; ``codes`` in the order of undoing, ``frame_offset`` in bytes."""
    body = b"".join(codes)
    count = len(body) // 2
    register = REGISTERS.index(frame) if frame else 0
    out = bytes((version | (flags | (4 if chained else 0)) << 3, prologue, count, register | frame_offset // 16 << 4))
    out += body + b"\0\0" * (count & 1)
    return out + (struct.pack("<III", *chained) if chained else b"")
