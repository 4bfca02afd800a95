"""Where AArch64 code has its return address. Encodings: as ``aarch64-linux-gnu-objdump`` shows them in musl's libc."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from necropsy.formats import arm64_code

ZERO, STORE, TRAP = 0xD2800000, 0x3900001F, 0xD4207D00
"""``mov x0, #0``, ``strb wzr, [x0]``, ``brk #0x3e8``: musl's ``__stack_chk_fail``."""
FRAME, CALL, RETURN = 0xA9BC7BFD, 0x94000153, 0xD65F03C0
"""``stp x29, x30, [sp, #-64]!``, ``bl`` to 0x54c further on, ``ret``"""
BEGIN = 0x400990


def code_of(words: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ((ZERO, STORE, TRAP), True),
        ((FRAME, STORE, TRAP), False),
        ((CALL, STORE, TRAP), False),
        ((ZERO,), True),
        ((), False),
    ],
)
def test_the_return_address_is_kept_until_a_call_or_a_frame(words: Sequence[int], kept: bool) -> None:
    code = code_of(words)
    found = arm64_code.kept_since(lambda at: code[at - BEGIN : at - BEGIN + 4], BEGIN, BEGIN + 4)
    assert found == kept


def test_functions_that_begin_elsewhere_were_not_called_here() -> None:
    code = code_of([ZERO] * 1000)
    assert not arm64_code.kept_since(lambda at: code[at - BEGIN : at - BEGIN + 4], BEGIN, BEGIN - 4)
    assert not arm64_code.kept_since(lambda at: code[at - BEGIN : at - BEGIN + 4], BEGIN, BEGIN + 3996)


@pytest.mark.parametrize(("words", "link"), [((ZERO, TRAP), None), ((ZERO, RETURN), "live"), ((CALL, RETURN), "saved")])
def test_the_code_ahead_shows_where_the_return_address_is(words: Sequence[int], link: str | None) -> None:
    code = code_of(words)
    assert arm64_code.link(lambda at: code[at - BEGIN : at - BEGIN + 4], BEGIN) == link
    assert arm64_code.call_target(CALL, 0x400444) == BEGIN
