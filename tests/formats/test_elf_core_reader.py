from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.errors import InputError
from necropsy.formats import elf_core_reader
from necropsy.formats.elf_core_writer import (
    OWN_NAME,
    OWN_NOTE,
    CoreFile,
    CoreImage,
    CoreSegment,
    CoreThread,
    write_core,
)
from writers import core as written

STACK = 0x7FFC00000000


def small() -> bytes:
    return written.core(
        [
            written.status(71, 11, written.registers(rip=0x401000, rsp=STACK + 64)),
            written.process(70, b"python", b"python train.py"),
            written.siginfo(11, 1, 0x18),
            written.auxv(entry=0x401000, random=STACK + 8),
            written.files(
                [(0x400000, 0x402000, 0, "/usr/bin/python3"), (0x402000, 0x403000, 0x2000, "/usr/bin/python3")]
            ),
            written.status(70),
        ],
        [(0x400000, 0x2000, 5, b"\x7fELF"), (STACK, 0x1000, 6, b"s" * 0x1000)],
    )


def test_what_a_core_of_the_kernel_says() -> None:
    core = elf_core_reader.parse(small())
    assert [(one.tid, one.signal) for one in core.threads] == [(71, 11), (70, 0)]
    assert struct.unpack_from("<Q", core.threads[0].registers, 16 * 8) == (0x401000,)
    assert (core.pid, core.name, core.arguments) == (70, "python", "python train.py")
    assert core.siginfo is not None
    assert struct.unpack_from("<iii4xQ", core.siginfo) == (11, 0, 1, 0x18)
    assert core.files[1] == CoreFile(0x402000, 0x403000, 0x2000, "/usr/bin/python3")
    assert [(one.low, one.high, one.size, one.permissions) for one in core.loads] == [
        (0x400000, 0x402000, 4, "r-x"),
        (STACK, STACK + 0x1000, 0x1000, "rw-"),
    ]
    assert (core.own, core.missing) == (None, 0)


def test_what_is_cut_off_is_counted() -> None:
    whole = small()
    core = elf_core_reader.parse(whole[:-100])
    assert core.missing == 100
    assert core.loads[1].size == 0x1000 - 100
    assert len(elf_core_reader.parse(whole[:600]).threads) < 2


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not an ELF core"),
        (b"MZ" + bytes(100), "not an ELF core"),
        (b"\x7fELF\x01\x01" + bytes(100), "64-bit"),
        (written.core([], [], kind=2), "no core"),
        (written.core([], [], machine=243), "RISC-V"),
        (small()[:64], "before its program headers"),
    ],
)
def test_what_is_no_core_is_refused_in_one_line(data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        elf_core_reader.parse(data)
    assert "\n" not in str(caught.value)


def test_segments_that_lie_over_each_other_are_told_apart() -> None:
    data = written.core(
        [written.status(1)], [(0x1000, 0x3000, 6, b"a"), (0x2000, 0x1000, 6, b"b"), (0x9000, 0, 6, b"")]
    )
    assert [(one.low, one.high) for one in elf_core_reader.parse(data).loads] == [(0x1000, 0x4000)]


@pytest.mark.parametrize("own", [b"", b"x", b"\x78\x9c" + bytes(40), bytes(100)])
def test_a_damaged_note_of_our_own_is_passed_over(own: bytes) -> None:
    data = written.core([written.status(1), written.note(OWN_NOTE, own, OWN_NAME)], [(0x1000, 0x1000, 6, b"a")])
    assert elf_core_reader.parse(data).own is None


@given(st.binary(max_size=64), st.integers(0, 900), st.integers(0, 900))
def test_any_damage_is_an_input_error_or_a_smaller_core(patch: bytes, at: int, end: int) -> None:
    data = small()
    damaged = data[:at] + patch + data[at + len(patch) :]
    for each in (damaged, damaged[: len(damaged) - end * 5]):
        try:
            core = elf_core_reader.parse(each)
        except InputError:
            continue
        assert all(one.offset + one.size <= len(each) or not one.size for one in core.loads)
        assert all(one.high <= two.low for one, two in zip(core.loads, core.loads[1:], strict=False))


def pieces(data: bytes) -> Callable[[], list[bytes]]:
    return lambda: [data[:5], data[5:]]


SEGMENTS = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(1, 4), st.binary(max_size=9000)),
    max_size=8,
    unique_by=lambda one: one[0],
)


@given(SEGMENTS, st.lists(st.integers(1, 1 << 22), min_size=1, max_size=5, unique=True), st.binary(max_size=600))
def test_what_was_written_is_read(segments: list[tuple[int, int, bytes]], tids: list[int], floating: bytes) -> None:
    room = [(at * 0x10000, at * 0x10000 + pages * 4096, data[: pages * 4096]) for at, pages, data in segments]
    image = CoreImage(
        pid=tids[0],
        name="a name of more than 15 letters",
        arguments="x" * 200,
        threads=[CoreThread(tid, bytes([tid % 251]) * 216, 6 * (tid == tids[0]), floating) for tid in tids],
        segments=[CoreSegment(low, high, size=len(data), read=pieces(data)) for low, high, data in room],
        files=[CoreFile(low, high, 4096, f"/lib/{low}.so") for low, high, _ in room],
        auxv=bytes(32),
        siginfo=bytes(128),
    )
    raw = b"".join(write_core(image))
    core = elf_core_reader.parse(raw)
    assert [one.tid for one in core.threads] == tids
    assert [one.registers[0] for one in core.threads] == [tid % 251 for tid in tids]
    assert (core.name, core.pid, core.missing) == ("a name of more", tids[0], 0)
    assert core.files == image.files
    read = [(one.low, one.high, raw[one.offset : one.offset + one.size]) for one in core.loads]
    assert read == sorted(room)


def test_what_cannot_be_written_is_refused() -> None:
    thread = CoreThread(1, bytes(216))
    with pytest.raises(ValueError, match="thread"):
        list(write_core(CoreImage(1, "", "", [], [])))
    with pytest.raises(ValueError, match="216"):
        list(write_core(CoreImage(1, "", "", [CoreThread(1, b"")], [])))
    with pytest.raises(ValueError, match="mapping"):
        list(write_core(CoreImage(1, "", "", [thread], [CoreSegment(0x1000, 0x2000, size=0x2000)])))


def test_a_segment_that_yields_less_than_it_said_moves_no_other() -> None:
    segments = [
        CoreSegment(0x1000, 0x3000, size=0x2000, read=lambda: [b"x"]),
        CoreSegment(0x5000, 0x6000, size=1, read=lambda: [b"y"]),
    ]
    raw = b"".join(write_core(CoreImage(1, "", "", [CoreThread(1, bytes(216))], segments)))
    core = elf_core_reader.parse(raw)
    assert raw[core.loads[0].offset : core.loads[0].offset + 2] == b"x\0"
    assert raw[core.loads[1].offset : core.loads[1].offset + 1] == b"y"
