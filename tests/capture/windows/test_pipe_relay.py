"""The memory in which a relay keeps the end of what it passes on. The relay itself is tested with the supervisor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.windows.pipe_relay import KEPT, RelayRing

LENGTHS = st.lists(st.sampled_from([0, 1, 2, 1000, KEPT - 1, KEPT, KEPT + 1, 3 * KEPT + 7]), max_size=12)


@given(LENGTHS)
def test_the_end_of_all_that_was_appended_is_kept(lengths: list[int]) -> None:
    ring, whole = RelayRing(bytearray(RelayRing.SIZE)), b""
    for number, length in enumerate(lengths):
        data = bytes((number * 7 + index) % 251 for index in range(length))
        ring.append(data)
        whole += data
    assert ring.tail() == whole[-KEPT:]


def test_questions_and_bytes_do_not_touch() -> None:
    ring = RelayRing(bytearray(RelayRing.SIZE))
    ring.append(b"a" * KEPT)
    ring.answer(7)
    ring.append(b"b")
    assert ring.answered == 7
    assert ring.tail() == b"a" * (KEPT - 1) + b"b"
    ring.answer((1 << 64) - 1)
    assert ring.answered == (1 << 64) - 1
