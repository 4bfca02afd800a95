"""lldb's words become the crash that it saw, on Linux and on macOS."""

from __future__ import annotations

import pytest
from printed import printed

from necropsy.formats.readers.lldb import READER
from reading import only, pieces, verdict

LLDB = printed("lldb")


@pytest.mark.parametrize(
    ("name", "rule", "confidence", "culprit"),
    [
        ("null", "null-dereference", "certain", "op::Node::weight"),
        ("write", "null-dereference", "certain", "null_write"),
        ("div", "integer-divide-by-zero", "certain", "divide"),
        ("check", "assertion-failed", "certain", "check"),
        ("twice", "double-free", "certain", "twice"),
        ("throws", "uncaught-cpp-exception", "certain", "throws"),
        ("jump", "bad-jump", "certain", "jump"),
        ("wild", "invalid-read", "likely", "read_at"),
        ("depth", "stack-overflow-recursion", "certain", "op::Depth"),
        ("all", "null-dereference", "certain", "null_write"),
    ],
)
def test_verdict(name: str, rule: str, confidence: str, culprit: str) -> None:
    found = verdict(LLDB[name], READER)
    assert (found.rule, found.confidence) == (rule, confidence)
    assert found.culprit is not None and (found.culprit.function or "").startswith(culprit)


def test_frames_have_their_libraries_and_lines() -> None:
    crash = only(LLDB["null"], READER)
    thread = crash.crashed_thread
    assert thread is not None and thread.frames is not None
    first, second, third = thread.frames[:3]
    assert (first.function, first.module, first.source, first.line) == ("op::Node::weight", "libop.so", "op.cc", 12)
    assert first.locals == {"this": "0x00007fffffffdc00"}
    assert second.function == "null_member"
    assert third.function is None and third.module == "libffi.so.8"
    assert thread.frames_total == 31
    assert crash.pid is not None


def test_an_inlined_call_is_called_by_its_own_name() -> None:
    thread = only(LLDB["null"], READER).crashed_thread
    assert thread is not None
    assert any(frame.function == "_PyEval_EvalFrame" for frame in thread.frames or ())


def test_an_address_that_cannot_exist_is_shown_as_0_and_is_none() -> None:
    crash = only(LLDB["wild"], READER)
    assert "fault address: 0x0" in LLDB["wild"]
    assert crash.fault is not None and crash.fault.address is None


def test_only_as_many_frames_as_were_asked_for() -> None:
    thread = only(LLDB["depth"], READER).crashed_thread
    assert thread is not None
    assert (thread.frames_total, thread.complete) == (None, False)
    assert "at least 30 times" in verdict(LLDB["depth"], READER).summary


MACOS = """* thread #4, queue = 'tf_pool', stop reason = EXC_BAD_ACCESS (code={code}, address={address})
  * frame #0: 0x000000010525c983 libop.dylib`op::Load(int const*) + 19
    frame #1: 0x000000010525ca00 libop.dylib`op::Run(this=0x0000000000000000) at op.cc:12:3 [opt]
    frame #2: 0x00007fff20a3e8fc libsystem_pthread.dylib`_pthread_start + 224
"""


@pytest.mark.parametrize(
    ("code", "address", "expected"),
    [
        ("1", "0x18", ("SIGSEGV", "SEGV_MAPERR", 0x18, "null-dereference")),
        ("2", "0x16fdff9d8", ("SIGSEGV", "SEGV_ACCERR", 0x16FDFF9D8, "invalid-read")),
    ],
)
def test_macos(code: str, address: str, expected: tuple[object, ...]) -> None:
    text = MACOS.format(code=code, address=address)
    crash = only(text, READER)
    assert crash.fault is not None
    found = verdict(text, READER)
    assert (crash.fault.signal, crash.fault.code, crash.fault.address, found.rule) == expected
    assert found.culprit is not None and found.culprit.function == "op::Load(int const*)"


def test_macos_general_protection_fault_has_no_address() -> None:
    text = MACOS.replace("code={code}, address={address}", "code=EXC_I386_GPFLT")
    crash = only(text, READER)
    assert crash.fault is not None
    assert (crash.fault.code, crash.fault.address) == ("SI_KERNEL", None)


@pytest.mark.parametrize(
    ("reason", "signal", "code"),
    [
        ("EXC_ARITHMETIC (code=EXC_I386_DIV, subcode=0x0)", "SIGFPE", "FPE_INTDIV"),
        ("EXC_BAD_INSTRUCTION (code=EXC_I386_INVOP, subcode=0x0)", "SIGILL", "ILL_ILLOPN"),
        ("EXC_BREAKPOINT (code=1, subcode=0x1a2b3c4d0)", "SIGTRAP", None),
        ("signal SIGSEGV: address not mapped to object (fault address=0x10)", "SIGSEGV", "SEGV_MAPERR"),
        ("signal SIGSEGV: invalid permissions for mapped object (fault address: 0x7f0010)", "SIGSEGV", "SEGV_ACCERR"),
        ("signal SIGBUS: illegal alignment", "SIGBUS", None),
    ],
)
def test_reasons(reason: str, signal: str, code: str | None) -> None:
    text = f"* thread #1, name = 'python', stop reason = {reason}\n  * frame #0: 0x1000 libop.so`op::Run + 4\n"
    fault = only(text, READER).fault
    assert fault is not None and (fault.signal, fault.code) == (signal, code)


def test_a_breakpoint_is_no_death() -> None:
    text = "* thread #1, stop reason = breakpoint 1.1\n  * frame #0: 0x1000 libop.so`op::Run + 4\n"
    assert only(text, READER).fault is None


def test_interrupted_by_hand() -> None:
    text = "* thread #1, stop reason = signal SIGSTOP\n  * frame #0: 0x1000 libsystem_kernel.dylib`__psynch_mutexwait + 8\n"
    crash = only(text, READER)
    assert crash.fault is None and crash.exit is not None and crash.exit.kind == "running"


def test_exit_by_a_signal() -> None:
    crash = only("Process 4711 exited with status = 9 (0x00000009) Terminated due to signal 9", READER)
    assert crash.exit is not None and (crash.exit.kind, crash.exit.signal, crash.pid) == ("signaled", "SIGKILL", 4711)


def test_two_processes_are_two_pieces() -> None:
    assert len(pieces(LLDB["null"] + LLDB["div"], READER)) == 2


def test_the_images_are_the_libraries_that_are_loaded() -> None:
    text = (
        "* thread #9, stop reason = EXC_BAD_ACCESS (code=1, address=0x8)\n"
        "  * frame #0: 0x00000001054d9b4c libomp.dylib`__kmp_suspend_64<false, true> + 44\n"
        "(lldb) image list libomp.dylib\n"
        "[  0] 5C1C2E3A-8E0D-3F6B-9A77-1D1E6E2B9C11 0x0000000105494000 /opt/homebrew/opt/libomp/lib/libomp.dylib\n"
        "[  1] 8A2B6F10-2D4C-3E55-B1F0-9C7E33AA0D42 0x000000010a210000 /venv/torch/lib/libomp.dylib\n"
    )
    assert [module.path for module in only(text, READER).modules or ()] == [
        "/opt/homebrew/opt/libomp/lib/libomp.dylib",
        "/venv/torch/lib/libomp.dylib",
    ]
    assert verdict(text, READER).rule == "duplicate-openmp"


def test_what_xcode_shows() -> None:
    crash = only("Thread 5: EXC_BAD_ACCESS (code=1, address=0x10)", READER)
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.code, crash.fault.address) == ("SIGSEGV", "SEGV_MAPERR", 0x10)


def test_a_core_of_macos_shows_sigstop_and_is_a_death_nevertheless() -> None:
    """From https://github.com/celery/celery/issues/2964."""
    text = """thread #1: tid = 0x0000, 0x00007fff93b4a9b3 libdispatch.dylib`dispatch_group_async + 533, stop reason = signal SIGSTOP
* frame #0: 0x00007fff93b4a9b3 libdispatch.dylib`dispatch_group_async + 533
frame #1: 0x00007fff9519b228 libBLAS.dylib`APL_dgemm + 1100
"""
    crash = only(text, READER)
    assert crash.exit is None and crash.fault is None
    assert crash.crashed_thread is not None and crash.crashed_thread.tid is None


def test_what_a_handler_interrupted() -> None:
    text = """* thread #1, name = 'python', stop reason = signal SIGABRT
  * frame #0: 0x1000 libc.so.6`__GI_raise + 203
    frame #1: 0x1100 libop.so`op::crash_handler(int) + 20
    frame #2: 0x1200 libc.so.6`__restore_rt
    frame #3: 0x1300 libop.so`op::Load(int*) + 4
"""
    crash = only(text, READER)
    assert crash.fault is not None and crash.fault.handled_first
    thread = crash.crashed_thread
    assert thread is not None
    assert [(one.index, one.function) for one in thread.frames or ()] == [(0, "op::Load(int*)")]
