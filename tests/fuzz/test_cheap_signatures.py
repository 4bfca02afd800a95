"""Deaths that are probably the same have the same cheap signature; others do not."""

from __future__ import annotations

import pytest

from necropsy.fuzz.cheap_signature import death
from necropsy.fuzz.function_names import without_types

CHECK = "2026-11-23 15:00:00.1: F tensorflow/core/framework/tensor.cc:853] Check failed: 2 == NumElements() (2 vs. 3)"


@pytest.mark.parametrize(
    ("answer", "log", "signature", "said"),
    [
        (
            {"signal": 6, "place": "op.so+0x1"},
            CHECK,
            "check tensor.cc:853",
            "Check failed: 2 == NumElements() (2 vs. 3)",
        ),
        (
            {"signal": 6, "place": "op.so f"},
            "terminate called after throwing an instance of 'std::out_of_range'\n  what():  stoi",
            "exception std::out_of_range op.so f",
            "std::out_of_range",
        ),
        (
            {"signal": 6, "place": None},
            "free(): invalid next size (fast)\n",
            "glibc free(): invalid next size (fast)",
            None,
        ),
        ({"signal": 6}, "a.out: op.cc:12: int f(int): Assertion `n > 3' failed.", "assertion op.cc:12", "n > 3"),
        ({"signal": 11, "place": "op.so f"}, CHECK, "SIGSEGV op.so f", None),
        ({"signal": 11, "place": "op.so f", "stack": True}, "", "SIGSEGV stack", "the stack was full"),
        ({"signal": None, "code": 3}, "", "exit 3", "it ended with exit code 3"),
    ],
)
def test_signatures(answer: dict[str, object], log: str, signature: str, said: str | None) -> None:
    found = death(answer, log)
    assert found.signature == signature
    assert said is None or found.said == said


def test_want_of_memory_is_told_apart() -> None:
    log = "terminate called after throwing an instance of 'std::bad_alloc'\n"
    assert death({"signal": 6}, log).is_for_want_of_memory
    assert not death({"signal": 6}, CHECK).is_for_want_of_memory


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        ("sketch::GatherOp<float, std::vector<int> >::Compute(Context*)", "sketch::GatherOp::Compute"),
        (
            "Op::Compute(Context*)::{lambda(long, long)#1}::operator()(long, long) const",
            "Op::Compute::{lambda#1}::operator_call const",
        ),
        ("main", "main"),
    ],
)
def test_functions_without_types(function: str, plain: str) -> None:
    assert without_types(function) == plain
