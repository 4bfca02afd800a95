"""Whose code a frame is, by where its file lies."""

from __future__ import annotations

import pytest

from necropsy.diagnose import diagnose
from necropsy.model import Crash, Culprit, Frame, Thread
from necropsy.ownership import Owners, Whose
from necropsy.reports.wording import culprit as spelled
from necropsy.reports.wording import whose_module
from necropsy.rules import crash_rules
from necropsy.rules.culprit import own_place
from sketch import crash

LOADED = """
    module /opt/conda/bin/python3.11
    module /home/u/project/build/op.so
    module /home/u/venv/lib/python3.11/site-packages/foo/_foo.cpython-311-x86_64-linux-gnu.so
    module /home/u/venv/lib/python3.11/site-packages/sklearn/_tree.so
    library foo 1.2
    library scikit-learn 1.5.0
    library tensorflow-cpu 2.20.0
"""


def owners(text: str = LOADED) -> Owners:
    return Owners(crash(text))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/u/project/build/op.so", Whose("native-code")),
        ("/home/u/.cache/torch_extensions/op/op.so", Whose("native-code")),
        ("/home/u/project/src/editable/_core.cpython-311-x86_64-linux-gnu.so", Whose("native-code")),
        ("/home/u/project/op.so (deleted)", Whose("native-code")),
        ("/v/lib/python3.11/site-packages/foo/_foo.so", Whose("package", "foo", "1.2")),
        ("/v/lib/python3.11/site-packages/sklearn/_tree.so", Whose("package", "scikit-learn", "1.5.0")),
        (
            "/v/lib/python3.11/site-packages/scikit_learn.libs/libgomp-a34b3233.so.1",
            Whose("package", "scikit-learn", "1.5.0"),
        ),
        ("/v/lib/python3.11/site-packages/_bar.cpython-311-x86_64-linux-gnu.so", Whose("package", "bar", None)),
        ("/usr/lib/python3/dist-packages/foo/_foo.so", Whose("package", "foo", "1.2")),
        (
            "/v/lib/python3.11/site-packages/tensorflow/libtensorflow_cc.so.2",
            Whose("framework", "tensorflow-cpu", "2.20.0"),
        ),
        ("/opt/conda/lib/libmkl_rt.so.2", Whose("package")),
        ("/opt/conda/lib/libstdc++.so.6", Whose("system")),
        ("/opt/conda/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so", Whose("interpreter")),
        ("/opt/conda/bin/python3.11", Whose("interpreter")),
        ("/usr/lib/x86_64-linux-gnu/libssl.so.3", Whose("system")),
        ("/usr/local/cuda-12.4/lib64/libcudart.so.12", Whose("system")),
        ("[vdso]", Whose("system")),
        (r"C:\Windows\System32\ntdll.dll", Whose("system")),
        (r"C:\Users\u\miniconda3\Lib\site-packages\foo\_foo.pyd", Whose("package", "foo", "1.2")),
        (r"C:\Users\u\AppData\Local\Programs\Python\Python311\DLLs\_ssl.pyd", Whose("interpreter")),
        (r"C:\work\op.dll", Whose("native-code")),
    ],
)
def test_of_a_path(path: str, expected: Whose) -> None:
    assert owners().of_path(path) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/home/u/project/train.py", Whose("script")),
        ("train.py", Whose("script")),
        ("<string>", Whose("script")),
        ("<ipython-input-3-abc>", Whose("script")),
        ("/tmp/__autograph_generated_file1.py", Whose("script")),
        ("/usr/lib/python3.11/threading.py", Whose("interpreter")),
        ("<frozen importlib._bootstrap>", Whose("interpreter")),
        ("threading.py", None),
        ("<__array_function__ internals>", None),
        ("/v/lib/python3.11/site-packages/foo/core.py", Whose("package", "foo", "1.2")),
        ("/v/lib/python3.11/site-packages/keras/src/layers.py", Whose("framework", "keras", None)),
    ],
)
def test_of_python(source: str, expected: Whose | None) -> None:
    assert owners().of_python(source) == expected


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("op.so", Whose("native-code")),
        ("python3.11", Whose("interpreter")),
        ("libc.so.6", Whose("system")),
        ("libtensorflow_framework.so.2", Whose("framework", "tensorflow-cpu", "2.20.0")),
        ("unheard_of.so", None),
    ],
)
def test_of_a_name(module: str, expected: Whose | None) -> None:
    """A name without a folder is looked up among the modules; where it is not there, nobody is said to own it."""
    assert owners().of_module(module) == expected


def test_nobody_owns_code_without_a_file() -> None:
    assert owners().of_frame(Frame(index=0, kind="native", function="fused_kernel")) is None


def python_stack(*frames: tuple[str, str, int]) -> Crash:
    stack = tuple(
        Frame(index=at, kind="python", function=function, source=source, line=line)
        for at, (function, source, line) in enumerate(frames)
    )
    return Crash(pid=1, threads=(Thread(tid=1, crashed=True, python=stack),))


@pytest.mark.parametrize(
    ("frames", "own"),
    [
        pytest.param([("op", "<string>", 127), ("f", "<string>", 3), ("<module>", "<string>", 5)], "f", id="python -c"),
        pytest.param([("f", "<stdin>", 3), ("<module>", "<stdin>", 1)], "f", id="at a prompt"),
        pytest.param(
            [("op", "<string>", 98), ("f", "<stdin>", 3), ("<module>", "<stdin>", 1)], "f", id="op at a prompt"
        ),
        pytest.param(
            [("op", "<string>", 127), ("f", "<string>", 30), ("<module>", "<string>", 50), ("<module>", "<string>", 1)],
            "f",
            id="exec of a file's text",
        ),
        pytest.param([("f", "<string>", 30), ("run", "/v/lib/python3.11/threading.py", 7)], "f", id="in a thread"),
    ],
)
def test_the_innermost_frame_of_code_that_was_typed_in(frames: list[tuple[str, str, int]], own: str) -> None:
    died = python_stack(*frames)
    (thread,) = Owners(died).of_crash(died).threads or ()
    assert next(one.function for one in thread.python or () if one.owner == "script") == own
    place = own_place(thread)
    assert place is not None
    assert place.function == own


def test_two_modules_of_one_name_are_told_apart_by_the_address() -> None:
    both = owners("module /home/u/project/core.so\n module /v/lib/python3.11/site-packages/foo/core.so")
    modules = crash("module a\n module b").modules
    assert modules is not None
    second = Frame(index=0, kind="native", module="core.so", address=modules[1].low)
    assert both.of_frame(second) == Whose("package", "foo", None)
    assert both.of_module("core.so") is None


def test_a_package_whose_sources_are_at_hand_is_the_users_own() -> None:
    text = """
        module /v/lib/python3.11/site-packages/op/_op.so
        thread 4711 python3 crashed
        frame fill @ _op.so in /home/u/project/src/fill.cc:12
        frame other @ _op.so in /build/elsewhere/other.cc:3
        python main /home/u/project/train.py:3
    """
    (thread,) = Owners(crash(text)).of_crash(crash(text)).threads or ()
    assert [frame.owner for frame in thread.frames or ()] == ["native-code", "package"]


def test_the_report_names_the_owner_of_each_frame_and_of_the_culprit() -> None:
    report = diagnose(
        crash(
            LOADED
            + """
        signal SIGSEGV SEGV_MAPERR 0x0 read
        at 0x7f0000001000 mov eax, dword ptr [rdi]
        operand read [rdi] = 0x0 size 4 rdi=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame load @ _foo.cpython-311-x86_64-linux-gnu.so takes 32
        frame cfunction_call @ python3.11 takes 32
        frame fused
        python step /home/u/project/train.py:40
        python run /usr/lib/python3.11/threading.py:7
    """
        ),
        crash_rules(),
    )
    thread = report.crash.crashed_thread
    assert thread is not None
    assert [frame.owner for frame in thread.frames or ()] == ["package", "interpreter", None]
    assert [frame.owner for frame in thread.python or ()] == ["script", "interpreter"]
    blamed = report.verdict.culprit if report.verdict else None
    assert blamed is not None
    assert (blamed.owner, blamed.package, blamed.version) == ("package", "foo", "1.2")
    assert spelled(blamed)[0] == "load in _foo.cpython-311-x86_64-linux-gnu.so of the package foo 1.2"


@pytest.mark.parametrize(
    ("culprit", "expected"),
    [
        (Culprit(module="op.so", owner="native-code"), "your own native module op.so"),
        (Culprit(module="a.so", owner="package", package="foo"), "a.so of the package foo"),
        (Culprit(module="a.so", owner="package"), "a.so of another package"),
        (Culprit(module="a.so", owner="framework", package="torch", version="2.4"), "a.so of torch 2.4"),
        (Culprit(module="python3.11", owner="interpreter"), "python3.11, the interpreter"),
        (Culprit(module="libc.so.6", owner="system"), "libc.so.6, a library of the system"),
        (Culprit(module="op.so"), "op.so"),
    ],
)
def test_an_owner_in_words(culprit: Culprit, expected: str) -> None:
    assert whose_module(culprit) == expected


def test_a_crash_without_threads_has_no_owners() -> None:
    assert Owners(Crash()).of_crash(Crash()) == Crash()
