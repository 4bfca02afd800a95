"""What a stopped thread waits for, from the registers and the code that AArch64's kernel leaves."""

from __future__ import annotations

import struct

import pytest

from necropsy.capture.linux.inspect import waits
from necropsy.capture.process.memory import Memory, Registers
from necropsy.formats.processors import AARCH64

CODE, NOBODY = 0x4000, -1
NOP, SVC = 0xD503201F, 0xD4000001
EINTR = (1 << 64) - 4


class Code(Memory):
    """Instructions at ``CODE``, and words at other addresses."""

    processor = AARCH64

    def __init__(self, *instructions: int, words: dict[int, bytes] | None = None) -> None:
        self._parts = {CODE: struct.pack(f"<{len(instructions)}I", *instructions), **(words or {})}

    def some(self, address: int, size: int) -> bytes:
        for low, data in self._parts.items():
            if low <= address < low + len(data):
                return data[address - low :][:size]
        return b""


def move(number: int) -> int:
    """``mov x8, #number``."""
    return 0xD2800008 | number << 5


def standing(at: int, number: int, *arguments: int) -> Registers:
    """At the instruction ``at``, with the number of a system call and its arguments."""
    values = dict.fromkeys(AARCH64.live, 0) | {"x8": number, "pc": CODE + 4 * at}
    values |= {f"x{place}": value for place, value in enumerate(arguments)}
    return Registers(values, AARCH64)


def test_a_call_that_is_made_again_is_waited_in_with_all_its_arguments() -> None:
    code = Code(move(98), SVC, NOP, words={0x9000: struct.pack("<3i", 2, 0, 4711)})
    now = standing(1, 98, 0x9000, 0x80, 2, 0)
    found = waits.of(NOBODY, now, code, ["__pthread_mutex_lock", "pthread_mutex_lock"])
    assert found is not None
    assert (found.call, found.address, found.owner, found.limited, found.ended) == ("futex", 0x9000, 4711, False, False)


def test_of_a_call_that_was_interrupted_for_good_the_first_argument_is_lost() -> None:
    found = waits.of(NOBODY, standing(2, 22, EINTR), Code(move(22), SVC, NOP), [])
    assert found is not None
    assert (found.call, found.on, found.ended) == ("epoll_pwait", None, False)


def test_a_call_that_has_returned_is_over() -> None:
    found = waits.of(NOBODY, standing(2, 101, 0), Code(move(101), SVC, NOP), [])
    assert found is not None
    assert (found.call, found.ended) == ("nanosleep", True)


@pytest.mark.parametrize("instruction", [move(115), 0x52800008 | 115 << 5])
def test_a_restarted_call_is_named_by_the_code_before_it(instruction: int) -> None:
    code = Code(NOP, NOP, NOP, instruction, NOP, SVC, NOP)
    found = waits.of(NOBODY, standing(5, 128, 0, 0, 0x9000), code, [])
    assert found is not None
    assert (found.call, found.ended) == ("clock_nanosleep", False)


def test_code_of_its_own_is_no_wait() -> None:
    assert waits.of(NOBODY, standing(1, 98, 0x9000), Code(move(98), NOP, NOP), []) is None
