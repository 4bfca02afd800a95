"""What a log says of the end of a call: the kind of death, its words, and where it was."""

from __future__ import annotations

import pytest

from necropsy.prove.outcomes import CallDeath, death
from necropsy.prove.predictions import PREDICTIONS

OVERFLOW = """AddressSanitizer:DEADLYSIGNAL
=================================================================
==27785==ERROR: AddressSanitizer: stack-overflow on address 0x7fc0b9fffff8 (pc 0x7fc0bea976e0 bp 0x1 sp 0x7fc0ba0 T2)
    #0 0x7fc0bea976e0 in SumDown /home/u/count_down.cc:15
    #1 0x7fc0bea976e4 in CountDownOp::Compute(tensorflow::OpKernelContext*) /home/u/count_down.cc:31
"""
CHECK = """2026-11-23 02:44:01.123456: F /home/u/add.cc:23] Check failed: a == b (1 vs. 4)
AddressSanitizer:DEADLYSIGNAL
==5==ERROR: AddressSanitizer: ABRT on unknown address 0x03e800001 (pc 0x7f bp 0x1 sp 0x7f T0)
    #0 0x7fda3e6a8eec in __pthread_kill_implementation nptl/pthread_kill.c:44
    #1 0x7fda3e659fb1 in AddOp::Compute(tensorflow::OpKernelContext*) /home/u/add.cc:23
"""
UNDEFINED = "/home/u/size.cc:12:20: runtime error: signed integer overflow: 2147483647 + 1 cannot be represented\n"


@pytest.mark.parametrize(
    ("log", "code", "kind", "said", "place"),
    [
        (OVERFLOW, 1, "stack-overflow", "AddressSanitizer: stack-overflow in SumDown at count_down.cc:15", 15),
        (CHECK, 1, "ABRT", "Check failed: a == b (1 vs. 4) (add.cc:23)", 23),
        (UNDEFINED, 1, "undefined", "UndefinedBehaviorSanitizer: signed integer overflow: 2147483647 + 1", 12),
    ],
)
def test_what_a_report_says(log: str, code: int, kind: str, said: str, place: int) -> None:
    found = death("ops.A()", "died", code, log)
    assert (found.kind, found.said[: len(said)]) == (kind, said)
    source = next(one.source for one in found.frames if one.line == place)
    assert source is not None
    assert found.passes(source, place, place)
    assert not found.passes(source, place + 1, place + 9)
    assert not found.passes("/elsewhere/other.cc", place, place)


def test_a_signal_without_a_report() -> None:
    found = death("ops.A()", "died", -11, "")
    assert found == CallDeath("ops.A()", "SIGSEGV", "it ended with SIGSEGV")
    assert PREDICTIONS["op-recursion"].fits(found)
    assert not PREDICTIONS["op-type-unchecked"].fits(found)


def test_a_limit_is_no_crash() -> None:
    found = death("ops.A()", "time", -9, "")
    assert found.kind == "time"
    assert PREDICTIONS["op-done-not-called"].fits(found)
    assert not PREDICTIONS["op-recursion"].fits(found)
    assert not PREDICTIONS["op-index-unchecked"].fits(found)


def test_functions_are_compared_without_their_arguments() -> None:
    found = death("ops.A()", "died", 1, OVERFLOW)
    assert found.is_in("SumDown")
    assert found.is_in("CountDownOp::Compute")
    assert not found.is_in("Sum")
