"""Results that depend on chance or on old memory, and inputs that are changed. Functions in C, no TensorFlow."""

from __future__ import annotations

import ast
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest

import needs
from necropsy import fuzzing
from necropsy.capture.linux.supervise import guard_preload
from necropsy.fuzz import contract, contract_tests
from necropsy.fuzz import test_writer as writer
from necropsy.fuzz.comparisons import Comparisons
from necropsy.fuzz.definitions import python_function
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.recipes import Recipe, Tensor
from necropsy.fuzz.target import comparing
from necropsy.model import CallComparison, Evidence, FuzzCall, FuzzFinding, FuzzFirst, Reproduced

forks = [
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked"),
    pytest.mark.skipif(not guard_preload.LIBRARY.exists(), reason="there is no guard: no compiler at installation"),
    needs.command("gcc"),
]
SOURCE = r"""
#include <stdlib.h>
int calls;
int sum(const int *in, long many, int *sums) {
    int total = 0;
    for (long at = 0; at < many; at++)
        if (in[at] > 0) sums[at] = in[at];
    for (long at = 0; at < many; at++) total += sums[at];
    free(sums);
    return total;
}
int gaps(const int *in, long many) { return sum(in, many, malloc(many * sizeof(int) + 1)); }
int no_gaps(const int *in, long many) { return sum(in, many, calloc(many + 1, sizeof(int))); }
int counted(const int *in, long many) { return ++calls; }
int sorted(int *in, long many) { if (many > 1) in[0] = in[many - 1] + 7; return 0; }
"""
BINDINGS = """
import ctypes
from pathlib import Path

import numpy as np

native = ctypes.CDLL(str(Path(__file__).parent / "native.so"))


def call(values: np.ndarray, which: str = "gaps") -> int:
    return getattr(native, which)(values.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(values.size))


def gaps(values: np.ndarray) -> int:
    return call(np.ascontiguousarray(values, np.int32), WHICH)


WHICH = "gaps"
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", "native.so", "native.c"], cwd=folder, check=True)
    (folder / "bindings.py").write_text(BINDINGS)
    return folder / "bindings.py"


@pytest.fixture(scope="module")
def comparisons(file: Path) -> Iterator[Comparisons]:
    wanted = {"module": str(file), "function": "call", "folder": str(file.parent)}
    engine = Engine(sys.executable, wanted, guard=True)
    yield Comparisons(engine, python_function(engine.offered["function"]))
    engine.close()


class TestComparisons:
    pytestmark = forks

    @pytest.mark.parametrize(
        ("which", "varies", "by_fill", "modified"),
        [
            ("gaps", False, True, ()),
            ("no_gaps", False, False, ()),
            ("counted", True, False, ()),
            ("sorted", False, False, ("values",)),
        ],
    )
    def test_a_call_is_compared(
        self, comparisons: Comparisons, which: str, varies: bool, by_fill: bool, modified: tuple[str, ...]
    ) -> None:
        values = Tensor("int32", (4,), "cycle", (1, 0, 2, 0))
        found = comparisons.again(Recipe("target", {"values": values}, {"which": which}, arrays=True))
        assert found is not None
        assert (found.varies, found.by_fill, found.modified) == (varies, by_fill, modified)
        assert found.target == "call"

    @pytest.mark.slow
    def test_a_finding_and_its_test(self, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        options = fuzzing.Options(calls=200, budget_s=300, tests=Path("tests"), guard="on")
        document, _ = fuzzing.fuzzed(f"{file}:gaps", options)
        assert document.fuzz is not None
        (finding,) = document.fuzz.findings
        assert (finding.rule, finding.needs) == ("op-uninitialised-read", ("guard", "second-run"))
        assert finding.elements == 1

        def run() -> tuple[int, str]:
            words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(finding.test)]
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            variables = {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
            done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout

        failed, text = run()
        assert failed == 1
        assert "AssertionError: op-uninitialised-read" in text
        file.write_text(BINDINGS.replace('WHICH = "gaps"', 'WHICH = "no_gaps"'))
        passed, text = run()
        assert passed == 0
        assert "1 passed" in text


def compared(call: Callable[[int], object]) -> dict[str, Any]:
    """Compare what the first to the sixth call of a function gives."""
    numbers = itertools.count()
    found: dict[str, Any] = json.loads(
        comparing.compare("f", "", {"f": lambda: call(next(numbers))}, (ValueError, MemoryError), None)
    )
    return found


def raising(error: Exception) -> NoReturn:
    raise error


def test_a_refusal_is_a_result() -> None:
    assert not compared(lambda _number: raising(ValueError("so")))["varies"]
    assert compared(lambda number: raising(ValueError("so")) if number == 4 else 0)["varies"]


@pytest.mark.parametrize(
    "call",
    [
        lambda number: raising(MemoryError()) if number == 4 else 0,  # the results before it take up the memory
        lambda number: np.full(5_000_000, number, np.int32),
    ],
)
def test_what_there_is_no_memory_for_is_not_compared(call: Callable[[int], object]) -> None:
    with pytest.raises(comparing.NotComparedError):
        compared(call)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.array([1.0, math.nan], np.float32), np.array([1.0001, math.nan], np.float32), True),
        (np.array([1.0], np.float32), np.array([1.1], np.float32), False),
        (np.array([math.inf, 0.0], np.float64), np.array([math.inf, 0.0], np.float64), True),
        (np.array([math.inf], np.float64), np.array([1.0], np.float64), False),
        (np.array([1e6, 1e-12], np.float64), np.array([1e6, 0.0], np.float64), True),
        (np.array([1], np.int32), np.array([2], np.int32), False),
        (np.array([1], np.int32), np.array([1], np.int64), False),
        (np.zeros(0), np.zeros((0, 2)), False),
        (np.array([b"a"], object), np.array([b"a"], object), True),
        (np.array([1 + 1j], np.complex64), np.array([1 + 2j], np.complex64), False),
        ([1, "a"], [1, "a"], True),
        ([1], [1, 2], False),
        (math.nan, math.nan, True),
        ("ValueError", 1.0, False),
    ],
)
def test_results_that_are_the_same(one: object, other: object, same: bool) -> None:
    assert comparing.is_same(comparing.copied(one), comparing.copied(other)) == same


@pytest.mark.parametrize(
    "source", [writer.Source(library=Path("/a/op.so")), writer.Source(), writer.Source(module="m", function="f")]
)
@pytest.mark.parametrize(
    "rule",
    [
        "op-uninitialised-read",
        "op-nondeterministic",
        "data-race",
        "op-input-modified",
        "op-shape-function-wrong",
        "op-gradient-wrong",
    ],
)
def test_the_text_of_a_test(rule: str, source: writer.Source) -> None:
    recipe = Recipe("ops.Gather", {"rows": Tensor("int32", (1,), "same", (-1,))}, {"mode": "a"})
    place = Path("/somewhere/tests/test_gather.py")
    text = contract_tests.text_of(rule, "Gather", recipe, headline="x", source=source, place=place, names=["rows"])
    tree = ast.parse(text)
    assert "test_gather" in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert f"{rule}: " in text
    assert "import necropsy" not in text


@pytest.mark.parametrize("rule", ["op-nondeterministic", "op-shape-function-wrong", "op-input-modified"])
def test_a_refusal_passes(rule: str, tmp_path: Path) -> None:
    """The op is corrected, and refuses the call."""
    source = writer.Source(module="refusing", function="refuse")
    recipe = Recipe("target", {"rows": Tensor("int32", (1,))}, arrays=True)
    place = tmp_path / "test_refuse.py"
    text = contract_tests.text_of(rule, "refuse", recipe, headline="x", source=source, place=place, names=[])
    fake = "class tf:\n    class nest:\n        flatten = staticmethod(list)\n"  # what the test needs of it
    place.write_text(f"{fake}\n{text.split(chr(34) * 3)[2]}")
    (tmp_path / "refusing.py").write_text("def refuse(rows):\n    raise ValueError('no')\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(place)]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_an_access_beyond_a_buffer_explains_other_results() -> None:
    found = FuzzFinding(
        rule="heap-buffer-overflow",
        title="",
        summary="",
        confidence="certain",
        severity="error",
        evidence=(Evidence(claim="a", seen="b", where="c"),),
        call=FuzzCall(target="X", python="ops.X()"),
        first=FuzzFirst(execution=1, seconds=0.1),
        times=1,
        reproduced=Reproduced(runs=5, crashed=5),
        elements=0,
    )
    assert contract.explaining("op-nondeterministic", "X", [found]) == "heap-buffer-overflow"
    assert contract.explaining("op-input-modified", "X", [found]) is None
    assert contract.explaining("op-nondeterministic", "Y", [found]) is None
    for summary, explains in (("index 10 out of bounds for type 'int [10]'", True), ("signed integer overflow", False)):
        sanitized = msgspec.structs.replace(found, rule="sanitizer-report", summary=summary)
        assert (contract.explaining("op-nondeterministic", "X", [sanitized]) is not None) is explains


def test_each_rule_has_a_test() -> None:
    comparison = CallComparison(target="X", runs=3, by_fill=True, modified=("x",))
    assert set(contract.judged(comparison)) == {"op-uninitialised-read", "op-input-modified"}
    varying = CallComparison(target="X", runs=3, varies=True)
    assert set(contract.judged(varying)) == {"op-nondeterministic"}
    cured = CallComparison(target="X", runs=3, varies=True, cured_by_one_thread=True)
    assert set(contract.judged(cured)) == {"data-race"}
