"""Deaths that a plain process does not show: with guarded buffers, and on a small stack. Functions in C, no TensorFlow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

import needs
from necropsy import fuzzing
from necropsy.capture.linux.supervise import guard_preload
from necropsy.errors import NecropsyError
from necropsy.fuzz import diagnosed_runs, findings, op_campaigns, test_writer
from necropsy.fuzz.boundaries import LARGE, LARGE_SIZES
from necropsy.fuzz.campaign import Campaign, Suspect
from necropsy.fuzz.cheap_signature import Death
from necropsy.fuzz.configurations import PLAIN, SMALL_BLOCKS, SMALL_STACK, Configuration, rotation, why_unguarded
from necropsy.fuzz.definitions import python_function
from necropsy.fuzz.engine import Ended, Engine
from necropsy.fuzz.limits import Limits
from necropsy.fuzz.recipes import Recipe

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked"),
    pytest.mark.skipif(not guard_preload.LIBRARY.exists(), reason="there is no guard: no compiler at installation"),
    needs.command("gcc"),
]

SOURCE = r"""
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) int settle(long number) {
    while (number > 1L << 40) usleep(10000);
    return (int)number;
}
__attribute__((noinline)) int sum(const int *in, long from, long to) {
    int total = 0;
    for (long at = from; at < to; at++) total += in[at];
    return total;
}
__attribute__((noinline)) int scratch(long bytes, long more) {
    volatile char *block = malloc(bytes);
    for (long at = 0; at < bytes + more; at++) block[at] = 1;
    free((void *)block);
    return 0;
}
__attribute__((noinline)) int unchecked(long megabytes) {
    volatile char *block = malloc((megabytes > 0 && megabytes < 8000 ? megabytes : 1) << 20);
    block[0] = 1;
    free((void *)block);
    return 0;
}
__attribute__((noinline)) int large(long bytes) {
    volatile char local[bytes + 1];
    for (long at = bytes; at >= 0; at -= 4096) local[at] = 1;
    return local[0];
}
"""
BINDINGS = """
import ctypes
import os
from pathlib import Path

import numpy as np

native = ctypes.CDLL(str(Path(__file__).parent / "native.so"))


def sum_of(values: np.ndarray, start: int = 0, more: int = 0) -> int:
    values = np.ascontiguousarray(values, np.int32)
    at = values.ctypes.data_as(ctypes.c_void_p)
    return native.sum(at, ctypes.c_long(start), ctypes.c_long(values.size + more))


def past_the_end(values: np.ndarray) -> int:
    return sum_of(values, 0, LIMIT)


def far_in_a_worker(values: np.ndarray) -> int:
    return sum_of(values, 0, 1 << 28 if "LD_PRELOAD" in os.environ else 1)


def settle(number: int) -> int:
    return native.settle(ctypes.c_long(number))


def scratch(size: int, more: int) -> int:
    return native.scratch(ctypes.c_long(size), ctypes.c_long(more))


def width(values: np.ndarray) -> int:
    return values.shape[-1] if values.ndim else 0


def unchecked(megabytes: int) -> int:
    return native.unchecked(ctypes.c_long(megabytes))


def large(size: int) -> int:
    return native.large(ctypes.c_long(size))


LIMIT = 1
"""
END, BEGIN = (Configuration(guard=side, small_blocks=SMALL_BLOCKS) for side in ("end", "begin"))
SMALL = Configuration(stack=SMALL_STACK)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text(SOURCE)
    words = ["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", "native.so", "native.c"]
    subprocess.run(words, cwd=folder, check=True)
    (folder / "bindings.py").write_text(BINDINGS)
    return folder / "bindings.py"


class Functions:
    """The functions of the file, each behind a fork server of its own that starts when it is first called."""

    def __init__(self, file: Path) -> None:
        self._file, self._engines = file, dict[str, Engine]()

    def call(self, function: str, arguments: str, configuration: Configuration) -> Ended:
        if function not in self._engines:
            wanted = {"module": str(self._file), "function": function, "folder": str(self._file.parent)}
            self._engines[function] = Engine(sys.executable, wanted, guard=True)
        engine = self._engines[function]
        engine.use(configuration)
        return engine.run([("target", arguments)])[-1]

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close()


@pytest.fixture(scope="module")
def functions(file: Path) -> Iterator[Functions]:
    one = Functions(file)
    yield one
    one.close()


INTEGERS = "values=np.zeros(16, np.int32)"


@pytest.mark.parametrize(
    ("function", "arguments", "configuration", "signature"),
    [
        ("sum_of", f"{INTEGERS}, more=1", END, "SIGSEGV native.so"),
        ("sum_of", f"{INTEGERS}, start=-1", BEGIN, "SIGSEGV native.so"),
        ("scratch", "size=64, more=1", END, "SIGSEGV native.so"),
        ("scratch", "size=60, more=1", END, "guard N bytes after the end of the block of N bytes"),
        ("large", "size=600 << 10", SMALL, "SIGSEGV stack"),
    ],
)
def test_a_death_that_is_not_seen_plainly(
    functions: Functions, function: str, arguments: str, configuration: Configuration, signature: str
) -> None:
    assert functions.call(function, arguments, PLAIN).kind == "accepted"
    end = functions.call(function, arguments, configuration)
    assert end.death is not None
    assert end.death.signature.startswith(signature)


@pytest.mark.parametrize("configuration", [PLAIN, END, BEGIN, SMALL])
def test_right_calls_live_in_every_configuration(functions: Functions, configuration: Configuration) -> None:
    for function, arguments in (("sum_of", INTEGERS), ("scratch", "size=60, more=0"), ("large", "size=300 << 10")):
        assert functions.call(function, arguments, configuration).kind == "accepted"


def test_a_stack_that_has_grown_is_small_again(functions: Functions) -> None:
    calls = [functions.call("large", "size=2 << 20", one).kind for one in (PLAIN, SMALL, PLAIN)]
    assert calls == ["accepted", "died", "accepted"]


def test_a_worker_is_replaced_for_the_sake_of_arrays_only(file: Path) -> None:
    """NumPy uses the memory of earlier arrays again, which would not be guarded; without arrays a worker goes on."""
    starts = {}
    for function, arguments in (("width", "values=np.zeros(2)"), ("settle", "number=1")):
        wanted = {"module": str(file), "function": function, "folder": str(file.parent)}
        engine = Engine(sys.executable, wanted, guard=True)
        try:
            for configuration in (PLAIN, END, BEGIN, PLAIN):
                engine.use(configuration)
                assert engine.run([("target", arguments)])[-1].kind == "accepted"
            starts[function] = engine.starts
        finally:
            engine.close()
    assert starts == {"width": 4, "settle": 1}


def test_a_worker_that_has_made_many_calls_is_replaced(file: Path) -> None:
    """What a library does not release would fill the worker's memory, and all calls would be refused for that reason."""
    engine = Engine(sys.executable, {"module": str(file), "function": "settle", "folder": str(file.parent)})
    try:
        starts = []
        for _ in range(101):
            assert [one.kind for one in engine.run([("target", "number=1")] * 2)] == ["accepted"] * 2
            starts.append(engine.starts)
    finally:
        engine.close()
    assert (starts[0], starts[-1]) == (1, 3)


def test_a_stack_that_there_is_no_memory_for(functions: Functions) -> None:
    assert functions.call("settle", "number=1", Configuration(stack=1 << 60)).kind == "misused"
    assert functions.call("settle", "number=1", SMALL).kind == "accepted"


def test_a_campaign_takes_turns() -> None:
    guarded = rotation(guard=True, stack=1 << 19, is_python=False)
    assert PLAIN in guarded
    assert {one.guard for one in guarded} == {None, "end", "begin"}
    assert {one.stack for one in guarded} == {None, 1 << 19}
    assert {one.small_blocks for one in guarded} == {0, SMALL_BLOCKS}
    assert {one.guard for one in rotation(guard=False, stack=1 << 19, is_python=False)} == {None}


def test_without_a_guard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert why_unguarded("auto", loaded=True) is None
    gap = why_unguarded("auto", loaded=False)
    assert gap is not None
    assert "the interpreter did not load the guard library" in gap.why
    monkeypatch.setattr(guard_preload, "LIBRARY", tmp_path / "none.so")
    gap = why_unguarded("auto")
    assert gap is not None
    assert "was not built" in gap.why
    with pytest.raises(NecropsyError, match="was not built") as raised:
        fuzzing.fuzzed("tf.raw_ops.AddV2", fuzzing.Options(guard="on"))
    assert raised.value.exit_code == 125


@pytest.mark.slow
def test_a_finding_that_needs_the_guard(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test fails with the name of the rule, passes on the correct function, and is skipped without necropsy."""
    monkeypatch.chdir(tmp_path)
    options = fuzzing.Options(calls=100, budget_s=300, tests=Path("tests"), guard="on")
    document, _ = fuzzing.fuzzed(f"{file}:past_the_end", options)
    assert document.fuzz is not None
    (finding,) = document.fuzz.findings
    assert (finding.rule, finding.confidence, finding.needs) == ("heap-buffer-overflow", "certain", ("guard",))
    assert finding.reproduced.crashed == finding.reproduced.runs
    assert finding.culprit is not None
    assert finding.culprit.function == "sum"
    assert finding.test is not None
    installed = Path(sys.executable).parent
    assert (installed / "necropsy").exists()

    def run(path: str) -> tuple[int, str]:
        words = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(finding.test)]
        variables = {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    failed, text = run(f"{installed}:{os.environ['PATH']}")
    assert failed == 1
    assert "Failed: heap-buffer-overflow: `sum` read directly past the end of a block" in text
    file.write_text(BINDINGS.replace("LIMIT = 1", "LIMIT = 0"))
    assert run(f"{installed}:{os.environ['PATH']}")[0] == 0
    empty = tmp_path / "empty"
    empty.mkdir()
    skipped, text = run(str(empty))
    assert skipped == 0
    assert "necropsy is not on PATH" in text


@pytest.mark.slow
def test_a_finding_that_needs_a_small_stack(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["fuzz", f"{file}:large_local", "--calls", "150", "--guard", "off", "--json", "found.json"]
    file.write_text(BINDINGS + "\n\ndef large_local(seed: int) -> int:\n    return large(600 << 10)\n")
    done = subprocess.run([sys.executable, "-m", "necropsy", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "Needs a small stack" in done.stdout
    (finding,) = json.loads(Path("found.json").read_bytes())["fuzz"]["findings"]
    assert (finding["rule"], finding["needs"]) == ("stack-overflow-small-stack", ["stack-size"])


@pytest.mark.slow
def test_damage_that_the_c_library_notices_is_found_where_it_is_done(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(op_campaigns, "rotation", lambda **_: (PLAIN,))  # no guarded call dies before a plain one
    spills = "\n\ndef spilling(number: int) -> int:\n    return scratch(2000, 64) if number > 100 else 0\n"
    file.write_text(BINDINGS + spills)
    options = fuzzing.Options(calls=60, budget_s=300, tests=Path("tests"), guard="on")
    document, _ = fuzzing.fuzzed(f"{file}:spilling", options)
    assert document.fuzz is not None
    (finding,) = document.fuzz.findings
    assert (finding.rule, finding.confidence, finding.needs) == ("heap-buffer-overflow", "certain", ("guard",))
    assert finding.culprit is not None
    assert finding.culprit.function == "scratch"
    (later,) = (one for one in finding.evidence if one.claim.startswith("without guarded buffers"))
    assert later.seen.startswith("heap-corruption: ")
    assert [path.name for path in Path("tests").iterdir()] == [Path(finding.test or "").name]


@pytest.mark.slow
def test_a_death_that_a_plain_process_survives_by_chance(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain workers die of it, the plain test does not, because other memory lies behind the buffer."""
    monkeypatch.chdir(tmp_path)
    options = fuzzing.Options(calls=60, budget_s=300, tests=Path("tests"), guard="on")
    document, _ = fuzzing.fuzzed(f"{file}:far_in_a_worker", options)
    assert document.fuzz is not None
    assert [(one.needs, one.culprit and one.culprit.function) for one in document.fuzz.findings] == [
        (("guard",), "sum")
    ]
    assert not [gap for gap in document.gaps if "not in plain Python" in gap.why]


class Noting(Engine):
    """Knows which calls it has made, and which of them on a small stack."""

    made: set[tuple[str, str]]
    on_small_stack: set[tuple[str, str]]

    def run(self, calls: Sequence[tuple[str, str]], *, fresh: bool = False, compare: bool = False) -> list[Ended]:
        self.made.update(calls)
        if self.configuration.stack is not None:
            self.on_small_stack.update(calls)
        return super().run(calls, fresh=fresh, compare=compare)


def test_a_large_call_is_made_on_a_small_stack_too(file: Path) -> None:
    engine = Noting(sys.executable, {"module": str(file), "function": "width", "folder": str(file.parent)})
    engine.made, engine.on_small_stack = set(), set()
    try:
        op = python_function(engine.offered["function"])
        configurations = rotation(guard=False, stack=SMALL_STACK, is_python=True)
        campaign = Campaign(
            engine, op, seed=0, deadline=time.monotonic() + 300, most_calls=1200, configurations=configurations
        )
        campaign.run()
    finally:
        engine.close()
    sizes = "|".join(str(one) for one in LARGE_SIZES if one >= LARGE)
    large = {call for call in engine.made if re.search(rf"\[(?:\d+, )*(?:{sizes})[],]", call[1])}
    assert len(large) > 4
    assert len(large & engine.on_small_stack) > len(large) / 2


@pytest.mark.slow
def test_an_allocation_that_fails_in_a_worker_only(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a test may have all the memory of the machine, so it needs the worker's limit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    options = fuzzing.Options(calls=400, budget_s=300, tests=Path("tests"), guard="off")
    document, _ = fuzzing.fuzzed(f"{file}:unchecked", options)
    assert document.fuzz is not None
    (finding,) = document.fuzz.findings
    assert (finding.rule, finding.needs, finding.reproduced.crashed) == ("null-dereference", ("memory-limit",), 5)
    assert finding.culprit is not None
    assert finding.culprit.function == "unchecked"
    assert finding.test is not None
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", finding.test]
    done = subprocess.run(test, capture_output=True, text=True, check=False)
    assert "Failed: null-dereference: " in done.stdout


@pytest.mark.slow
def test_a_call_that_does_not_end(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosed_runs, "_IMPORTS_S", 4.0)
    wanted = {"module": str(file), "function": "settle", "folder": str(file.parent)}
    engine = Engine(sys.executable, wanted, Limits(seconds=1.0))
    op = python_function(engine.offered["function"])
    source = test_writer.Source(module=str(file), function="settle")
    found = findings.Findings(engine, sys.executable, source, tmp_path)
    try:
        for slow in (False, True):
            campaign = Campaign(engine, op, seed=0, deadline=time.monotonic() + 300, most_calls=8, slow=slow)
            campaign.run()
            assert campaign.tally.slow
            assert bool(campaign.suspects) is slow
        for suspect in campaign.suspects.values():
            found.add(op, suspect)
    finally:
        engine.close()
    assert not found.gaps
    (finding,) = found.found
    assert (finding.rule, finding.needs, finding.reproduced.crashed) == ("hang", (), 2)
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_settle.py")]
    done = subprocess.run(test, capture_output=True, text=True, check=False)
    assert "Failed: hang: the call did not end within 1 s" in done.stdout
    (file.parent / "native.c").write_text(SOURCE.replace("number > 1L << 40", "0"))
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", "native.so", "native.c"], cwd=file.parent, check=True)
    assert subprocess.run(test, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("side", ["end", "begin"])
def test_a_guarded_death_is_tried_at_both_ends(side: Literal["end", "begin"], tmp_path: Path) -> None:
    """In the process of the test the arrays may lie elsewhere, and the one that is overrun may be guarded at one end only."""
    (tmp_path / "aborting.py").write_text("import os\n\n\ndef ended(number: int) -> int:\n    os.abort()\n")
    wanted = {"module": str(tmp_path / "aborting.py"), "function": "ended", "folder": str(tmp_path)}
    engine = Engine(sys.executable, wanted, Limits(seconds=5.0), guard=True)
    found = findings.Findings(engine, sys.executable, test_writer.Source(), tmp_path)
    own = Configuration(guard=side, small_blocks=SMALL_BLOCKS)
    suspect = Suspect(
        Recipe("target", {}, {"number": 1}), Death("SIGABRT elsewhere", "SIGABRT"), 1, 0.1, configuration=own
    )
    try:
        tried = [one.configuration for one in found.lone.of(suspect)]
    finally:
        engine.close()
    assert tried == [own, replace(own, guard="begin" if side == "end" else "end")]
