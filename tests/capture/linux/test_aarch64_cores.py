"""Cores of AArch64, made by a kernel for it (``aarch64/make_cores.py``) and opened on any machine."""

from __future__ import annotations

import lzma
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from aarch64_deaths import ALIKE
from necropsy.capture import open_core
from necropsy.capture.linux.core.core_target import CoreTarget
from necropsy.capture.linux.unwind import cfi_step
from necropsy.capture.process import cfi_unwinder, recursion_skip
from necropsy.diagnose import diagnose
from necropsy.formats import elf_core_reader
from necropsy.model import Crash, Report
from necropsy.rules import crash_rules
from writers import core as written

HERE = Path(__file__).parent / "aarch64"
PROGRAM = "dies"
OF_LIBC = "libc.so.6"
_NT_PRSTATUS, _NT_ARM_TLS, _NT_ARM_PAC_MASK, _NT_AUXV = 1, 0x401, 0x406, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where cores are unpacked beside the program that died; the libraries of its machine are not there."""
    found = tmp_path_factory.mktemp("aarch64")
    (found / PROGRAM).write_bytes(lzma.decompress((HERE / f"{PROGRAM}.xz").read_bytes()))
    return found


def opened(folder: Path, name: str) -> Crash:
    place = folder / f"{name}.core.xz"
    place.write_bytes((HERE / "cores" / place.name).read_bytes())
    return open_core.read(place)


def judged(crash: Crash) -> Report:
    return diagnose(crash, crash_rules())


def own_frames(crash: Crash) -> list[str]:
    """The functions of the program itself, innermost first, without what repeats."""
    frames = crash.threads[0].frames if crash.threads else None
    names = [frame.function or "?" for frame in frames or () if frame.module == PROGRAM]
    return list(dict.fromkeys(names))


@pytest.mark.parametrize(
    ("name", "verdict", "frames", "says"),
    [
        *ALIKE,
        # The instruction is in a C library that is not at hand: nobody knows that it writes.
        ("readonly", "invalid-read possible", ["fill", "main", "_start"], "used address"),
        ("recursion", "stack-overflow-recursion certain", ["even", "odd", "main", "_start"], "called each other"),
        ("abort", "abort likely", ["main", "_start"], "abort"),
        ("exception", "abort likely", ["main", "_start"], "abort"),
    ],
)
def test_a_death_on_aarch64_is_told_as_on_x86_64(
    folder: Path, name: str, verdict: str, frames: list[str] | None, says: str
) -> None:
    crash = opened(folder, name)
    found = judged(crash).verdict
    assert found is not None
    assert f"{found.rule} {found.confidence}" == verdict
    assert says in found.summary
    assert frames is None or own_frames(crash) == frames
    assert crash.registers is not None
    assert list(crash.registers)[:4] == ["pc", "sp", "fp", "lr"]
    assert crash.threads is not None
    stack = crash.threads[0].stack
    assert stack is not None
    assert stack.high is not None


@pytest.mark.parametrize(
    ("name", "verdict", "frames", "says"),
    [
        ("null-read", "null-dereference certain", ["read_null", "reads_below", "main", "_start"], "at an offset of 16"),
        ("pac", "invalid-read certain", ["authenticate", "main", "_start"], "the signature of the pointer was wrong"),
        ("python", "null-dereference certain", [], "through a null pointer"),
    ],
)
def test_a_small_core_that_necropsy_has_kept_on_aarch64(
    folder: Path, name: str, verdict: str, frames: list[str], says: str
) -> None:
    """Written by ``run --core small`` in the emulated machine; Python's is of ``ctypes.string_at(8)``."""
    crash = open_core.read(HERE / "small" / f"{name}.core.gz", images=(folder,))
    found = judged(crash).verdict
    assert found is not None
    assert f"{found.rule} {found.confidence}" == verdict
    assert says in found.summary
    assert own_frames(crash) == frames
    assert crash.threads is not None
    assert not [frame for frame in crash.threads[0].frames or () if frame.module is None]


def test_a_read_is_told_from_a_write_by_the_instruction(folder: Path) -> None:
    seen = {name: opened(folder, name) for name in ("null-read", "null-write")}
    assert {name: crash.fault.access for name, crash in seen.items() if crash.fault} == {
        "null-read": "read",
        "null-write": "write",
    }
    read = seen["null-read"].instruction
    assert read is not None
    assert read.mnemonic == "ldr"
    assert [(one.text, one.address, one.size) for one in read.operands] == [("[x0 + 0x10]", 0x10, 4)]


def test_half_a_million_signed_frames_are_followed_and_folded(folder: Path) -> None:
    crash = opened(folder, "deep-recursion")
    assert crash.threads is not None
    thread = crash.threads[0]
    assert thread.frames_total is not None
    assert thread.frames_total > 500_000
    assert thread.complete
    assert [fold.functions for fold in thread.folds] == [("dig",)]
    assert thread.folds[0].bytes_per_period == 16
    assert own_frames(crash) == ["dig", "main", "_start"]


@pytest.mark.parametrize(
    ("name", "rule"),
    [("null-write", "null-dereference"), ("recursion", "stack-overflow-recursion"), ("double-free", "double-free")],
)
def test_without_any_file_of_that_machine_the_chain_of_frame_pointers_leads_on(
    tmp_path: Path, name: str, rule: str
) -> None:
    """What lies under the same paths here is for another processor, and is not used."""
    crash = opened(tmp_path, name)
    verdict = judged(crash).verdict
    assert verdict is not None
    assert verdict.rule == rule
    assert crash.threads is not None
    thread = crash.threads[0]
    assert thread.complete
    assert {frame.module for frame in thread.frames or ()} == {PROGRAM, OF_LIBC}
    assert all(frame.function is None for frame in thread.frames or ())
    assert any(gap.part == "modules" and PROGRAM in gap.why for gap in crash.gaps) or len(crash.gaps) > 1


def test_files_lie_beside_the_core_with_their_whole_paths_too(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt" / PROGRAM).write_bytes((folder / PROGRAM).read_bytes())
    assert own_frames(opened(tmp_path, "null-write")) == ["write_null", "main", "_start"]


def test_files_are_found_in_the_folders_that_are_named(tmp_path: Path, folder: Path) -> None:
    place = tmp_path / "null-write.core.xz"
    place.write_bytes((HERE / "cores" / place.name).read_bytes())
    crash = open_core.read(place, images=[folder])
    assert own_frames(crash) == ["write_null", "main", "_start"]


def test_another_file_of_the_same_name_is_not_used(tmp_path: Path, folder: Path) -> None:
    changed = bytearray((folder / PROGRAM).read_bytes())
    note = re.search(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", changed)
    assert note is not None
    changed[note.end()] ^= 1
    (tmp_path / PROGRAM).write_bytes(changed)
    crash = opened(tmp_path, "null-write")
    assert set(own_frames(crash)) == {"?"}


def a_thread(tid: int, *, pc: int, sp: int, pointer: int) -> list[bytes]:
    """The notes of one thread, as the kernel for AArch64 writes them."""
    status = bytearray(112 + 34 * 8 + 8)
    struct.pack_into("<h", status, 12, 11)
    struct.pack_into("<i", status, 32, tid)
    struct.pack_into("<QQ", status, 112 + 31 * 8, sp, pc)
    mask = struct.pack("<QQ", 0x7F << 48, 0x7F << 48)
    return [
        written.note(_NT_PRSTATUS, bytes(status)),
        written.note(_NT_ARM_TLS, struct.pack("<Q", pointer), b"LINUX"),
        written.note(_NT_ARM_PAC_MASK, mask, b"LINUX"),
    ]


@pytest.mark.parametrize("page", [4096, 16384, 65536])
def test_pages_are_as_large_as_the_core_says(page: int) -> None:
    stack = 0xFFFFF0000000
    auxv = struct.pack("<QQQQQQ", 6, page, 25, stack + 0x8000, 0, 0)
    notes = [*a_thread(7, pc=0x10000, sp=stack + 0x100, pointer=0xABC0), written.note(_NT_AUXV, auxv)]
    data = written.core(notes, [(stack, 0x10000, 6, bytes(0x10000))], machine=183)
    target = CoreTarget(elf_core_reader.parse(data), data, 0.0)
    assert target.memory.page == page
    now = target.registers(7)
    assert (now.pc, now.sp, now.thread_pointer) == (0x10000, stack + 0x100, 0xABC0)
    assert now.processor.link_mask == (1 << 48) - 1


@pytest.mark.parametrize("name", ["recursion", "deep-recursion"])
def test_windows_of_signed_return_addresses_are_compared_and_say_what_each_frame_says(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def times(*words: Any) -> int:
        counted.append(recursion_skip.times(*words))
        return counted[-1]

    monkeypatch.setattr(cfi_unwinder, "times", times)
    monkeypatch.setattr(
        cfi_step, "WINDOW", 1 << 16
    )  # a quarter of the stack of the shorter one, which has signed frames
    quick = opened(folder, name)
    assert sum(counted) > 1000
    monkeypatch.setattr(recursion_skip.StackPeriod, "unit", lambda _self: None)
    one_by_one = opened(folder, name)
    assert quick.threads is not None
    assert one_by_one.threads is not None
    ours, theirs = quick.threads[0], one_by_one.threads[0]
    assert (ours.frames_total, ours.folds) == (theirs.frames_total, theirs.folds)
    assert ours.frames == theirs.frames
