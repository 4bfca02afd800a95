"""Secrets in memory are hidden, and what lies beside them is not."""

from __future__ import annotations

import pytest

from necropsy.capture.process.secret_bytes import SecretBytes, heard, masked_log

POINTER = bytes.fromhex("a02b0bd4fd7f0000")


def masked(data: bytes) -> bytes:
    (span,) = SecretBytes().places(data, [data.index(b"TOKEN")])
    return data[span[0] : span[1]]


@pytest.mark.parametrize("left", [b"TOKEN=hunter2-and-more12", b"MY_TOKEN=hunter2"])
def test_a_saved_pointer_behind_what_is_left_of_a_secret_stays(left: bytes) -> None:
    assert len(left) % 8 == 0
    hidden = masked(bytes(8) + left + POINTER + bytes(8))
    assert hidden.startswith(b"hunter2")
    assert left.endswith(hidden)


def test_a_secret_that_ends_like_a_pointer_is_hidden_to_its_end() -> None:
    assert masked(bytes(8) + b"TOKEN=12hunter2-and-morU" + bytes(8)).endswith(b"morU")


@pytest.mark.parametrize("left", [b"assword: 'qwOut\\", b"Twelve12'; all o", b": 'qwOut"])
def test_what_stands_beside_a_secret_of_the_log_is_heard_with_it(left: bytes) -> None:
    """What a vector register held, saved on the stack: its bytes of the secret alone are too few to be found."""
    masked_log("password: 'qwOut\\'Quoted Twelve12'; all of it\n")
    parts = [one[at : at + 8] for one in heard() for at in range(len(one) - 7)]
    assert any(part in left for part in parts)
