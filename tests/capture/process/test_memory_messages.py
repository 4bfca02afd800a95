"""The text of a failed CHECK that is left in memory."""

from __future__ import annotations

import pytest

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.memory_messages import MemoryPiece, check_text
from necropsy.model import Address, Stack

LOW, SIZE = 0x7FFF_0000_0000, 4096


class OneStack(Memory):
    """A stack with these bytes at its innermost end; nothing else is mapped."""

    def __init__(self, data: bytes) -> None:
        self.data = data.ljust(SIZE, b"\0")

    def some(self, address: int, size: int) -> bytes:
        at = address - LOW
        return self.data[at : at + size] if 0 <= at < SIZE else b""

    def at(self, address: int) -> MemoryPiece | None:
        del address
        return None


def left(data: bytes) -> str | None:
    memory = OneStack(data)
    return check_text(memory, memory, Stack(pointer=Address(LOW), low=Address(LOW), high=Address(LOW + SIZE)))


@pytest.mark.parametrize("remains", [b"\0", b"&\0", b"a\0", b"\xff\0", b" &\0"])
def test_what_lay_in_the_buffer_before_is_no_message(remains: bytes) -> None:
    assert left(b"junk\0Check failed: d < dims() (1 vs. 1)" + remains) == "Check failed: d < dims() (1 vs. 1)"


@pytest.mark.parametrize(
    "line", ["Check failed: n > 0 (-1 vs. 0)no rows", "Check failed: f(x) (f(1) vs. (2)) bad", "Check failed: x"]
)
def test_words_of_the_author_stay(line: str) -> None:
    assert left(line.encode() + b"\0") == line


def test_the_longest_is_the_message() -> None:
    assert (
        left(b"Check failed: d < dims()\0Check failed: d < dims() (1 vs. 1)\0") == "Check failed: d < dims() (1 vs. 1)"
    )


def test_where_none_is_left() -> None:
    assert left(b"checks failed: 1\0") is None
