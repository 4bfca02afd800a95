"""Deaths that are probably the same have the same cheap signature; others do not."""

from __future__ import annotations

import pytest

from necropsy.fuzz.cheap_signature import death
from necropsy.fuzz.function_names import without_types

CHECK = "2026-11-23 15:00:00.1: F tensorflow/core/framework/tensor.cc:853] Check failed: 2 == NumElements() (2 vs. 3)"
OUT_OF_BOUNDS = "runtime error: index 10 out of bounds for type 'float[10]'"


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
        (
            {"signal": 6, "place": "op.so Compute"},
            "SUMMARY: AddressSanitizer: stack-buffer-overflow (/tmp/op.so+0x9f71) in Compute",
            "sanitizer stack-buffer-overflow op.so Compute",
            "AddressSanitizer: stack-buffer-overflow",
        ),
        (
            {"signal": 6, "place": "op.so Compute"},
            "op.cc:25:21: runtime error: index 10 out of bounds for type 'float [10]'\n",
            "sanitizer undefined op.so Compute",
            "runtime error: index 10 out of bounds for type 'float [10]'",
        ),
        (
            {"signal": 6, "place": "op.so Compute"},
            f"op.cc:25:21: {OUT_OF_BOUNDS}\nSUMMARY: UndefinedBehaviorSanitizer: undefined-behavior op.cc:25:21 in \n",
            "sanitizer undefined op.so Compute",
            OUT_OF_BOUNDS,
        ),
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
    log = "==7==ERROR: AddressSanitizer: {}\nSUMMARY: AddressSanitizer: {} (/tmp/op.so+0x9f71) in Compute\n"
    assert death({"signal": 6}, log.format("requested", "allocation-size-too-big")).is_for_want_of_memory
    assert not death({"signal": 6}, log.format("heap-buffer-overflow", "heap-buffer-overflow")).is_for_want_of_memory


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


@pytest.mark.parametrize(
    ("status", "log", "signature", "signal", "caught"),
    [
        (0xC0000005, "", "status 0xC0000005 b.py:3", "SIGSEGV", None),
        (0xC0000005, "exception: access violation reading 0x8\n", "status 0xC0000005 b.py:3", "SIGSEGV", 0xC0000005),
        (0xC00000FD, "", "SIGSEGV stack", "SIGSEGV", None),
        (0xC0000374, "", "heap 0xC0000374 b.py:3", None, None),
        (0xC0000409, "", "status 0xC0000409 b.py:3", "SIGABRT", None),
        (3, "", "status 0x00000003 b.py:3", "SIGABRT", None),
        (3, "F0000 b.cc:7] Check failed: n > 0\n", "check b.cc:7", "SIGABRT", None),
        (5, "", "exit 5", None, None),
    ],
)
def test_a_windows_process(status: int, log: str, signature: str, signal: str | None, caught: int | None) -> None:
    found = death({"status": status, "place": "b.py:3"}, log)
    assert (found.signature, found.signal, found.caught) == (signature, signal, caught)
    assert found.of_the_heap is signature.startswith("heap ")
    assert found.of_the_stack is signature.endswith(" stack")
