"""What pystack and py-spy print: every thread's frames, who held the GIL, and what the process died of."""

from __future__ import annotations

import pytest
from hypothesis import given

from necropsy.formats.readers.python_stacks import READERS
from necropsy.model import Crash
from reading import cut_and_mixed, only, pieces, seconds, survive, verdict

PYSTACK, PY_SPY = READERS

# pystack 1.5 on the core of CPython 3.11.7, ctypes.string_at(16); the outermost frames are left out.
CORE = """Using executable found in the core file: /usr/bin/python3.11

Core file information:
state: t zombie: True niceness: 0
pid: 17795 ppid: 17789 sid: 3283
uid: 0 gid: 0 pgrp: 17795
executable: python arguments: python segv.py

The process died due a segmentation fault accessing address: 0x10
Traceback for thread 17795 [Has the GIL] (most recent call last):
    (C) File "???", line 0, in _start (python)
    (C) File "../csu/libc-start.c", line 360, in __libc_start_main@@GLIBC_2.34 (libc.so.6)
    (Python) File "/home/u/segv.py", line 3, in <module>
        load()
    (Python) File "/home/u/segv.py", line 2, in load
        def load(): ctypes.string_at(16)
      Locals:
        where: 16
    (Python) File "/usr/lib/python3.11/ctypes/__init__.py", line 519, in string_at
        return _string_at(ptr, size)
    (C) File "Modules/_ctypes/callproc.c", line 923, in _call_function_pointer (inlined) (_ctypes.cpython-311-x86_64-linux-gnu.so)
    (C) File "???", line 0, in ffi_call (libffi.so.8)
    (C) File "libffi.so.8", line 0, in ??? (libffi.so.8)
    (C) File "../sysdeps/x86_64/multiarch/strlen-evex.S", line 79, in __strlen_evex (libc.so.6)
"""
NOT_MERGED = """The process died due receiving signal SIGABRT sent by pid 162138
Traceback for thread 168419 [] (most recent call last):
* - Unable to merge native stack due to insufficient native information - *
    (Python) File "/usr/local/lib/python3.8/dist-packages/gevent/threadpool.py", line 195, in run
        task = task_queue_get(task_queue_cookie, idle_task_timeout)

Traceback for thread 162138 [Has the GIL] (most recent call last):
* - Unable to merge native stack due to insufficient native information - *
    (Python) File "/libs/task_flow.py", line 88, in _run_task
        result = task.execute(context)
"""
# pystack 1.5 and py-spy 0.4.1 on CPython 3.11.7; the main thread waits for a thread that waits for a lock.
REMOTE = """Traceback for thread 16995 (python) [] (most recent call last):
    (Python) File "/usr/lib/python3.11/threading.py", line 982, in run
        self._target(*self._args, **self._kwargs)
    (Python) File "/home/u/hang.py", line 4, in worker
        with lock: pass
    (C) File "Python/thread_pthread.h", line 497, in PyThread_acquire_lock_timed (/usr/lib/libpython3.11.so.1.0)

Traceback for thread 16993 (python) [] (most recent call last):
    (Python) File "/home/u/hang.py", line 9, in <module>
        main()
    (Python) File "/home/u/hang.py", line 8, in main
        t.join()
"""
SPY = """Process 16993: /usr/bin/python3.11 hang.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 16993 (idle): "MainThread"
    0x7f30eb4a3f16 (libc.so.6)
    PyThread_acquire_lock_timed (libpython3.11.so.1.0)
    Thread._wait_for_tstate_lock (threading.py:1139)
        Arguments:
            self: <Thread at 0x7f30ea531c50>
    Thread.join (threading.py:1119)
    main (hang.py:8)
        Locals:
            t: <Thread at 0x7f30ea531c50>
    <module> (hang.py:9)
Thread 16995 (active+gil): "loader"
    worker (hang.py:4)
    do_work (op.cc:12)
    Thread.run (threading.py:982)
"""
SAMPLES = (CORE, NOT_MERGED, REMOTE, SPY)


def _functions(crash: Crash, thread: int) -> tuple[list[str | None], list[str | None]]:
    one = (crash.threads or ())[thread]
    return [frame.function for frame in one.frames or ()], [frame.function for frame in one.python or ()]


def test_a_core() -> None:
    crash = only(CORE, PYSTACK)
    assert crash.fault is not None and (crash.fault.signal, str(crash.fault.address)) == ("SIGSEGV", "0x10")
    assert crash.pid == 17795
    native, python = _functions(crash, 0)
    assert native == [
        "__strlen_evex",
        None,
        "ffi_call",
        "_call_function_pointer",
        "__libc_start_main@@GLIBC_2.34",
        "_start",
    ]
    assert python == ["string_at", "load", "<module>"]
    thread = crash.crashed_thread
    assert thread is not None and thread.holds_gil and thread.python is not None
    assert (thread.python[1].source, thread.python[1].line) == ("/home/u/segv.py", 2)
    assert thread.frames is not None and thread.frames[0].line == 79
    assert thread.frames[2].source is None
    assert "segv.py:2 in load" in str(verdict(CORE, PYSTACK))


def test_stacks_that_could_not_be_merged() -> None:
    crash = only("pid: 162138 ppid: 1 sid: 1\n\n" + NOT_MERGED, PYSTACK)
    assert crash.fault is not None and (crash.fault.signal, crash.fault.sent_by_itself) == ("SIGABRT", True)
    assert [one.crashed for one in crash.threads or ()] == [False, True]


@pytest.mark.parametrize(("text", "reader"), [(REMOTE, PYSTACK), (SPY, PY_SPY)])
def test_a_process_that_lives(text: str, reader: object) -> None:
    crash = only(text, reader)  # type: ignore[arg-type]  # one of READERS
    assert crash.exit is not None and crash.exit.kind == "running"
    assert crash.fault is None and crash.crashed_thread is None
    assert len(crash.threads or ()) == 2


def test_py_spy_tells_python_from_native() -> None:
    crash = only(SPY, PY_SPY)
    assert crash.pid == 16993
    assert _functions(crash, 0) == (
        [None, "PyThread_acquire_lock_timed"],
        ["Thread._wait_for_tstate_lock", "Thread.join", "main", "<module>"],
    )
    assert _functions(crash, 1) == (["do_work"], ["worker", "Thread.run"])
    assert [one.holds_gil for one in crash.threads or ()] == [None, True]
    assert "0x7f30ea531c50" not in str(crash), "values of variables are not read"


@pytest.mark.parametrize(
    "text",
    ["Traceback for thread 12 (most recent", "3 workers (idle), 4 workers (active)", "", "Thread 1 (idle)\n\n\n\n"],
)
def test_nothing(text: str) -> None:
    assert not pieces(text, *READERS)


@given(cut_and_mixed(SAMPLES))
def test_take_any_text(text: str) -> None:
    for reader in READERS:
        survive(text, reader)


def test_are_linear() -> None:
    for one, reader in (('Thread 1 (idle): "a"\n    f (a.py:1)\n', PY_SPY), (REMOTE, PYSTACK)):
        assert seconds(one * 4000, reader) < 40 * max(seconds(one * 500, reader), 0.01)
