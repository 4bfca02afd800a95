"""What pystack, py-spy, eu-stack, coredumpctl and compute-sanitizer show of a process, a core or a kernel."""

from __future__ import annotations

import pytest
from printed import printed

from necropsy.diagnose import diagnose
from necropsy.formats.readers import compute_sanitizer, core_dump_notice, elfutils, pyspy, pystack
from necropsy.model import Crash
from necropsy.rules import crash_rules
from reading import death, only, pieces, verdict

PYSTACK, PYSPY, ELFUTILS = printed("pystack"), printed("pyspy"), printed("elfutils")


def stands(crash: Crash) -> list[tuple[object, ...]]:
    return [
        (thread.tid, thread.crashed, thread.python[0].function if thread.python else None)
        for thread in crash.threads or ()
    ]


# ---------------------------------------------------------------- pystack


def test_pystack_of_a_core_with_native_frames() -> None:
    crash = only(PYSTACK["core_native_null_member"], pystack.READER)
    assert crash.fault is not None and crash.fault.signal == "SIGSEGV"
    assert crash.pid == 27699
    thread = crash.crashed_thread
    assert thread is not None and thread.frames is not None and thread.python is not None
    assert (thread.frames[0].function, thread.frames[0].module, thread.frames[0].line) == (
        "op::Node::weight(int) const",
        "libop.so",
        12,
    )
    assert [(one.function, one.line) for one in thread.python] == [("run", 4), ("main", 7), ("<module>", 8)]
    found = verdict(PYSTACK["core_native_null_member"], pystack.READER)
    assert (found.rule, found.confidence) == ("invalid-read", "possible")
    assert found.culprit is not None and found.culprit.function == "op::Node::weight(int) const"


def test_pystack_of_a_core_without_native_frames_knows_the_line_of_python() -> None:
    found = verdict(PYSTACK["core_null_member"], pystack.READER)
    assert found.culprit is not None and found.culprit.python is not None
    assert (found.culprit.python.file, found.culprit.python.line) == ("/src/call.py", 4)


def test_pystack_does_not_say_which_thread_crashed_but_who_waits_did_not() -> None:
    crash = only(PYSTACK["core_native_in_thread"], pystack.READER)
    assert stands(crash) == [(27831, False, "run"), (27835, True, None)]


def test_pystack_abort_and_the_log() -> None:
    text = "python: op.cc:27: void check(int): Assertion `x > 0' failed.\n" + PYSTACK["core_check"]
    assert verdict(text, pystack.READER).rule == "assertion-failed"


def test_pystack_says_the_address_where_it_knows_it() -> None:
    text = PYSTACK["core_null_member"].replace(
        "The process died due receiving signal SIGSEGV",
        "The process died due a segmentation fault accessing address: 0x18",
    )
    crash = only(text, pystack.READER)
    assert crash.fault is not None and crash.fault.address == 0x18
    assert verdict(text, pystack.READER).rule == "null-dereference"


def test_pystack_sender() -> None:
    text = PYSTACK["core_null_member"].replace("signal SIGSEGV", "signal SIGTERM sent by pid 99")
    found = verdict(text, pystack.READER)
    assert found.rule == "killed-by-signal" and "99" in found.summary


def test_pystack_of_a_living_process() -> None:
    crash = only(PYSTACK["native"], pystack.READER)
    assert crash.exit is not None and crash.exit.kind == "running" and crash.fault is None
    assert [thread.waits and thread.waits.call for thread in crash.threads or ()] == ["futex", "nanosleep"]
    assert verdict(PYSTACK["remote"], pystack.READER).rule == "hang"


# ---------------------------------------------------------------- py-spy


@pytest.mark.parametrize("name", ["dump", "native", "locals"])
def test_pyspy(name: str) -> None:
    crash = only(PYSPY[name], pyspy.READER)
    assert crash.pid == 25580
    assert crash.environment is not None and crash.environment.python == "3.11.7"
    assert stands(crash) == [(25580, False, "main"), (25582, False, "wait_for")]
    assert [thread.name for thread in crash.threads or ()] == ["MainThread", "loader"]
    found = verdict(PYSPY[name], pyspy.READER)
    assert found.rule == "hang"
    assert "the main thread" in found.summary and "hang.py:10" in found.summary


def test_pyspy_native_frames_tell_what_a_thread_waits_for() -> None:
    first, second = only(PYSPY["native"], pyspy.READER).threads or ()
    assert first.waits is not None and first.waits.call == "nanosleep"
    assert second.frames is not None
    assert [(one.function, one.module) for one in second.frames[:3]] == [
        (None, "libc.so.6"),
        (None, "libc.so.6"),
        ("PyThread_acquire_lock_timed", "libpython3.11.so.1.0"),
    ]


def test_pyspy_does_not_claim_that_a_thread_runs() -> None:
    assert "runs" not in verdict(PYSPY["dump"], pyspy.READER).summary


def test_pyspy_holder_of_the_gil() -> None:
    text = 'Process 7: python x.py\nPython v3.12.1 (/usr/bin/python3.12)\n\nThread 7 (active+gil): "MainThread"\n    f (x.py:3)\n'
    (thread,) = only(text, pyspy.READER).threads or ()
    assert thread.holds_gil is True


# ---------------------------------------------------------------- eu-stack, coredumpctl


def test_eu_stack_of_a_core_begins_with_the_thread_that_died() -> None:
    crash = only(ELFUTILS["core"], elfutils.READER)
    assert crash.pid == 27831
    assert [(one.tid, one.crashed) for one in crash.threads or ()] == [(27835, True), (27831, False)]
    thread = crash.crashed_thread
    assert thread is not None
    assert [one.function for one in thread.frames or ()] == ["null_write", "worker", "start_thread", "__clone3"]


@pytest.mark.parametrize("name", ["plain", "verbose"])
def test_eu_stack_of_a_living_process(name: str) -> None:
    crash = only(ELFUTILS[name], elfutils.READER)
    assert crash.exit is not None and crash.exit.kind == "running"
    first = (crash.threads or ())[0]
    assert first.waits is not None and first.waits.call == "nanosleep"


def test_eu_stack_with_libraries_and_lines() -> None:
    (first, *_) = only(ELFUTILS["verbose"], elfutils.READER).threads or ()
    assert first.frames is not None
    frame = first.frames[1]
    assert (frame.function, frame.source, frame.line) == ("pysleep", "./Modules/timemodule.c", 2159)
    assert frame.module is not None and frame.module.endswith("libpython3.11.so.1.0")


COREDUMPCTL = """           PID: 48121 (python)
           UID: 1000 (user)
        Signal: 11 (SEGV)
     Timestamp: Fri 2024-05-17 10:12:31 CEST (2min ago)
  Command Line: python train.py --epochs 3
    Executable: /usr/bin/python3.11
       Message: Process 48121 (python) of user 1000 dumped core.

                Module libz.so.1 from deb zlib-1.3.amd64
                Stack trace of thread 48150:
                #0  0x00007f1d1b0b83f8 n/a (libop.so + 0x13f8)
                #1  0x00007f1d1b0b8a10 _ZN2op4FillEPii (libop.so + 0x1a10)
                #2  0x00007f1d2c89c1c4 start_thread (libc.so.6 + 0x8f1c4)

                Stack trace of thread 48121:
                #0  0x00007f1d2c90f7ac __futex_abstimed_wait_common (libc.so.6 + 0x897ac)
                ELF object binary architecture: AMD x86-64
"""


def test_coredumpctl() -> None:
    """Format of systemd 250's coredumpctl(1), names changed."""
    crash = only(COREDUMPCTL, core_dump_notice.READER)
    assert (crash.pid, crash.fault and crash.fault.signal) == (48121, "SIGSEGV")
    assert [(one.tid, one.crashed) for one in crash.threads or ()] == [(48150, True), (48121, False)]
    thread = crash.crashed_thread
    assert thread is not None and thread.frames is not None
    assert (thread.frames[0].function, thread.frames[0].module_offset) == (None, 0x13F8)
    assert thread.frames[1].function == "op::Fill"
    found = verdict(COREDUMPCTL, core_dump_notice.READER)
    assert found.culprit is not None and found.culprit.module == "libop.so"


def test_coredumpctl_in_the_journal() -> None:
    text = "\n".join(f"May 17 10:12:31 host systemd-coredump[48200]: {row.strip()}" for row in COREDUMPCTL.split("\n"))
    assert pieces(text, core_dump_notice.READER) == [] or only(text, core_dump_notice.READER).pid == 48121


# ---------------------------------------------------------------- compute-sanitizer

CHECKED = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0x90 in /src/op.cu:12
=========     by thread (32,0,0) in block (3,0,0)
=========     Address 0x7f5c40200400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f5c40200000 of size 1024 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: [0x2f8a9f] in libcuda.so.1
=========     Host Frame: launch(float*, int) in /src/op.cu:20 [0x8e4f] in libop.so
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 2 errors
"""


def test_compute_sanitizer() -> None:
    """Format of the manual of compute-sanitizer 2023.3 (docs.nvidia.com/compute-sanitizer)."""
    (message,) = only(CHECKED, compute_sanitizer.READER).messages or ()
    assert message.fields["function"] == "scale(float *, int)"
    assert (message.fields["thread"], message.fields["block"]) == ("(32,0,0)", "(3,0,0)")
    assert message.fields["host"] == "launch(float*, int) at /src/op.cu:20"
    found = verdict(CHECKED, compute_sanitizer.READER)
    assert (found.rule, found.confidence) == ("cuda-kernel-fault", "certain")
    assert found.culprit is not None and (found.culprit.source, found.culprit.line) == ("/src/op.cu", 12)


def test_cuda_memcheck() -> None:
    """Format of the manual of cuda-memcheck 10.2."""
    text = """========= CUDA-MEMCHECK
========= Invalid __global__ read of size 8
=========     at 0x00000128 in /src/op.cu:31:gather(double const *, int)
=========     by thread (0,0,0) in block (12,0,0)
=========     Address 0x7f0c00000a00 is misaligned
========= ERROR SUMMARY: 1 error
"""
    found = verdict(text, compute_sanitizer.READER)
    assert found.rule == "cuda-kernel-fault"
    assert found.culprit is not None
    assert (found.culprit.function, found.culprit.line) == ("gather(double const *, int)", 31)


def test_no_error_is_none() -> None:
    text = "========= COMPUTE-SANITIZER\nepoch 1\n========= ERROR SUMMARY: 0 errors\n"
    assert pieces(text, compute_sanitizer.READER) == []
    assert diagnose(death(text, compute_sanitizer.READER), crash_rules()).verdict is None


def test_the_handler_of_a_program_is_not_blamed() -> None:
    """From https://github.com/systemd/systemd/issues/17768."""
    text = """           PID: 31565 (systemd)
        Signal: 11 (SEGV)
                Stack trace of thread 31565:
                #0  0x00007f0322eacfe7 kill (libc.so.6 + 0x3bfe7)
                #1  0x000055cda6309f9f crash (systemd + 0x3df9f)
                #2  0x00007f0322eaccc0 __restore_rt (libc.so.6 + 0x3bcc0)
                #3  0x000055cda637a881 unit_unwatch_pid (systemd + 0xae881)
                #4  0x000055cda6343de9 manager_invoke_sigchld_event (systemd + 0x77de9)
"""
    crash = only(text, core_dump_notice.READER)
    assert crash.fault is not None and crash.fault.handled_first
    found = verdict(text, core_dump_notice.READER)
    assert found.culprit is not None and found.culprit.function == "unit_unwatch_pid"
