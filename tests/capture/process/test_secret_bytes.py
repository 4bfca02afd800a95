"""Secrets in memory are hidden, and what lies beside them is not."""

from __future__ import annotations

import pytest

from necropsy.capture.process.secret_bytes import SecretBytes

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
