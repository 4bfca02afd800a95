"""Writes ELF files byte by byte, sharing nothing with the reader."""

from __future__ import annotations

import struct
from collections.abc import Sequence

PAGE = 4096


def hashed(name: str) -> int:
    """The GNU hash, written out from its definition: h = h * 33 + c, from 5381, in 32 bits."""
    value = 5381
    for letter in name:
        value = (value << 5) + value + ord(letter) & 0xFFFFFFFF
    return value


def library(
    symbols: Sequence[tuple[str, int, int]] = (),
    *,
    build_id: bytes = b"",
    soname: str | None = None,
    needed: Sequence[str] = (),
    covered: Sequence[tuple[int, int]] = (),
    instructions: bytes = b"",
) -> bytes:
    """A shared library: one segment, file offsets and addresses alike.

    ``symbols``: name, address, size. ``covered``: start and size of the functions that have unwind tables,
    ``instructions``: what these say after the usual beginning (the CFA is rsp+8, the return address lies below it).
    """
    body = bytearray(b"\0" * (64 + 56 * 4))

    def put(data: bytes) -> int:
        while len(body) % 8:
            body.append(0)
        at = len(body)
        body.extend(data)
        return at

    note_at = note_size = 0
    if build_id:
        note = struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id
        note_at, note_size = put(note), len(note)

    strings = bytearray(b"\0")

    def text(value: str) -> int:
        at = len(strings)
        strings.extend(value.encode() + b"\0")
        return at

    ordered = sorted(symbols, key=lambda one: hashed(one[0]) % 2)
    table = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for name, address, size in ordered:
        table += struct.pack("<IBBHQQ", text(name), 0x12, 0, 7, address, size)
    buckets, chain = [0, 0], b""
    for index, (name, _, _) in enumerate(ordered, 1):
        value = hashed(name)
        buckets[value % 2] = buckets[value % 2] or index
        is_last = index == len(ordered) or hashed(ordered[index][0]) % 2 != value % 2
        chain += struct.pack("<I", value & ~1 | is_last)
    hash_table = struct.pack("<IIIIQII", 2, 1, 1, 6, 0xFFFFFFFFFFFFFFFF, *buckets) + chain

    tags = [(1, text(name)) for name in needed]
    if soname is not None:
        tags.append((14, text(soname)))
    hash_at, symbols_at, strings_at = put(hash_table), put(table), put(bytes(strings))
    tags += [(0x6FFFFEF5, hash_at), (6, symbols_at), (5, strings_at), (10, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in tags)
    dynamic_at = put(dynamic)

    header_at = header_size = 0
    if covered:
        cie_body = (
            struct.pack("<I", 0) + b"\x01zR\0" + b"\x01\x78\x10" + b"\x01\x1b" + b"\x0c\x07\x08\x90\x01" + b"\0\0"
        )
        cie_at = put(struct.pack("<I", len(cie_body)) + cie_body)
        entries = []
        for start, size in covered:
            at = put(b"")
            fde = struct.pack("<IiI", at + 4 - cie_at, start - (at + 8), size) + b"\0" + instructions
            fde += b"\0" * (-len(fde) % 4)
            put(struct.pack("<I", len(fde)) + fde)
            entries.append((start, at))
        while len(body) % 8:
            body.append(0)
        header_at = len(body)
        header = b"\x01\x1b\x03\x3b" + struct.pack("<iI", 0, len(entries))
        header += b"".join(struct.pack("<ii", start - header_at, at - header_at) for start, at in sorted(entries))
        put(header)
        header_size = len(header)

    segments = [
        (1, 5, 0, len(body)),
        (2, 6, dynamic_at, len(dynamic)),
        (4, 4, note_at, note_size),
        (0x6474E550, 4, header_at, header_size),
    ]
    if not build_id:
        segments[2] = (0, 0, 0, 0)
    if not covered:
        segments[3] = (0, 0, 0, 0)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    body[:64] = ident + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0)
    for index, (kind, flags, at, size) in enumerate(segments):
        body[64 + index * 56 : 64 + (index + 1) * 56] = struct.pack(
            "<IIQQQQQQ", kind, flags, at, at, at, size, size, PAGE
        )
    return bytes(body)
