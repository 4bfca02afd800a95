"""A null that native code passed to the Java virtual machine: the verdict names who passed it, as a C program died of it."""

from __future__ import annotations

import pytest

from necropsy.diagnose import diagnose
from necropsy.model import Diagnosis
from necropsy.rules import crash_rules
from sketch import crash

DIED = """\
signal SIGSEGV SEGV_MAPERR 0x0 read
at 0x7fe97c689a00 mov rax, qword ptr [rdi]
operand read [rdi] = 0x0 size 8 rdi=0x0
thread 3100 java crashed
stack 8MiB used 20KiB whole
"""
BARRIER = "frame AccessInternal::PostRuntimeDispatch<2>::oop_access_barrier(void*) @ libjvm.so takes 32\n"
ENTRY = "frame jni_GetMethodID @ libjvm.so takes 64\n"
CALLER = "frame Java_N_nullcls @ libnj.so takes 32\n"


def verdict_of(*frames: str) -> Diagnosis:
    verdict = diagnose(crash(DIED + "".join(frames)), crash_rules()).verdict
    assert verdict is not None
    assert verdict.rule == "null-dereference"
    return verdict


def test_the_caller_of_the_virtual_machine_is_named_and_advised() -> None:
    verdict = verdict_of(BARRIER, ENTRY, CALLER)
    assert "`Java_N_nullcls` called the virtual machine's `jni_GetMethodID`" in verdict.summary
    assert verdict.fixes[0].text.startswith("Check what `Java_N_nullcls` passes to `jni_GetMethodID`")


@pytest.mark.parametrize("frames", [(CALLER,), (BARRIER, CALLER), (BARRIER, ENTRY)])
def test_a_death_elsewhere_is_not_put_down_to_a_call_of_the_interface(frames: tuple[str, ...]) -> None:
    verdict = verdict_of(*frames)
    assert "the virtual machine's" not in verdict.summary
    assert verdict.fixes[0].text.startswith("Find the pointer")
