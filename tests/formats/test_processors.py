"""Numbers of processors, held against the kernel's own tables and layouts."""

from __future__ import annotations

import struct

import pytest

from necropsy.data import table
from necropsy.formats import elf_core_reader
from necropsy.formats.elf_core_writer import CoreImage, CoreSegment, CoreThread, write_core
from necropsy.formats.processors import AARCH64, X86_64, Processor

BOTH = pytest.mark.parametrize("processor", [X86_64, AARCH64], ids=lambda one: one.name)
LITTLE_ENDIAN_64 = 0x40000000 | 0x80000000
"""``__AUDIT_ARCH_LE | __AUDIT_ARCH_64BIT`` (linux/audit.h)."""


@BOTH
def test_the_numbers_of_system_calls_are_the_kernels(processor: Processor) -> None:
    numbers = {name: int(number) for number, name in table("syscalls.json")[processor.name].items()}
    assert processor.calls == {name: numbers[name] for name in processor.calls}
    assert processor.clones == {numbers[name] for name in ("clone", "clone3")}


@BOTH
def test_a_filter_knows_it_by_its_machine(processor: Processor) -> None:
    assert processor.audit == processor.machine | LITTLE_ENDIAN_64


@BOTH
def test_registers_are_read_by_name(processor: Processor) -> None:
    raw = struct.pack(f"<{len(processor.live)}Q", *range(1000, 1000 + len(processor.live)))
    assert processor.parse(raw)[processor.counter] == processor.word(raw, processor.counter)
    assert processor.parse(raw)[processor.thread_pointer] == processor.word(raw, processor.thread_pointer)
    assert processor.pack(processor.parse(raw)) == raw[: processor.size]
    with pytest.raises(struct.error):
        processor.parse(raw[: processor.size - 1])


def test_those_of_aarch64_lie_as_in_user_pt_regs() -> None:
    # struct user_pt_regs { __u64 regs[31]; __u64 sp; __u64 pc; __u64 pstate; } and what NT_ARM_TLS and
    # NT_ARM_SYSTEM_CALL say, the latter an int.
    raw = struct.pack("<31QQQQ", *range(31), 0x7000, 0x4000, 0x60000000) + struct.pack("<Qii", 0x1234, -1, 0)
    values = AARCH64.parse(raw)
    assert {name: values[name] for name in ("x0", "x8", "x28", "fp", "lr")} == {
        "x0": 0,
        "x8": 8,
        "x28": 28,
        "fp": 29,
        "lr": 30,
    }
    assert [values[name] for name in ("sp", "pc", "pstate", "tpidr_el0")] == [0x7000, 0x4000, 0x60000000, 0x1234]
    assert AARCH64.in_call(raw) is None
    assert AARCH64.in_call(raw[:-8] + struct.pack("<ii", 94, 0)) == 94


def test_a_thread_is_in_the_call_that_its_number_says() -> None:
    outside = X86_64.pack(dict.fromkeys(X86_64.status, 0) | {"orig_rax": (1 << 64) - 1})
    assert X86_64.in_call(outside) is None
    assert X86_64.in_call(X86_64.pack(dict.fromkeys(X86_64.status, 0) | {"orig_rax": 231})) == 231


def test_a_core_for_aarch64_is_written_and_read() -> None:
    registers = struct.pack("<31QQQQ", *range(31), 0x7000, 0x4000, 0)
    threads = [CoreThread(7, registers, 11, bytes(AARCH64.floating_size), 0x1234), CoreThread(8, registers)]
    stack = CoreSegment(0x7000, 0x8000, writable=True, size=4, read=lambda: [b"here"])
    image = CoreImage(7, "train", "train --fast", threads, [stack], processor=AARCH64)
    core = elf_core_reader.parse(b"".join(write_core(image)))
    assert core.processor.name == "aarch64"
    assert [(one.tid, one.registers, one.thread_pointer) for one in core.threads] == [
        (7, registers, 0x1234),
        (8, registers, None),
    ]
    assert [(one.low, one.high) for one in core.loads] == [(0x7000, 0x8000)]


def test_registers_of_another_processor_are_refused() -> None:
    image = CoreImage(7, "train", "", [CoreThread(7, bytes(X86_64.size))], [], processor=AARCH64)
    with pytest.raises(ValueError, match="272 bytes"):
        list(write_core(image))
