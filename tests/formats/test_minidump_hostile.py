"""Minidumps that were cut off or lie: an InputError or what is left, in bounded time and memory."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from necropsy.errors import InputError
from necropsy.formats.minidump import parse
from necropsy.formats.minidump_records import Minidump
from writers import minidump as w

MANY = 0xFFFFFFFF


def whole() -> bytes:
    """Every stream that is read."""
    regs = w.context(rip=0x7FF600001234, rsp=0x14FE00)
    fixed = struct.pack("<I32sIIII", 1, bytes(32), 0, 0, 0, 0)
    return w.minidump(
        [
            (w.SYSTEM, w.system(service_pack="SP1")),
            (w.MISC, w.misc(pid=4711, created=1, size=1364, build="x")),
            (w.THREADS, w.threads([w.Thread(10, regs, 0x2000, 0x14FE00, b"stack" * 9), w.Thread(11, regs)])),
            (w.THREADS_EX, w.threads([w.Thread(10, regs)], extended=True)),
            (w.THREAD_NAMES, w.thread_names([(11, "loader"), (10, "MainThread")])),
            (w.THREAD_INFO, w.thread_info([(10, 0, 200, 5), (11, 4, 100, 0)])),
            (
                w.MODULES,
                w.modules([w.Module("a.exe", 0x7FF600000000, 0x9000, 1, (1, 2, 3, 4), w.rsds(bytes(16), 2, "a.pdb"))]),
            ),
            (w.UNLOADED, w.unloaded([(0x500000000, 0x3000, 77, "gone.dll")])),
            (w.EXCEPTION, w.exception(10, 0xC0000005, 0x7FF600001234, (1, 0x10), regs)),
            (w.MEMORY, w.memory([(0x9000, b"hello"), (0x9005, b" world")])),
            (w.MEMORY64, w.memory64([(0x19000, b"hello"), (0x29005, b" world")])),
            (w.MEMORY_INFO, w.memory_info([(0x9000, 0x9000, 0x1000, 0x1000, 4, 0x20000)])),
            (w.HANDLES, w.handles([(4, "File", "x")])),
            (w.COMMENT_A, w.raw(b"a\0")),
            (w.COMMENT_W, w.raw(b"a\0b\0\0\0")),
            (0x47670002, w.raw(bytes(776))),
            (0x47670003, w.raw(b"model name : x\n")),
            (0x47670007, w.raw(b"A=b\0")),
            (0x43500001, w.raw(fixed)),
        ]
    )


def use(dump: Minidump) -> None:
    """Ask what a reader of the dump asks."""
    for address in (0, 0x9000, 0x9FFF, 0x14FE00, (1 << 64) - 1):
        dump.memory.some(address, 1 << 20)
        if dump.memory_infos is not None:
            dump.memory_infos.at(address)
        dump.module_at(address)
    assert len(dump.gaps) < 1000


def read(data: bytes) -> None:
    said = ""
    try:
        use(parse(data))
    except InputError as error:
        said = str(error)
    assert "\n" not in said


def test_cut_off_anywhere() -> None:
    data = whole()
    for size in range(0, len(data), 7):
        read(data[:size])


def test_what_is_left_of_one_that_was_cut_off_is_read() -> None:
    regs = w.context(rip=1)
    streams = [
        (w.SYSTEM, w.system()),
        (w.EXCEPTION, w.exception(1, 0xC0000409, 5, (7,))),
        (w.THREADS, w.threads([w.Thread(1, regs)])),
        (w.MEMORY, w.memory([(0x1000, b"x" * 5000)])),
    ]
    data = w.minidump(streams)
    dump = parse(data[:-4000])
    assert dump.exception is not None and dump.exception.parameters == (7,)
    assert len(dump.threads) == 1
    assert len(dump.memory.some(0x1000, 9000)) == 1000
    assert any("cut off" in one for one in dump.gaps)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(whole()) - 4),
            st.sampled_from([0, 1, 4, 0x7FFFFFFF, 0x80000000, MANY, 32, 44, 1 << 20]) | st.integers(0, MANY),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_number_may_lie(changes: list[tuple[int, int]]) -> None:
    data = bytearray(whole())
    for at, value in changes:
        struct.pack_into("<I", data, at, value)
    read(bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_rubbish_behind_a_header(body: bytes) -> None:
    read(struct.pack("<4sIIIIIQ", b"MDMP", 0xA793, 8, 32, 0, 0, 0) + body)


def lying(kind: int, head: bytes, size: int = 64) -> bytes:
    """One stream whose beginning claims what is not there; 16 MB lie behind it."""
    blob = w.raw(head.ljust(size, b"\0"))
    return w.minidump([(kind, blob)], change=lambda _kind, _size, at: (MANY, at)) + bytes(16 << 20)


LIES = {
    "modules": (w.MODULES, struct.pack("<I", MANY)),
    "threads": (w.THREADS, struct.pack("<I", MANY)),
    "threads, extended": (w.THREADS_EX, struct.pack("<I", MANY)),
    "memory": (w.MEMORY, struct.pack("<I", MANY)),
    "memory64": (w.MEMORY64, struct.pack("<QQ", (1 << 64) - 1, 32)),
    "memory infos": (w.MEMORY_INFO, struct.pack("<IIQ", 16, 48, (1 << 64) - 1)),
    "memory infos without a size": (w.MEMORY_INFO, struct.pack("<IIQ", 0, 0, (1 << 64) - 1)),
    "unloaded": (w.UNLOADED, struct.pack("<III", 12, 24, MANY)),
    "unloaded without a size": (w.UNLOADED, struct.pack("<III", 12, 0, MANY)),
    "handles": (w.HANDLES, struct.pack("<IIII", 16, 32, MANY, 0)),
    "thread names": (w.THREAD_NAMES, struct.pack("<I", MANY)),
    "thread infos": (w.THREAD_INFO, struct.pack("<III", 12, 64, MANY)),
    "exception": (w.EXCEPTION, struct.pack("<IIIIQQI", 1, 0, 5, 0, 0, 0, MANY)),
    "annotations": (0x43500001, struct.pack("<I32sIIII", 1, bytes(32), MANY, 44, MANY, 44)),
    "comment": (w.COMMENT_W, b"x"),
    "variables": (0x47670007, b"x"),
}


@pytest.mark.parametrize("name", LIES)
def test_four_billion_of_anything(name: str) -> None:
    data = lying(*LIES[name])
    tracemalloc.start()
    read(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 << 20


def test_thousands_of_names_that_are_one_long_text() -> None:
    """5,000 modules whose names all point to the same 64 KiB."""
    blob = w.modules([w.Module("", 0x1000 + 0x1000 * index, 0x1000) for index in range(5000)])
    data = bytearray(w.minidump([(w.MODULES, blob)]))
    text = struct.pack("<I", 65536) + b"x\0" * 32768
    for index in range(5000):
        struct.pack_into("<I", data, 48 + 4 + 108 * index + 20, len(data))
    tracemalloc.start()
    dump = parse(bytes(data) + text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(dump.modules) == 5000
    assert peak < 150 << 20
    assert any("names" in one for one in dump.gaps)


def test_thousands_of_streams_that_are_one() -> None:
    blob = w.memory([(0x1000 * index, b"x") for index in range(2000)])
    data = w.minidump([(w.MEMORY, blob)])
    size, at = struct.unpack_from("<II", data, 36)
    table = b"".join(struct.pack("<III", w.MEMORY, size - index % 3, at) for index in range(4000))
    lie = bytearray(data) + table
    struct.pack_into("<II", lie, 8, 4000, len(data))
    dump = parse(bytes(lie))
    assert len(dump.memory) == 2000
