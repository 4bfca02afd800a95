"""What a Java virtual machine prints when it dies."""

from __future__ import annotations

import pytest

from necropsy.formats.readers.jvm import READER
from reading import only, pieces, verdict

# The forms of OpenJDK 11 (vmError.cpp), as public threads on TensorFlow's Java API, PySpark and JPype show them.
CONSOLE = """#
# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007f0a3c0e2a3d, pid=12345, tid=12346
#
# JRE version: OpenJDK Runtime Environment (11.0.11+9) (build 11.0.11+9-Ubuntu-0ubuntu2.20.04)
# Java VM: OpenJDK 64-Bit Server VM (11.0.11+9-Ubuntu, mixed mode, sharing, tiered, g1 gc, linux-amd64)
# Problematic frame:
# C  [libtensorflow_framework.so.2+0xb5f3d]  tsl::thread::ThreadPool::Schedule(std::function<void ()>)+0x1d
#
# Core dump will be written. Default location: Core dumps may be processed with "/usr/share/apport/apport"
#
"""
FILE = (
    CONSOLE
    + """
---------------  T H R E A D  ---------------

Current thread (0x00007f0a4c018800):  JavaThread "main" [_thread_in_native, id=12346, stack(0x00007f0a,0x00007f0b)]

Stack: [0x00007f0a,0x00007f0b],  sp=0x00007f0a53a2a5c0,  free space=1004k
Native frames: (J=compiled Java code, A=aot compiled Java code, j=interpreted, Vv=VM code, C=native code)
C  [libtensorflow_framework.so.2+0xb5f3d]  tsl::thread::ThreadPool::Schedule(std::function<void ()>)+0x1d
C  [libjnitensorflow.so+0x45d1]  Java_org_tensorflow_internal_c_1api_global_tensorflow_TF_1SessionRun+0x51
j  org.tensorflow.Session.run()V+0

siginfo: si_signo: 11 (SIGSEGV), si_code: 1 (SEGV_MAPERR), si_addr: 0x0000000000000010

Register to memory mapping:
"""
)
WINDOWS = """# A fatal error has been detected by the Java Runtime Environment:
#
#  EXCEPTION_ACCESS_VIOLATION (0xc0000005) at pc=0x00007ffb1c5a1a2b, pid=5232, tid=9104
#
# Problematic frame:
# C  [python311.dll+0x51a2b]
#
"""
INTERNAL = """# A fatal error has been detected by the Java Runtime Environment:
#
#  Internal Error (safepoint.cpp:710), pid=6187, tid=6252
#  guarantee(PageArmed == 0) failed: invariant
#
"""
MEMORY = """OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory(0x00000000c0000000, 1073741824, 0) failed; error='Not enough space' (errno=12)
#
# There is insufficient memory for the Java Runtime Environment to continue.
# Native memory allocation (mmap) failed to map 1073741824 bytes for committing reserved memory.
# An error report file with more information is saved as:
# /home/u/hs_err_pid4711.log
"""
SAMPLES = (CONSOLE, FILE, WINDOWS, INTERNAL, MEMORY)


def test_the_console_names_the_frame() -> None:
    crash = only(CONSOLE, READER)
    assert crash.fault is not None and crash.fault.signal == "SIGSEGV"
    assert crash.pid == 12345
    (frame,) = (crash.crashed_thread.frames or ()) if crash.crashed_thread else ()
    assert frame.module == "libtensorflow_framework.so.2"
    assert frame.function == "tsl::thread::ThreadPool::Schedule(std::function<void ()>)"
    assert "ThreadPool::Schedule" in verdict(CONSOLE, READER).summary


def test_the_file_tells_the_address_and_all_frames() -> None:
    crash = only(FILE, READER)
    assert crash.fault is not None and (crash.fault.code, str(crash.fault.address)) == ("SEGV_MAPERR", "0x10")
    thread = crash.crashed_thread
    assert thread is not None and thread.frames is not None
    assert [frame.module for frame in thread.frames] == ["libtensorflow_framework.so.2", "libjnitensorflow.so", None]
    assert verdict(FILE, READER).rule == "null-dereference"


def test_windows() -> None:
    crash = only(WINDOWS, READER)
    assert crash.exit is not None and crash.exit.ntstatus is not None and crash.exit.ntstatus.value == "0xC0000005"
    assert crash.fault is not None and crash.fault.signal == "SIGSEGV"


def test_an_internal_error_is_a_failed_check() -> None:
    found = verdict(INTERNAL, READER)
    assert found.rule == "check-failed"
    assert "guarantee(PageArmed == 0)" in found.summary


def test_no_memory() -> None:
    (message,) = only(MEMORY, READER).messages or ()
    assert (message.kind, message.fields["bytes"]) == ("allocation-refused", "1073741824")


@pytest.mark.parametrize("text", ["# A fatal error has been detected by the Java Runtime Environment:\n#\n# none", ""])
def test_nothing(text: str) -> None:
    assert not pieces(text, READER)
