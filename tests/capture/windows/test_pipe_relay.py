"""The memory in which a relay keeps the end of what it passes on, and the wait for it.

The relay itself is tested with the supervisor.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.windows import stderr_pipe
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


@pytest.mark.parametrize(
    ("writing", "relay", "waited_s"),
    [
        (False, lambda ring, s: ring.answer(int(s >= 20)), 20),
        (True, lambda ring, s: (ring.append(b"x"), ring.answer(int(s >= 20))), 20),
        (True, lambda _ring, _s: None, None),
        (False, lambda _ring, _s: None, None),
    ],
    ids=["not run for 20 s", "in many writes", "nobody reads", "does not answer"],
)
def test_only_a_relay_that_nobody_reads_from_is_given_up_soon(
    writing: bool, relay: Callable[[RelayRing, float], object], waited_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time in which a full machine does not let the relay run is no sign of that."""
    ring, now_s = RelayRing(bytearray(RelayRing.SIZE)), [0.0]

    def sleep(_seconds: float) -> None:
        now_s[0] += 0.5
        relay(ring, now_s[0])

    monkeypatch.setattr(stderr_pipe, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    ring.begin()
    ring.mark_writing(writing)
    assert stderr_pipe.is_answered(ring, 1, stands_s=2, longest_s=30) is (waited_s is not None)
    assert now_s[0] == (waited_s or (2.5 if writing else 30.5))
