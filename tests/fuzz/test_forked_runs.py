"""The runs that findings are diagnosed from, in forks of a process with the imports. Functions in C, no TensorFlow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import needs
from necropsy import fuzzing, watch
from necropsy.capture.linux.supervise import guard_preload
from necropsy.confirm.subreaper import descendants
from necropsy.fuzz import diagnosed_runs, plain_run
from necropsy.fuzz.causes import Alone
from necropsy.fuzz.cheap_signature import Death
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.forked_runs import ForkedRuns
from necropsy.fuzz.recipes import Recipe
from necropsy.model import Report
from necropsy.watch.client import VARIABLE

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="processes are forked"), needs.command("gcc")]

SOURCE = r"""
#include <stdlib.h>
__attribute__((noinline)) int far(const int *in) { return in[1L << 40]; }
__attribute__((noinline)) int give_up(void) { abort(); }
__attribute__((noinline)) int deeper(volatile char *from, long depth) {
    volatile char here[4096];
    here[0] = from[0];
    return depth ? deeper(here, depth - 1) + here[0] : here[0];
}
__attribute__((noinline)) int past_the_end(long bytes) {
    volatile char *block = malloc(bytes);
    for (long at = 0; at <= bytes; at++) block[at] = 1;
    return 0;
}
__attribute__((noinline)) int before_the_begin(long bytes) {
    volatile char *block = malloc(bytes);
    for (long at = bytes - 1; at >= -1; at--) block[at] = 1;
    return 0;
}
"""
TEST = """
import ctypes
import sys
from pathlib import Path

native = ctypes.CDLL(str(Path(__file__).parent / "native.so"))


def test_far():
    native.far(ctypes.create_string_buffer(8))


def test_give_up():
    native.give_up()


def test_deeper():
    native.deeper(b"a", ctypes.c_long(1 << 20))


def call_past_the_end():
    ctypes.CDLL(None).necropsy_guard_arm(-1)
    native.past_the_end(ctypes.c_long(64))


def call_before_the_begin():
    ctypes.CDLL(None).necropsy_guard_arm(-1)
    native.before_the_begin(ctypes.c_long(64))


def test_survivor():
    print("alive")


def test_error():
    raise ValueError


def test_surroundings():
    assert sys.argv[0] == "-c"
    assert sys.stdin.read() == ""
    assert not list(Path.cwd().iterdir())
    native.give_up()
"""
END, BEGIN = Configuration(guard="end", small_blocks=100), Configuration(guard="begin", small_blocks=100)
guarded = pytest.mark.skipif(not guard_preload.LIBRARY.exists(), reason="there is no guard")


@pytest.fixture(scope="module")
def test(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text(SOURCE)
    words = ["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", "native.so", "native.c"]
    subprocess.run(words, cwd=folder, check=True)
    (folder / "test_native.py").write_text(TEST)
    return folder / "test_native.py"


@pytest.fixture
def forked() -> Iterator[ForkedRuns]:
    one = ForkedRuns(sys.executable, ("ctypes", "json"))
    yield one
    one.close()


def alone(configuration: Configuration = PLAIN) -> Alone:
    return Alone(Recipe("op", {}, {}), 1, Death("SIGSEGV", "SIGSEGV"), configuration)


def report_of(
    test: Path, function: str, forked: ForkedRuns | None, configuration: Configuration = PLAIN
) -> Report | None:
    return diagnosed_runs.report_of(sys.executable, test, function, alone(configuration), build=None, forked=forked)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("it was run in a process of its own")


@pytest.mark.parametrize(
    ("function", "rule", "culprit", "configuration"),
    [
        ("test_far", "invalid-read", "far", PLAIN),
        ("test_give_up", "abort", "give_up", PLAIN),
        ("test_deeper", "stack-overflow-recursion", "deeper", PLAIN),
        pytest.param("call_past_the_end", "heap-buffer-overflow", "past_the_end", END, marks=guarded),
        pytest.param("call_before_the_begin", "heap-buffer-overflow", "before_the_begin", BEGIN, marks=guarded),
    ],
)
def test_the_verdict_is_that_of_a_process_of_its_own(  # noqa: PLR0917 - its cases have as many
    test: Path,
    forked: ForkedRuns,
    function: str,
    rule: str,
    culprit: str,
    configuration: Configuration,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plainly = report_of(test, function, None, configuration)
    monkeypatch.setattr(plain_run, "document_of", refuse)
    quickly = report_of(test, function, forked, configuration)
    for report in (plainly, quickly):
        assert report is not None
        assert report.verdict is not None
        assert report.verdict.culprit is not None
        assert (report.verdict.rule, report.verdict.culprit.function) == (rule, culprit)
    assert plainly is not None
    assert quickly is not None
    assert plainly.signature == quickly.signature
    assert {one.part for one in quickly.gaps} <= {one.part for one in plainly.gaps}


def test_the_process_is_as_it_would_be_alone(test: Path, forked: ForkedRuns) -> None:
    for _ in range(2):
        document = forked.document_of(test, "test_surroundings")
        assert document is not None
        assert [one.verdict and one.verdict.rule for one in document.reports] == ["abort"]


def test_what_survives_has_no_document(test: Path, forked: ForkedRuns) -> None:
    assert forked.document_of(test, "test_survivor") is None
    assert forked.document_of(test, "test_error") is None
    assert forked.document_of(test, "test_far") is not None


def test_a_run_that_cannot_be_forked_is_made_elsewhere(
    test: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "with_a_thread.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    threaded = ForkedRuns(sys.executable, ("with_a_thread",))
    monkeypatch.delenv(VARIABLE, raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(watch, "start", lambda: os.environ.setdefault(VARIABLE, str(tmp_path / "nobody")))
        unwatched = ForkedRuns(sys.executable, ())
        unwatched.prepare()
    absent = ForkedRuns(str(tmp_path / "python"), ())
    for one in (threaded, unwatched, absent):
        assert one.document_of(test, "test_far") is None
        report = report_of(test, "test_far", one)
        assert report is not None
        assert report.verdict is not None
        assert report.verdict.rule == "invalid-read"
        one.close()


def test_nothing_stays(test: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = set(descendants(os.getpid()))
    forked = ForkedRuns(sys.executable, ())
    forked.prepare()
    assert forked.document_of(test, "test_far") is not None
    ours = set(descendants(os.getpid())) - before
    assert ours
    assert VARIABLE in os.environ
    for pid in ours:
        os.kill(pid, signal.SIGKILL)
    assert forked.document_of(test, "test_far") is None
    forked.close()
    assert set(descendants(os.getpid())) == before
    assert VARIABLE not in os.environ


@pytest.mark.slow
def test_a_campaign_diagnoses_in_forks(test: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plain_run, "document_of", refuse)
    file = test.parent / "bindings.py"
    file.write_text(TEST + "\n\ndef depth(many: int) -> int:\n    return native.deeper(b'a', ctypes.c_long(many))\n")
    options = fuzzing.Options(calls=150, budget_s=300, tests=Path("tests"), guard="off")
    document, _ = fuzzing.fuzzed(f"{file}:depth", options)
    assert document.fuzz is not None
    assert "stack-overflow-recursion" in {one.rule for one in document.fuzz.findings}
    assert all(one.report == document.id for one in document.fuzz.findings)
