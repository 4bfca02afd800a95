"""Writes ELF cores byte by byte as the kernel does (fs/binfmt_elf.c), sharing nothing with reader or writer."""

from __future__ import annotations

import struct
from collections.abc import Sequence

PAGE = 4096
ORDER = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
    *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
)


def registers(**values: int) -> bytes:
    return struct.pack("<27Q", *(values.get(name, 0) for name in ORDER))


def note(kind: int, payload: bytes, name: bytes = b"CORE") -> bytes:
    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % 4)

    return struct.pack("<III", len(name) + 1, len(payload), kind) + padded(name + b"\0") + padded(payload)


def status(tid: int, signal: int = 0, regs: bytes = bytes(216)) -> bytes:
    """``struct elf_prstatus``: 336 bytes."""
    head = struct.pack("<iiih", signal, 0, 0, signal).ljust(32, b"\0") + struct.pack("<iiii", tid, 1, tid, tid)
    return note(1, head.ljust(112, b"\0") + regs + struct.pack("<ii", 0, 0))


def process(pid: int, name: bytes, arguments: bytes) -> bytes:
    """``struct elf_prpsinfo``: 136 bytes."""
    head = struct.pack("<bcbb4xQII", 0, b"R", 0, 0, 0, 0, 0) + struct.pack("<iiii", pid, 1, pid, pid)
    return note(3, head + name.ljust(16, b"\0") + arguments.ljust(80, b"\0"))


def siginfo(signal: int, code: int, address: int) -> bytes:
    return note(0x53494749, struct.pack("<iiiiQ", signal, 0, code, 0, address).ljust(128, b"\0"))


def auxv(**values: int) -> bytes:
    numbers = {"phdr": 3, "phent": 4, "phnum": 5, "entry": 9, "random": 25, "execfn": 31, "vdso": 33}
    pairs = [(numbers[name], value) for name, value in values.items()] + [(0, 0)]
    return note(6, b"".join(struct.pack("<QQ", *pair) for pair in pairs))


def files(mapped: Sequence[tuple[int, int, int, str]]) -> bytes:
    """``mapped``: low, high, offset in bytes, path."""
    table = b"".join(struct.pack("<QQQ", low, high, offset // PAGE) for low, high, offset, _ in mapped)
    names = b"".join(path.encode() + b"\0" for *_, path in mapped)
    return note(0x46494C45, struct.pack("<QQ", len(mapped), PAGE) + table + names)


def core(
    notes: Sequence[bytes], segments: Sequence[tuple[int, int, int, bytes]], *, machine: int = 62, kind: int = 4
) -> bytes:
    """``segments``: address, size in memory, flags (4 read, 2 write, 1 execute), content."""
    text = b"".join(notes)
    at = 64 + 56 * (len(segments) + 1)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = ident + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, len(segments) + 1, 0, 0, 0)
    table = struct.pack("<IIQQQQQQ", 4, 0, at, 0, 0, len(text), 0, 4)
    start = offset = -(-(at + len(text)) // PAGE) * PAGE
    body = b""
    for address, size, flags, content in segments:
        table += struct.pack("<IIQQQQQQ", 1, flags, offset, address, 0, len(content), size, PAGE)
        padded = content + bytes(-len(content) % PAGE)
        body += padded
        offset += len(padded)
    return (head + table + text).ljust(start, b"\0") + body
