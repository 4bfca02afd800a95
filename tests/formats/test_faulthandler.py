"""Faulthandler's dumps: the signal, every thread's place in Python, and what only looks like a dump."""

from __future__ import annotations

import pytest

from necropsy.formats.readers.faulthandler import READER
from reading import only, pieces, verdict

# Printed by CPython 3.13.0 on Linux; a thread that waits, and ctypes.string_at(16). 3.6 to 3.12 print the same.
SEGFAULT = """Fatal Python error: Segmentation fault

Thread 0x00007f89c438c6c0 (most recent call first):
  File "/tmp/fh.py", line 3 in wait
  File "/home/.pyenv/versions/3.13.0/lib/python3.13/threading.py", line 992 in run
  File "/home/.pyenv/versions/3.13.0/lib/python3.13/threading.py", line 1041 in _bootstrap_inner
  File "/home/.pyenv/versions/3.13.0/lib/python3.13/threading.py", line 1012 in _bootstrap

Current thread 0x00007f89c581eb80 (most recent call first):
  File "/home/.pyenv/versions/3.13.0/lib/python3.13/ctypes/__init__.py", line 538 in string_at
  File "/tmp/fh.py", line 9 in crash
  File "/tmp/fh.py", line 8 in crash
  File "/tmp/fh.py", line 8 in crash
  File "/tmp/fh.py", line 10 in <module>

Extension modules: numpy.core._multiarray_umath, numpy.core._multiarray_tests (total: 2)
"""
# CPython 3.14, by Doc/library/faulthandler.rst and Lib/test/test_faulthandler.py.
WITH_C_STACK = """Fatal Python error: Segmentation fault

Current thread 0x00007fd37a9b2740 [MainThread] (most recent call first):
  File "/home/u/train.py", line 7 in main
  File "/home/u/train.py", line 9 in <module>

Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x32 [0x56045f0d2b92]
  Binary file "/usr/lib/libc.so.6", at +0x3e540 [0x7fd37a7d3540]
  Binary file "/venv/lib/python3.14/site-packages/_op.so", at run_kernel+0x19 [0x7fd379a11119]
  Binary file "/usr/bin/python3.14", at _PyEval_EvalFrameDefault+0x45a1 [0x56045efe8f61]
  <truncated rest of calls>
"""
WINDOWS = """Windows fatal exception: access violation

Current thread 0x00001f4c (most recent call first):
  File "C:\\Users\\u\\train.py", line 12 in fit
  File "C:\\Users\\u\\train.py", line 20 in <module>
"""
WINDOWS_STACK = """Windows fatal exception: stack overflow

Thread 0x00002a10 (most recent call first):
  File "C:\\Python311\\Lib\\threading.py", line 324 in wait

Current thread 0x00000f1c (most recent call first):
  File "C:\\Users\\u\\walk.py", line 4 in walk
  ...
"""
FATAL_OF_PYTHON = """Fatal Python error: PyEval_RestoreThread: the function must be called with the GIL held, but the GIL is released
Python runtime state: initialized

Current thread 0x00007f1c2b7fe740 (most recent call first):
  <no Python frame>
"""
SAMPLES = (SEGFAULT, WITH_C_STACK, WINDOWS, WINDOWS_STACK, FATAL_OF_PYTHON)


def test_the_signal_and_every_thread() -> None:
    crash = only(SEGFAULT, READER)
    assert crash.exit is not None and (crash.exit.kind, crash.exit.signal) == ("signaled", "SIGSEGV")
    assert [(one.crashed, len(one.python or ())) for one in crash.threads or ()] == [(False, 4), (True, 5)]
    thread = crash.crashed_thread
    assert thread is not None and thread.python is not None
    assert (thread.python[0].function, thread.python[0].line) == ("string_at", 538)
    assert (thread.python[1].source, thread.python[1].function) == ("/tmp/fh.py", "crash")
    assert thread.frames is None
    assert "/tmp/fh.py:9 in crash" in str(verdict(SEGFAULT, READER))  # the innermost line of the user's own


@pytest.mark.parametrize(
    ("words", "signal"),
    [
        ("Aborted", "SIGABRT"),
        ("Bus error", "SIGBUS"),
        ("Illegal instruction", "SIGILL"),
        ("Floating point exception", "SIGFPE"),
        ("Floating-point exception", "SIGFPE"),
    ],
)
def test_every_signal(words: str, signal: str) -> None:
    crash = only(SEGFAULT.replace("Segmentation fault", words), READER)
    assert crash.exit is not None and crash.exit.signal == signal


def test_the_c_stack_of_3_14() -> None:
    thread = only(WITH_C_STACK, READER).crashed_thread
    assert thread is not None and thread.frames is not None
    assert thread.name == "MainThread"
    assert [frame.function for frame in thread.frames] == [
        "_Py_DumpStack",
        None,
        "run_kernel",
        "_PyEval_EvalFrameDefault",
    ]
    assert thread.complete is False
    assert len(thread.python or ()) == 2


def test_windows() -> None:
    crash = only(WINDOWS, READER)
    assert crash.exit is not None and crash.exit.ntstatus is not None and crash.exit.ntstatus.value == "0xC0000005"
    full = only(WINDOWS_STACK, READER).crashed_thread
    assert full is not None and full.stack is not None and full.stack.guard_hit
    # Seen before any handler, and mostly handled.
    assert not pieces("Windows fatal exception: code 0xe06d7363\n", READER)
    assert only(WINDOWS.replace("access violation", "code 0x8001010d"), READER).exit is None


FULL = (
    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f89c581eb80 (most recent call first):\n"
    + '  File "/home/u/walk.py", line 4 in walk\n  File "/home/u/walk.py", line 9 in each\n' * 50
    + "  ...\n"
)
TIMEOUT = """Timeout (0:00:10)!
Thread 0x00007f89c438c6c0 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 359 in wait
  File "/home/u/load.py", line 31 in get

Thread 0x00007f89c581eb80 (most recent call first):
  File "/home/u/load.py", line 12 in main
"""


def test_a_dump_full_of_one_recursion() -> None:
    found = verdict(FULL, READER)
    assert (found.rule, found.confidence) == ("stack-overflow-recursion", "likely")
    assert "walk -> each repeats 50 times" in str(found.evidence)
    different = FULL.replace("walk.py", "{}.py").format(*range(100))
    assert verdict(different, READER).rule == "exit-status-only"


def test_a_timeout_is_a_hang() -> None:
    crash = only(TIMEOUT, READER)
    assert crash.exit is not None and crash.exit.kind == "timeout" and len(crash.threads or ()) == 2
    assert verdict(TIMEOUT, READER).rule == "hang"
    assert not pieces("Timeout (0:00:10)!\n", READER)


def test_the_interpreters_own_error_tells_no_signal() -> None:
    crash = only(FATAL_OF_PYTHON, READER)
    assert crash.exit is None and crash.crashed_thread is not None


def test_a_dump_between_other_lines_ends_where_it_ends() -> None:
    (piece,) = pieces(
        "epoch 1\n" + SEGFAULT + 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n', READER
    )
    assert (piece.first, piece.last) == (2, 17)
    assert len(pieces(SEGFAULT + "\n\n\n\n" + SEGFAULT, READER)) == 2


@pytest.mark.parametrize("text", ["Fatal Python error: ", "Current thread 0x", "Windows fatal exception: \n\n", ""])
def test_no_dump(text: str) -> None:
    assert not pieces(text, READER)
