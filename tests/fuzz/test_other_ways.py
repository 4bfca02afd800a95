"""Calls by several threads at once, and what is chosen for them: a function in C, no TensorFlow.

Real ops are in ``test_fuzz_command.py``, in its one campaign.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import needs
from necropsy.capture.linux.supervise import guard_preload
from necropsy.fuzz import test_writer as writer
from necropsy.fuzz.configurations import PLAIN, Configuration, Threads
from necropsy.fuzz.described_calls import described
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.other_ways import SHARED_KERNEL, chosen, counting, of_one_kernel, survived_by_one_thread
from necropsy.fuzz.recipes import Recipe, Tensor
from necropsy.model import Document, FuzzFinding, FuzzFirst, Fuzzing, Reproduced, Subject, Tool
from necropsy.reports.fuzz import render

SOURCE = r"""
#include <stdlib.h>
#include <unistd.h>
static char *kept;
int shared(long bytes) {
    char *mine = malloc(bytes);
    free(kept);
    kept = mine;
    usleep(20);
    free(kept);
    kept = 0;
    return 0;
}
int own(long bytes) {
    char *mine = malloc(bytes);
    usleep(20);
    free(mine);
    return 0;
}
"""
BINDINGS = """
import ctypes
from pathlib import Path

native = ctypes.CDLL(str(Path(__file__).parent / "native.so"))


def called(name: str, size: int) -> int:
    if size < 0:
        raise ValueError("a negative size")
    return getattr(native, name)(ctypes.c_long(size))
"""
THREADS = Configuration(threads=Threads(seconds=8.0))
BRIEFLY = Configuration(threads=Threads(seconds=0.3))

forks = [
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked"),
    needs.command("gcc"),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", "native.so", "native.c"], cwd=folder, check=True)
    (folder / "bindings.py").write_text(BINDINGS)
    wanted = {"module": str(folder / "bindings.py"), "function": "called", "folder": str(folder)}
    one = Engine(sys.executable, wanted, guard=guard_preload.LIBRARY.exists())
    one.limit_seconds(60.0)  # the machine may be busy
    yield one
    one.close()


class TestThreads:
    pytestmark = forks

    def ended(self, engine: Engine, arguments: str, configuration: Configuration) -> str:
        engine.use(configuration)
        return engine.run([("target", arguments)], fresh=True)[-1].kind

    def test_what_threads_share_kills(self, engine: Engine) -> None:
        assert self.ended(engine, "name='shared', size=40", PLAIN) == "accepted"
        assert self.ended(engine, "name='shared', size=40", THREADS) == "died"

    @pytest.mark.skipif(not guard_preload.LIBRARY.exists(), reason="there is no guard")
    def test_freed_blocks_cannot_be_touched(self, engine: Engine) -> None:
        guarded = Configuration(guard="end", small_blocks=-1, threads=THREADS.threads)
        assert self.ended(engine, "name='shared', size=40", guarded) == "died"

    def test_what_threads_do_not_share_lives(self, engine: Engine) -> None:
        assert self.ended(engine, "name='own', size=40", BRIEFLY) == "accepted"

    def test_a_refusal_is_no_death(self, engine: Engine) -> None:
        assert self.ended(engine, "name='own', size=-1", BRIEFLY) == "accepted"

    def test_calls_beside_it_are_made_too(self, engine: Engine) -> None:
        beside = Threads(seconds=8.0, beside=(("target", "name='shared', size=40"),))
        assert self.ended(engine, "name='own', size=40", Configuration(threads=beside)) == "died"

    def test_a_value_that_cannot_be_made_is_no_call(self, engine: Engine) -> None:
        assert self.ended(engine, "name=1 / 0, size=40", BRIEFLY) == "misused"

    def test_all_that_is_behind_a_handle_is_guarded(self, engine: Engine) -> None:
        engine.use(Configuration(guard="end", small_blocks=100))
        inputs = []
        for guards in (False, True):
            engine.guards_handles = guards
            inputs.append(engine._how()["guard"]["inputs"])
        engine.guards_handles = False
        assert inputs == [100, -1]

    def test_they_go_on_for_a_while(self, engine: Engine) -> None:
        began = time.monotonic()
        self.ended(engine, "name='own', size=40", BRIEFLY)
        assert time.monotonic() - began >= 0.3


def recipe(dtype: str, size: int, attributes: Mapping[str, Any], *, varied: bool = False) -> Recipe:
    one = Tensor(dtype, (size,), "ramp", (0, 1)) if varied else Tensor(dtype, (size,))
    return Recipe("ops.Op", {"x": one}, attributes)


def test_a_kernel_has_the_calls_with_its_types_and_attributes() -> None:
    calls = [recipe("int32", size, {"axis": axis}) for size in (1, 2, 3) for axis in (0, 1)]
    calls += [recipe("int64", 1, {"axis": 0}), recipe("int32", 10**6, {"axis": 0})]
    calls += [recipe("int32", 4, {"axis": 1, "ring.size": 3})]  # of the resource, not of the kernel
    groups = of_one_kernel(calls)
    assert [[(one.elements, one.attributes["axis"]) for one in group] for group in groups] == [
        [(1, 1), (2, 1), (3, 1), (4, 1)],
        [(1, 0), (2, 0), (3, 0)],
        [(1, 0)],
    ], "those of a million elements take too long"


def test_a_call_with_different_elements_comes_first_and_then_large_ones() -> None:
    calls = [recipe("int32", size, {}, varied=size == 50) for size in range(100)]
    assert [one.elements for one in chosen(calls)] == [50, 99, 74, 49]
    assert [one.elements for one in chosen(calls[:1])] == [0]


def test_elements_that_count_up() -> None:
    one = Recipe("ops.Op", {"x": Tensor("float32", (3,)), "name": Tensor("string", (2,), "same", (("a", 1),))}, {})
    assert counting(one).inputs == {"x": Tensor("float32", (3,), "ramp", (0, 1)), "name": one.inputs["name"]}


@pytest.mark.parametrize(
    ("configuration", "modules"),
    [
        (Configuration(graph=True), {"numpy", "os", "pathlib", "tensorflow"}),
        (THREADS, {"os", "pathlib", "signal", "subprocess", "sys", "threading", "time"}),
        (
            Configuration(guard="end", small_blocks=-1, threads=Threads(beside=(("ops.Op", "x=np.zeros(3)"),))),
            {"ctypes", "json", "os", "pathlib", "shutil", "subprocess", "sys", "tempfile", "threading", "time"},
        ),
    ],
)
def test_what_a_test_imports(configuration: Configuration, modules: set[str]) -> None:
    text = writer.text_of(
        "Op",
        recipe("int32", 3, {"axis": 0}),
        repeated=1,
        headline="x",
        source=writer.Source(library=Path("/elsewhere/op.so")),
        place=Path("/tests/test_op.py"),
        configuration=configuration,
    )
    tree = ast.parse(text)
    imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert imported == modules
    assert ("tf.function(lambda **inputs: ops.Op(**inputs), autograph=False)" in text) is configuration.graph
    assert ("threading.Thread" in text) is (configuration.threads is not None)
    assert ("x=np.zeros(3)" in text) is (configuration.guard is not None)


def test_the_report_says_what_it_needs_and_what_other_threads_call() -> None:
    call = described("Op", recipe("int32", 3, {}), 1, [("ops.Op", "x=np.zeros(3)")])
    finding = FuzzFinding(
        rule="double-free",
        title="",
        summary="`Op` freed a block twice.",
        confidence="certain",
        severity="error",
        evidence=(survived_by_one_thread(guard=True),),
        fixes=(SHARED_KERNEL,),
        call=call,
        first=FuzzFirst(execution=1, seconds=0.1),
        times=1,
        reproduced=Reproduced(runs=5, crashed=3),
        needs=("threads", "graph"),
        report="1",
        elements=3,
    )
    document = Document(
        kind="fuzz",
        id="1",
        tool=Tool(name="necropsy", version="1"),
        complete=True,
        subject=Subject(kind="binary", path="op.so"),
        fuzz=Fuzzing(executions=1, seconds=1.0, seed=0, findings=(finding,)),
    )
    text = " ".join(render(document).split())
    assert "Needs several threads and a graph (`tf.function`)." in text
    assert "Other threads call meanwhile: ops.Op(x=np.zeros(3))" in text
    assert "made again, it died in 3 of 5 runs" in text
    assert "Fix: TensorFlow calls one kernel from several threads at the same time" in text
