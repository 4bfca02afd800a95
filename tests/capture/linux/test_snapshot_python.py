"""Python processes die in C called through ctypes; the Python line is joined to the native frame that runs it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from harness import SHARED, build, dying

from necropsy.capture.linux.inspect import crash_builder, interpreter
from necropsy.capture.linux.unwind import py_spy
from necropsy.capture.process import python_stacks
from necropsy.model import Crash, Frame, Thread

LIBRARY = """
#include <stddef.h>
typedef int (*callback)(int);
__attribute__((noinline)) int null_read(void) { return *(volatile int *)0x60; }
__attribute__((noinline)) int through(callback f, int n) { return f(n) + 1; }
__attribute__((noinline)) int deep(int n) { volatile char room[64]; room[0] = n; return deep(n + 1) + room[0]; }
"""

SCRIPT = """
import ctypes, faulthandler, os, sys, threading
lib = ctypes.CDLL(sys.argv[1])
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)

def innermost():
    secret = 4711
    lib.null_read()  # line 8

def middle():
    innermost()

@CALLBACK
def called_back(n):
    middle()  # line 15
    return n

@CALLBACK
def recurse(n):
    return lib.through(recurse, n + 1)  # line 20

how = sys.argv[2]
if how == "plain":
    middle()
elif how == "callback":
    lib.through(called_back, 1)
elif how == "recurse":
    recurse(0)
elif how == "faulthandler":
    faulthandler.enable(file=open(os.devnull, "w"))
    middle()
elif how == "faulthandler-overflow":
    faulthandler.enable(file=open(os.devnull, "w"))
    lib.deep(0)
elif how == "thread":
    worker = threading.Thread(target=middle)
    worker.start()
    worker.join()
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("python")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return script, build(folder, LIBRARY, *SHARED)


def captured(case: tuple[Path, Path], how: str, *, stack: int | None = None, python_locals: bool = False) -> Crash:
    script, library = case
    command = [sys.executable, str(script), str(library), how]
    with dying(command, stack=stack, python_locals=python_locals, log_tail="a line\n") as dead:
        return crash_builder.capture(dead)


def crashed(crash: Crash) -> Thread:
    thread = crash.crashed_thread
    assert thread is not None
    return thread


def evaluator(thread: Thread, frame: Frame) -> str | None:
    assert thread.frames is not None
    assert frame.evaluated_by is not None
    return thread.frames[frame.evaluated_by].function


def test_the_python_line_is_joined_to_its_evaluator(case: tuple[Path, Path]) -> None:
    crash = captured(case, "plain")
    thread = crashed(crash)
    assert crash.gaps == ()
    assert thread.frames is not None
    assert thread.frames[0].function == "null_read"
    assert thread.python is not None
    assert [(frame.function, frame.line) for frame in thread.python[:2]] == [("innermost", 8), ("middle", 11)]
    assert thread.python[0].source == str(case[0])
    assert {evaluator(thread, frame) for frame in thread.python} == {python_stacks.EVALUATOR}
    assert thread.python[0].locals is None


def test_frames_on_both_sides_of_a_callback_have_their_own_evaluators(case: tuple[Path, Path]) -> None:
    thread = crashed(captured(case, "callback"))
    assert thread.python is not None
    by = {frame.function: frame.evaluated_by for frame in thread.python}
    assert by["innermost"] is not None
    assert by["called_back"] is not None
    assert by["<module>"] is not None
    assert by["innermost"] <= by["called_back"] < by["<module>"]


def test_locals_come_only_when_asked_for(case: tuple[Path, Path]) -> None:
    thread = crashed(captured(case, "plain", python_locals=True))
    assert thread.python is not None
    assert thread.python[0].locals == {"secret": "4711"}


def test_with_faulthandler_the_fault_is_that_of_the_first_chance(case: tuple[Path, Path]) -> None:
    crash = captured(case, "faulthandler")
    assert crash.fault is not None
    assert (crash.fault.address, crash.fault.code, crash.fault.handled_first) == (0x60, "SEGV_MAPERR", True)
    thread = crashed(crash)
    assert thread.frames is not None
    assert thread.frames[0].function == "null_read"


def test_an_overflow_with_faulthandler_is_seen_on_the_threads_own_stack(case: tuple[Path, Path]) -> None:
    thread = crashed(captured(case, "faulthandler-overflow", stack=1 << 20))
    assert thread.stack is not None
    assert (thread.stack.guard_hit, thread.stack.is_alternate) == (True, False)
    assert thread.folds[0].functions == ("deep",)


def test_another_threads_frames_are_its_own(case: tuple[Path, Path]) -> None:
    crash = captured(case, "thread")
    thread = crashed(crash)
    assert thread.tid != crash.pid
    assert thread.python is not None
    assert thread.python[0].function == "innermost"
    main = next(one for one in crash.threads or () if one.tid == crash.pid)
    assert main.python is not None
    assert main.python[-1].function == "<module>"
    assert "innermost" not in [frame.function for frame in main.python]


def test_a_recursion_through_python_folds_with_its_python_frames(case: tuple[Path, Path]) -> None:
    thread = crashed(captured(case, "recurse", stack=1 << 20))
    assert thread.folds
    assert "through" in thread.folds[0].functions
    assert thread.python is not None
    assert [frame.function for frame in thread.folds[0].python] == ["recurse"]


def test_without_python_stacks_the_rest_is_there(case: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "find_py_spy", lambda: None)
    monkeypatch.setattr(interpreter, "layout_of", lambda *_: None)
    crash = captured(case, "plain")
    assert [gap.part for gap in crash.gaps] == ["python"]
    assert crash.gaps[0].why.startswith("py-spy is not installed; Python stacks are read of CPython 3.8 to 3.13 only")
    thread = crashed(crash)
    assert thread.python is None
    assert thread.frames is not None
    assert thread.frames[0].function == "null_read"


def test_without_drgn_the_rest_is_there(case: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "drgn", None)
    crash = captured(case, "plain")
    assert [gap.part for gap in crash.gaps] == ["frames"]
    assert "drgn" in crash.gaps[0].why
    thread = crashed(crash)
    assert thread.frames is not None
    names = [frame.function for frame in thread.frames]
    assert (names[0], names[-1], thread.complete) == ("null_read", "_start", True)
    assert "PyEval_EvalCode" in names
    assert {frame.found_by for frame in thread.frames[1:]} == {"cfi"}
    assert thread.python is not None
    assert thread.python[0].function == "innermost"
    assert thread.stack is not None
    assert crash.instruction is not None


@pytest.mark.parametrize("program", ["false", "no such program"])
def test_where_py_spy_fails_we_read_ourselves(
    case: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    by_py_spy = captured(case, "plain")
    monkeypatch.setattr(py_spy, "find_py_spy", lambda: shutil.which(program))
    crash = captured(case, "plain")
    assert crash.gaps == ()
    python = [thread.python for thread in crash.threads or ()]
    assert python == [thread.python for thread in by_py_spy.threads or ()]
    assert python[0]


def test_the_environment_is_that_of_the_process(case: tuple[Path, Path]) -> None:
    environment = captured(case, "plain", stack=3 << 20).environment
    assert environment is not None
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    assert environment.limits is not None
    assert environment.limits["RLIMIT_STACK"] == 3 << 20
    assert environment.libc is not None


def test_only_harmless_variables_are_kept(case: tuple[Path, Path]) -> None:
    script, library = case
    env = {"OMP_NUM_THREADS": "3", "TF_VAR_password": "hunter2", "AWS_SECRET_ACCESS_KEY": "x", "PATH": "/usr/bin"}
    with dying([sys.executable, str(script), str(library), "plain"], env=env) as death:
        crash = crash_builder.capture(death)
    assert crash.environment is not None
    assert crash.environment.variables == {"OMP_NUM_THREADS": "3"}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="its recursion in C is limited since")
def test_a_stack_too_deep_for_py_spy_is_read_by_ourselves(tmp_path: Path) -> None:
    """py-spy gives up on the whole process beyond 4,096 frames."""
    script = tmp_path / "deep.py"
    lines = (
        "import sys, ctypes",
        "sys.setrecursionlimit(1_000_000)",
        "def again(n):",
        "    if n == 0: ctypes.string_at(0x18)",
        "    return list(map(again, [n - 1]))",
        "again(4500)",
    )
    script.write_text("\n".join(lines))
    with dying([sys.executable, str(script)], stack=256 << 20) as death:
        crash = crash_builder.capture(death)
    assert crash.gap("python") is None
    thread = crashed(crash)
    assert thread.python is not None
    assert [(frame.function, frame.line) for frame in thread.python[1:4]] == [("again", 4), ("again", 5), ("again", 5)]
    assert thread.python[3].evaluated_by is not None
    assert thread.folds[0].times > 4000
    assert [frame.function for frame in thread.folds[0].python] == ["again"]
