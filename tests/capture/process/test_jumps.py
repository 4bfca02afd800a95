"""The one jump to a place in a library's code is found as looking at each byte finds it."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.process.code_constants import jumps_to

JUMP = re.compile(rb"(?=(?:\xe9|\x0f[\x80-\x8f])(.{4}))", re.DOTALL)
OPCODES = (b"\xe9", b"\x0f\x84", b"\x0f\x8f", b"\x0f\x90", b"\x8f", b"\x0f")


def at_each_byte(target: int, code: bytes) -> list[int]:
    ends = (match.end(1) for match in JUMP.finditer(code))
    return [end for end in ends if end + int.from_bytes(code[end - 4 : end], "little", signed=True) == target]


@given(
    length=st.integers(0, 200_000),
    target=st.integers(0, 200_000),
    filled_with=st.sampled_from((b"\0", b"\xff", b"\x90", b"\x0f", b"\x01\xff\0")),
    jumps=st.lists(st.tuples(st.sampled_from(OPCODES), st.integers(0, 200_000), st.integers(-1, 1)), max_size=8),
)
def test_jumps(length: int, target: int, filled_with: bytes, jumps: list[tuple[bytes, int, int]]) -> None:
    code = bytearray((filled_with * length)[:length])
    for opcode, at, beside in jumps:
        end = at + len(opcode) + 4
        code[at:end] = opcode + (target + beside - end).to_bytes(4, "little", signed=True)
    assert sorted(jumps_to(target, bytes(code))) == at_each_byte(target, bytes(code))


def test_a_jump_that_is_the_first_instruction() -> None:
    code = b"\xe9" + (100 - 5).to_bytes(4, "little") + b"\x90" * 200
    assert list(jumps_to(100, code)) == [5]


def test_what_is_at_the_end_is_not_in_front_of_the_first_byte() -> None:
    code = b"\x84" + (100 - 5).to_bytes(4, "little") + b"\x90" * 200 + b"\x0f"
    assert list(jumps_to(100, code)) == []
