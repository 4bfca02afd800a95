"""``--source``: what only a build with AddressSanitizer shows. Functions in C, no TensorFlow; one campaign for all tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import needs
from necropsy import fuzzing
from necropsy.errors import NecropsyError, NoInputError, OptionError
from necropsy.fuzz import sanitized_build
from necropsy.fuzz.configurations import SANITIZED
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.limits import Limits
from necropsy.fuzz.opened_target import OpenTarget
from necropsy.fuzz.sanitized_build import SanitizedBuild
from necropsy.model import Fuzzing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")
COMPILER = re.compile(r"(?:.*-)?(?:g?cc|[gc]\+\+|clang(?:\+\+)?)(?:-\d+)?")

SOURCE = r"""
struct pair { int codes[4]; int last; };
static struct pair made;
__attribute__((noinline)) int store(struct pair *into, int at) { into->codes[at] = 3; return into->last; }
int member(int at) { return at < 0 || at > LAST ? -1 : store(&made, at); }
int local(int at) { volatile int taps[4] = {0}; volatile int *all = taps; all[at] = 1; return taps[0]; }
int magic(int number) { return number == 48271 ? store(&made, number - 48271 + LAST) : 0; }
#include "eigen3/sum.h"
int in_a_header(int number) { return sum(number, number); }
int in_the_file(int number) { return number + number; }
int down(int number) { return number <= 0 ? 0 : number % 7 + down(number - 1); }
int chosen(int number) { switch (number) { case -3000: return 1; case 500: return 2; case 123456: return 3; } return 0; }
"""
BINDINGS = """
import ctypes
import os
from pathlib import Path

native = ctypes.CDLL(os.environ.get("NECROPSY_FUZZ_LIBRARY") or str(Path(__file__).parent / "native.so"))


def member(at: int) -> int:
    return native.member(at)


def local(at: int) -> int:
    return native.local(at)


def magic(number: int) -> int:
    return native.magic(ctypes.c_int(number))


def in_a_header(number: int) -> int:
    return native.in_a_header(number)


def in_the_file(number: int) -> int:
    return native.in_the_file(number)


def down(number: int) -> int:
    return native.down(number)


def chosen(number: int) -> int:
    return native.chosen(ctypes.c_int(number))
"""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("gcc", marks=[needs.command("gcc", "g++"), needs.sanitizer("address")]),
        pytest.param("clang", marks=[needs.command("clang", "clang++"), needs.sanitizer("address", "clang")]),
    ],
)
def compiler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The only compiler of the machine, as far as ``PATH`` tells."""
    name: str = request.param
    folder = tmp_path_factory.mktemp("commands")
    kept = {name, {"gcc": "g++", "clang": "clang++"}[name]}
    for place in os.get_exec_path():
        for one in Path(place).glob("*"):
            if (one.name in kept or not COMPILER.fullmatch(one.name)) and not (folder / one.name).is_symlink():
                (folder / one.name).symlink_to(one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder))
        patch.delenv("CXX", raising=False)
        yield name


class Sources(NamedTuple):
    folder: Path
    bindings: Path
    wrong: Path
    right: Path


@pytest.fixture(scope="module")
def sources(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "eigen3").mkdir()
    (folder / "eigen3" / "sum.h").write_text("static int sum(int one, int other) { return one + other; }\n")
    (folder / "native.c").write_text(SOURCE.replace("LAST", "4"))
    (folder / "right.c").write_text(SOURCE.replace("LAST", "3"))
    (folder / "bindings.py").write_text(BINDINGS)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", "native.so", "native.c"], cwd=folder, check=True)
    return Sources(folder, folder / "bindings.py", folder / "native.c", folder / "right.c")


@pytest.fixture(scope="module")
def build(sources: Sources) -> SanitizedBuild:
    return sanitized_build.build([sources.wrong], "native.so", sys.executable, sources.folder / "builds")


class Loaded:
    """Functions of the sanitized build, each behind a fork server of its own."""

    def __init__(self, sources: Sources, build: SanitizedBuild) -> None:
        self._sources, self._build, self._engines = sources, build, dict[str, Engine]()

    def of(self, function: str) -> Engine:
        if function not in self._engines:
            wanted = {
                "module": str(self._sources.bindings),
                "function": function,
                "folder": str(self._sources.folder),
                "sanitized": str(self._build.library),
            }
            variables = {**self._build.variables(quick=True), "NECROPSY_FUZZ_LIBRARY": str(self._build.library)}
            self._engines[function] = Engine(sys.executable, wanted, Limits(data=None), variables=variables)
            self._engines[function].use(SANITIZED)
        return self._engines[function]

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()


@pytest.fixture(scope="module")
def loaded(sources: Sources, build: SanitizedBuild) -> Iterator[Loaded]:
    one = Loaded(sources, build)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("function", "lethal", "harmless", "said"),
    [
        ("member", "at=4", "at=3", "index 4 out of bounds for type 'int"),
        ("local", "at=5", "at=3", "AddressSanitizer: stack-buffer-overflow"),
        ("in_the_file", "number=1 << 30", "number=1", "signed integer overflow"),
    ],
)
def test_what_no_guard_page_sees(loaded: Loaded, function: str, lethal: str, harmless: str, said: str) -> None:
    engine = loaded.of(function)
    assert engine.run([("target", harmless)])[-1].kind == "accepted"
    end = engine.run([("target", lethal)])[-1]
    assert end.death is not None
    assert end.death.signal == "SIGABRT"
    assert said in (end.death.said or "")
    assert end.death.signature.startswith("sanitizer ")
    assert end.death.signature.endswith(("native.so store", f"native.so {function}"))


def test_a_recursion_stays_one(loaded: Loaded) -> None:
    """At -O2 the compilers make a loop of it, so that no stack is full."""
    end = loaded.of("down").run([("target", "number=100_000_000")])[-1]
    assert end.death is not None
    assert end.death.of_the_stack


def test_headers_may_overflow(loaded: Loaded) -> None:
    assert loaded.of("in_a_header").run([("target", "number=1 << 30")])[-1].kind == "accepted"


def test_the_constants_that_calls_are_compared_with(loaded: Loaded) -> None:
    engine = loaded.of("chosen")
    engine.forget_compared()
    engine.run([("target", "number=1"), ("target", "number=2")])
    assert set(engine.compared) == {-3000, 500, 123_456}
    engine.run([("target", "number=500")], fresh=True)
    assert len(engine.compared) == 3, "another worker does not add them again"
    engine.forget_compared()
    assert engine.compared == []


class Found(NamedTuple):
    folder: Path
    text: str
    document: dict[str, Any]

    @property
    def finding(self) -> dict[str, Any]:
        (one,) = self.document["fuzz"]["findings"]
        return dict(one)


@pytest.fixture(scope="module")
def found(sources: Sources) -> Found:
    """The constant that the function compares with is no value that is tried in any case."""
    words = ["necropsy", "fuzz", "bindings.py:magic", "--source", "native.c", "--calls", "400", "--guard", "off"]
    done = subprocess.run(
        [sys.executable, "-m", *words, "--budget", "300", "--json", "found.json"],
        cwd=sources.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return Found(sources.folder, done.stdout, json.loads((sources.folder / "found.json").read_bytes()))


def test_a_finding_names_what_it_needs(found: Found) -> None:
    finding = found.finding
    assert (finding["rule"], finding["needs"]) == ("sanitizer-report", ["sanitizer"])
    assert finding["call"]["python"] == "magic(number=48271)"
    assert finding["culprit"]["function"] == "store"
    assert finding["culprit"]["line"] == 4
    assert finding["reproduced"] == {"runs": 5, "crashed": 5}
    (target,) = found.document["fuzz"]["targets"]
    assert 0 < target["sanitized"] < target["executions"]
    assert finding["first"]["execution"] > target["executions"] - target["sanitized"]
    assert "Needs a build of its source with AddressSanitizer (--source)." in " ".join(found.text.split())
    assert not found.document["gaps"]


def test_its_test_fails_by_name_and_passes_on_the_correct_source(found: Found, sources: Sources, compiler: str) -> None:
    words = [sys.executable, "-c", _OUTCOME, found.finding["test"]]

    def outcome(**more: str) -> str:
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"} | more
        done = subprocess.run(words, cwd=found.folder, env=variables, capture_output=True, text=True, check=True)
        return done.stdout

    said = outcome()
    assert said.startswith("Failed: sanitizer-report: ")
    assert "index 4 out of bounds" in said
    assert outcome(NECROPSY_FUZZ_SOURCE=str(sources.right)) == "passed"
    names = "gcc or clang" if compiler == "gcc" else "clang or gcc"
    skipped = f"Skipped: there is no {names} with AddressSanitizer to build the source with"
    assert outcome(PATH="/nowhere") == skipped


_OUTCOME = """
import runpy, sys
import pytest
try:
    runpy.run_path(sys.argv[1])["test_magic"]()
except (pytest.fail.Exception, pytest.skip.Exception) as error:
    print(type(error).__name__, error, sep=": ", end="")
else:
    print("passed", end="")
"""


def _campaign(sources: Sources, target: str, source: Path, tests: Path) -> tuple[Fuzzing, list[str]]:
    options = fuzzing.Options(calls=1, budget_s=60, guard="off", tests=tests, sources=(source,))
    document, _ = fuzzing.fuzzed(f"{sources.folder / target}:member", options)
    assert document.fuzz is not None
    return document.fuzz, [gap.why for gap in document.gaps if gap.part == "--source"]


def test_a_source_that_does_not_compile_is_a_gap(sources: Sources, tmp_path: Path) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int member(int at) { return at + none; }\n")
    fuzz, (why,) = _campaign(sources, "bindings.py", broken, tmp_path / "tests")
    assert "broken.c does not compile: " in why
    assert re.search(r"[‘']none[’'] undeclared|undeclared identifier 'none'", why)
    assert fuzz.executions


def test_a_function_that_loads_another_library_is_a_gap(sources: Sources, tmp_path: Path) -> None:
    (sources.folder / "fixed.py").write_text(BINDINGS.replace('os.environ.get("NECROPSY_FUZZ_LIBRARY")', "None"))
    _, (why,) = _campaign(sources, "fixed.py", sources.wrong, tmp_path / "tests")
    assert "does not load the library that NECROPSY_FUZZ_LIBRARY names" in why


def test_no_compiler_is_a_gap(sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with OpenTarget(f"{sources.bindings}:member", sys.executable, guard=False) as opened:
        error = opened.open_sanitized([sources.wrong], sys.executable, tmp_path / "builds")
    assert isinstance(error, NecropsyError)
    assert str(error) == "there is no g++ and no clang++ on this machine"


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ("f.py:f nowhere.cc", NoInputError, "--source nowhere.cc: there is no such file"),
        ("f.py:f kernel.cu", OptionError, "this is not a file of C or C"),
        ("f.py:f one.c two.cc", OptionError, "cannot be compiled into one library"),
        ("tf.raw_ops.AddV2 two.cc", OptionError, "not with TensorFlow's own ops"),
    ],
)
def test_what_is_refused(
    words: str, error: type[NecropsyError], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("kernel.cu", "one.c", "two.cc"):
        Path(name).touch()
    target, *names = words.split()
    with pytest.raises(error, match=said):
        fuzzing.fuzzed(target, fuzzing.Options(sources=tuple(map(Path, names))))


def test_a_cluster_builds_nothing() -> None:
    with pytest.raises(OptionError, match="does not go with --ray"):
        fuzzing.fuzzed("f.py:f", fuzzing.Options(sources=(Path("two.cc"),), ray="auto"))
