"""The log tap's filter for each processor, run by an interpreter of its instructions."""

from __future__ import annotations

import struct

import pytest

from necropsy.capture.linux.stderr import seccomp_filter
from necropsy.formats.processors import BY_NAME

ALLOW, ASK = 0x7FFF0000, 0x7FC00000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64 (linux/audit.h)."""
WRITES = {"x86_64": (1, 20), "aarch64": (64, 66)}
"""write(2) and writev(2)."""


def answer(code: bytes, number: int, architecture: int, first: int) -> int:
    """What the filter says to this call: BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K and BPF_RET|BPF_K."""
    data = struct.pack("<iIQ6Q", number, architecture, 0, first, 0, 0, 0, 0, 0)
    at = accumulator = 0
    while True:
        kind, yes, no, value = struct.unpack_from("<HBBI", code, 8 * at)
        if kind == 0x06:
            return int(value)
        if kind == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
            at += 1
        else:
            assert kind == 0x15
            at += 1 + (yes if accumulator == value else no)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_only_writes_to_stderr_ask(name: str) -> None:
    code, architecture = seccomp_filter.program(BY_NAME[name]), ARCHITECTURES[name]
    for number in range(500):
        is_write = number in WRITES[name]
        assert answer(code, number, architecture, 2) == (ASK if is_write else ALLOW)
        assert answer(code, number, architecture, 1) == ALLOW
    # The kernel takes the low half of the register for the descriptor.
    assert answer(code, WRITES[name][0], architecture, 7 << 32 | 2) == ASK


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_calls_of_another_architecture_go_their_way(name: str) -> None:
    code = seccomp_filter.program(BY_NAME[name])
    others = {*ARCHITECTURES.values(), 0x40000003, 0x40000028} - {ARCHITECTURES[name]}
    assert {answer(code, number, other, 2) for number in range(500) for other in others} == {ALLOW}
