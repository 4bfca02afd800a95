"""systemd-coredump's, apport's and ABRT's notices: who died of what, and the stacks that they print."""

from __future__ import annotations

import pytest

from necropsy.formats.readers.core_dump_notice import READER
from necropsy.model import Crash
from reading import only, pieces, verdict

# The form of coredumpctl info, systemd 252; the stack is that of https://github.com/mozilla/TTS/issues/788.
INFO = """           PID: 1952 (python)
           UID: 0 (root)
        Signal: 4 (ILL)
     Timestamp: Sat 2021-11-20 10:00:00 UTC (3min ago)
  Command Line: python -m TTS.server.server
    Executable: /usr/bin/python3.7
       Message: Process 1952 (python) of user 0 dumped core.

                Module /home/VIRTUALENV-1/lib64/python3.7/site-packages/numpy/core/_multiarray_umath.so without build-id.
                Stack trace of thread 1952:
                #0  0x00007f090c77e110 n/a (/home/V/lib64/python3.7/site-packages/tensorflow/python/_pywrap_tensorflow_internal.so + 0xdb7e110)
                #1  0x00007f08fd2d532e n/a (/home/V/lib64/python3.7/site-packages/tensorflow/libtensorflow_framework.so.2 + 0x6d532e)
                #2  0x00007f09fdf7613e call_init (ld-linux-x86-64.so.2 + 0xa13e)
                #3  0x00007f09fd89b88c dlopen_doit (libc.so.6 + 0x9b88c)

                Stack trace of thread 1960:
                #0  0x00007f09fd8f1d2f __poll (libc.so.6 + 0xf1d2f)
                ELF object binary architecture: AMD x86-64"""
# https://github.com/hzwer/Practical-RIFE/issues/74: without the notice itself.
TRACE = """Module /venv/lib/python3.11/site-packages/numpy/core/_multiarray_umath.so without build-id.
Stack trace of thread 13508:
#0  0x000070ddfabe732c n/a (libc.so.6 + 0x9132c)
#1  0x000070ddfab966c8 raise (libc.so.6 + 0x406c8)
#2  0x000070ddfab7e4b8 abort (libc.so.6 + 0x284b8)
#3  0x000070ddc4a9ca6f _ZN9__gnu_cxx27__verbose_terminate_handlerEv (libstdc++.so.6 + 0x9ca6f)
#4  0x000070ddc4ab0189 _ZSt9terminatev (libstdc++.so.6 + 0xb0189)
#5  0x000070ddfa375e20 _Unwind_ForcedUnwind (libgcc_s.so.1 + 0x1ae20)
#6  0x000070ddc4ab0200 _ZN2cv6worker3runEv (cv2.abi3.so + 0x1200)"""
# The form of https://github.com/systemd/systemd/issues/27503: rsyslog's line, of a Python.
RSYSLOG = (
    "2023-05-03T09:59:01.673824+02:00 host systemd-coredump[22042]: Process 27027 (python3) of user 1000 dumped core."
    "#012#012Stack trace of thread 27696:#012#0  0x00007f4816e2fe73 _ZN2op4PathEv (_op.so + 0x2fe73)"
    "#012#1  0x00007f4816e30e51 main (python3.10 + 0x30e51)"
)
NOTICE = "[🡕] Process 27027 (python3) of user 1000 dumped core."
WITH_SIGNAL = (
    "systemd-coredump[9]: Process 27027 (python3) of user 1000 terminated abnormally with signal 11/SEGV, processing..."
)
LIST = "Fri 2026-11-20 10:00:00 UTC   4711 1000 1000 SIGSEGV present  /usr/bin/python3.11                12.3M"
# apport 2.20 (data/apport), its report as Launchpad shows it, and ABRT's list.
APPORT = """ERROR: apport (pid 2345) Sat Nov 20 10:00:00 2026: called for pid 2344, signal 11, core limit 0, dump mode 1
ERROR: apport (pid 2345) Sat Nov 20 10:00:00 2026: executable: /usr/bin/python3.10 (command line "python3 train.py")
ERROR: apport (pid 2345) Sat Nov 20 10:00:00 2026: executable does not belong to a package, ignoring"""
REPORT = """ProblemType: Crash
Architecture: amd64
ExecutablePath: /usr/bin/python3.10
ProcCmdline: python3 train.py
SegvAnalysis:
 Segfault happened at: 0x7f9c4dfbf119 <weight+16>:\tmov    0x10(%rdi),%eax
 PC (0x7f9c4dfbf119) ok
 source "0x10(%rdi)" (0x00000010) not located in a known VMA region (needed readable region)!
 destination "%eax" ok
SegvReason: reading NULL VMA
Signal: 11
SourcePackage: python3.10
StacktraceTop:
 Node::weight (this=0x0) at op.cc:31
 walk (node=0x0) at op.cc:40
 ?? () from /lib/x86_64-linux-gnu/libffi.so.8
Title: python3.10 crashed with SIGSEGV in Node::weight()"""
ABRT = "id 1c2d3e\nreason:         python3.6 killed by SIGABRT\ncmdline:        python3 train.py"
KILLED = "abrt-hook-ccpp[77]: Process 5678 (python2.7) of user 0 killed by SIGSEGV - dumping core"
SAMPLES = [INFO, TRACE, RSYSLOG, NOTICE, WITH_SIGNAL, LIST, APPORT, REPORT, ABRT, KILLED]


def names(crash: Crash) -> list[str | None]:
    assert crash.crashed_thread is not None
    return [frame.function for frame in crash.crashed_thread.frames or ()]


def signal(crash: Crash) -> str | None:
    return crash.exit.signal if crash.exit is not None else None


def test_coredumpctl() -> None:
    (piece,) = pieces(INFO, READER)
    crash = piece.crash
    assert (piece.first, piece.last) == (1, INFO.count("\n") + 1)
    assert (crash.pid, signal(crash)) == (1952, "SIGILL")
    assert crash.threads is not None
    assert [(thread.tid, thread.crashed) for thread in crash.threads] == [(1952, True), (1960, False)]
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.frames is not None
    first = crash.crashed_thread.frames[0]
    assert (first.function, first.module, first.module_offset) == (None, "_pywrap_tensorflow_internal.so", 0xDB7E110)
    assert crash.environment is not None
    assert crash.environment.executable == "/usr/bin/python3.7"


def test_stack_without_its_notice() -> None:
    crash = only(TRACE, READER)
    assert signal(crash) == "SIGABRT"
    assert names(crash)[3:5] == ["__gnu_cxx::__verbose_terminate_handler", "std::terminate"]


def test_message_in_one_line() -> None:
    crash = only(RSYSLOG, READER)
    assert crash.pid == 27027
    assert names(crash) == ["op::Path", "main"]
    assert signal(crash) is None


@pytest.mark.parametrize(
    ("text", "pid", "name"),
    [
        (NOTICE, 27027, None),
        (WITH_SIGNAL, 27027, "SIGSEGV"),
        (LIST, 4711, "SIGSEGV"),
        (APPORT, 2344, "SIGSEGV"),
        (ABRT, None, "SIGABRT"),
        (KILLED, 5678, "SIGSEGV"),
    ],
)
def test_notices(text: str, pid: int | None, name: str | None) -> None:
    crash = only(text, READER)
    assert (crash.pid, signal(crash)) == (pid, name)


def test_report_of_apport() -> None:
    crash = only(REPORT, READER)
    assert crash.fault is not None
    assert (crash.fault.address, crash.fault.access) == (0x10, "read")
    assert crash.instruction is not None
    assert crash.instruction.mnemonic == "mov"
    assert names(crash) == ["Node::weight", "walk", None]


@pytest.mark.parametrize(
    ("text", "rule", "function", "module"),
    [
        (INFO, "illegal-instruction", None, "_pywrap_tensorflow_internal.so"),
        (TRACE, "abort", "cv::worker::run", "cv2.abi3.so"),
        (REPORT, "null-dereference", "Node::weight", None),
    ],
)
def test_verdict(text: str, rule: str, function: str | None, module: str | None) -> None:
    found = verdict(text, READER)
    assert found.rule == rule, found.summary
    assert found.culprit is not None
    assert (found.culprit.function, found.culprit.module) == (function, module)


@pytest.mark.parametrize(
    "text",
    [
        NOTICE.replace("python3", "plasmashell"),
        "Failed to connect to coredump service: No such file or directory",
        "list of users, one of user 5 dumped core",
        "Stack trace of thread 12:",
        "SignalName: none",
    ],
)
def test_what_is_no_notice(text: str) -> None:
    assert pieces(text, READER) == []
