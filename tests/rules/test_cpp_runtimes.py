"""C++ runtimes that clash: told only by what two of them do to each other."""

from __future__ import annotations

from io import BytesIO

import msgspec
import pytest
from test_likelier import event

from necropsy import explanation
from necropsy.diagnose import diagnose
from necropsy.model import Address, Crash, Diagnosis, Module
from necropsy.rules import crash_rules

ACCESS_VIOLATION = "0xc0000005"
LOCK = r"""
(1a2c.0b1c): Access violation - code c0000005 (!!! second chance !!!)
msvcp140!mtx_do_lock+0x74:
00007ffd`2f1b3080 488b07          mov     rax,qword ptr [rdi] ds:00000000`00000000=????????????????
0:000> k
 # Child-SP          RetAddr               Call Site
00 000000d1`f8bfe5a0 00007ffd`1a2d1330     msvcp140!mtx_do_lock+0x74
01 000000d1`f8bfe5e0 00007ffd`0a2d1330     counter_cp312_win_amd64!Counter::increment+0x1b
02 000000d1`f8bfe620 00007ffd`0a2d1111     python312!PyObject_Call+0x20
"""
ONCE = """
Program received signal SIGSEGV, Segmentation fault.
0x0000000000000000 in ?? ()
#0  0x0000000000000000 in ?? ()
#1  0x00007ff492802739 in __pthread_once_slow (once_control=0x7ff462f00e88, init_routine=0x7ff46f62dd60 <__once_proxy>) at pthread_once.c:116
#2  0x00007ff46251eeaa in {caller} () from /v/lib/libframework.so.1
"""


def crash_of(text: str) -> Crash:
    explained = explanation.explain(["-"], crash_rules, stdin=BytesIO(text.encode()))
    assert explained.document is not None
    return explained.document.reports[0].crash


def verdict(crash: Crash) -> Diagnosis:
    found = diagnose(crash, crash_rules()).verdict
    assert found is not None
    return found


def test_a_mutex_of_zeros() -> None:
    found = verdict(crash_of(LOCK))
    assert (found.rule, found.confidence) == ("conflicting-libraries", "likely")
    assert found.culprit is not None
    assert found.culprit.function == "Counter::increment"


def test_the_copy_is_old() -> None:
    found = verdict(crash_of(event("MSVCP140.dll", ACCESS_VIOLATION, "14.28.29334.0")))
    assert found.rule == "conflicting-libraries"
    assert "14.28.29334" in found.summary


def test_the_copy_is_new_enough() -> None:
    assert verdict(crash_of(event("MSVCP140.dll", ACCESS_VIOLATION, "14.40.33816.0"))).rule == "invalid-read"


@pytest.mark.parametrize(
    ("version", "rule"), [("14.29.30153.0", "conflicting-libraries"), ("14.42.34433.0", "invalid-read")]
)
def test_a_dump_lists_the_copy(version: str, rule: str) -> None:
    crash = msgspec.structs.replace(
        crash_of(event("MSVCP140.dll", ACCESS_VIOLATION)),
        libraries=None,
        modules=(
            Module(path=r"C:\v\PyQt5\Qt5\bin\MSVCP140.dll", low=Address(0x1000), high=Address(0x2000), version=version),
        ),
    )
    assert verdict(crash).rule == rule


def test_another_null_pointer_stays_one() -> None:
    assert verdict(crash_of(LOCK.replace("mtx_do_lock", "std::locale::name"))).rule == "null-dereference"
    assert verdict(crash_of(LOCK.replace("msvcp140!mtx_do_lock", "mylib!mtx_do_lock"))).rule == "null-dereference"


def test_call_once_of_two_libraries() -> None:
    found = verdict(crash_of(ONCE.format(caller="void std::call_once<void (&)()>(std::once_flag&, void (&)())")))
    assert (found.rule, found.confidence) == ("conflicting-libraries", "likely")
    assert verdict(crash_of(ONCE.format(caller="init_plugins"))).rule == "bad-jump"


def test_a_facet_that_a_number_has_no_use_for() -> None:
    stack = """
Program received signal SIGSEGV, Segmentation fault.
#0  0x00007fffc24d242b in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6
#1  0x00007fffc24d4434 in {facet} () from /lib/x86_64-linux-gnu/libstdc++.so.6
#2  0x00007fffc253d3ca in std::ostream& std::ostream::_M_insert<unsigned long>(unsigned long) () from /lib/x86_64-linux-gnu/libstdc++.so.6
#3  0x00007fffa7f0687b in Print(unsigned int) () from /v/lib/libprint.so
"""
    wrong = "std::codecvt<char16_t, char, __mbstate_t>::do_in(__mbstate_t&, char const*) const"
    right = "std::num_put<char, std::ostreambuf_iterator<char> >::do_put(std::ostreambuf_iterator<char>, std::ios_base&, char, unsigned long) const"
    assert verdict(crash_of(stack.format(facet=wrong))).rule == "conflicting-libraries"
    assert verdict(crash_of(stack.format(facet=right))).rule == "invalid-read"
