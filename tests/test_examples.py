"""The examples under TensorFlow, held against examples/catalogue.toml; and the catalogue against the examples."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from demo import result
from demo.command import main
from demo.examples import FOLDER, Example, catalogue, chosen, marked_line
from demo.result import DemoResult
from demo.workshop import ExampleRun, Workshop
from necropsy.errors import InputError
from necropsy.model import Crash, Culprit, Diagnosis, Document, Evidence, PythonPlace, Report, Subject, Tool

KNOWN = catalogue(FOLDER)
BY_NAME = {example.name: example for example in KNOWN.example}
VARIANTS = frozenset({"deep-recursion-debug", "deep-recursion-O2", "tree-deep-O0", "array-of-ten"})
"""Ops of other examples, compiled with other options: about 17 s each, most of it g++. `make demo` has them every night."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(FOLDER, sys.executable, runs=tmp_path_factory.mktemp("runs"))


@pytest.mark.tensorflow
@pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[needs.command("g++")] * bool(one.build))
        for name, one in BY_NAME.items()
        if name not in VARIANTS
    ],
)
def test_example_is_diagnosed_as_the_catalogue_says(name: str, workshop: Workshop) -> None:
    example = BY_NAME[name]
    run = workshop.run(example, KNOWN.build)
    assert not list(result.faults(example, run, FOLDER)), run.stderr[-3000:]


# ---------------------------------------------------------------- the catalogue is whole


def test_names_differ() -> None:
    assert len(BY_NAME) == len(KNOWN.example)


def test_a_variant_has_the_source_of_an_example_that_is_run() -> None:
    run = {KNOWN.build[one.build].source for one in KNOWN.example if one.build and one.name not in VARIANTS}
    assert {KNOWN.build[BY_NAME[name].build or ""].source for name in VARIANTS} <= run


def test_every_file_is_used_and_every_used_file_is_there() -> None:
    assert {example.script for example in KNOWN.example} == {path.name for path in (FOLDER / "scripts").glob("*.py")}
    assert {op.source for op in KNOWN.build.values()} == {path.name for path in (FOLDER / "ops").glob("*.cc")}
    assert {example.build for example in KNOWN.example} - {None} == set(KNOWN.build)


@pytest.mark.parametrize("name", KNOWN.build)
def test_a_source_states_the_flags_that_it_is_compiled_with(name: str) -> None:
    op = KNOWN.build[name]
    text = (FOLDER / "ops" / op.source).read_text()
    stated = next(line for line in text.splitlines() if line.startswith("// Flags:"))
    assert all(flag in stated for flag in op.flags)
    assert "// Stack:" in text
    assert "// Shows:" in text


@pytest.mark.parametrize("name", BY_NAME)
def test_an_example_that_dies_names_what_is_right(name: str) -> None:
    example = BY_NAME[name]
    assert bool(example.rule) == (example.outcome != ("survives",))
    if example.line:
        assert marked_line(FOLDER / "scripts" / example.script) is not None


# ---------------------------------------------------------------- a wrong diagnosis is noticed


def run_with(outcome: str, verdict: Diagnosis | None) -> ExampleRun:
    reports = (Report(crash=Crash(), verdict=verdict),) if outcome != "survives" or verdict else ()
    document = Document(
        kind="run",
        id="x",
        tool=Tool(name="necropsy", version="0"),
        complete=True,
        subject=Subject(kind="process"),
        reports=reports,
    )
    return ExampleRun(outcome, document, "")


def diagnosis(rule: str, function: str | None, line: int | None, op: str | None = "Factorial") -> Diagnosis:
    return Diagnosis(
        rule=rule,
        title="t",
        summary="s",
        severity="error",
        confidence="certain",
        evidence=(Evidence(claim="c", seen="s"),),
        culprit=Culprit(function=function, kernel="FactorialOp", op=op, python=PythonPlace(line=line)),
    )


DIES = BY_NAME["factorial-1000000"]
LINE = marked_line(FOLDER / "scripts" / DIES.script)
RIGHT = diagnosis("stack-overflow-recursion", "FactorialOf(int)", LINE)


@pytest.mark.parametrize(
    ("example", "run", "count"),
    [
        (DIES, run_with("SIGSEGV", RIGHT), 0),
        (DIES, run_with("survives", None), 1),
        (DIES, run_with("SIGSEGV", None), 1),
        (DIES, run_with("SIGSEGV", diagnosis("stack-smash", "FactorialOf(int)", LINE)), 1),
        (DIES, run_with("SIGSEGV", diagnosis("stack-overflow-recursion", "malloc", LINE)), 1),
        (DIES, run_with("SIGSEGV", diagnosis("stack-overflow-recursion", None, None, None)), 3),
        (DIES, ExampleRun("SIGSEGV", None, ""), 1),
        (BY_NAME["past-the-end-10"], run_with("SIGABRT", diagnosis("heap-corruption", None, None)), 0),
        (BY_NAME["past-the-end-10"], run_with("SIGABRT", diagnosis("heap-corruption", "PastTheEndOp::Compute", 1)), 0),
        (BY_NAME["past-the-end-10"], run_with("SIGABRT", diagnosis("heap-corruption", "absl::Status::Status()", 1)), 1),
        (BY_NAME["factorial-20"], run_with("survives", None), 0),
        (BY_NAME["factorial-20"], run_with("survives", RIGHT), 1),
        (BY_NAME["deep-recursion"], run_with("survives", None), 1),  # how much of the stack it used is missing
    ],
)
def test_what_is_not_right_is_named(example: Example, run: ExampleRun, count: int) -> None:
    assert len(list(result.faults(example, run, FOLDER))) == count


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="no example named nope"):
        chosen(KNOWN.example, ["nope", "session"])


def test_list_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BY_NAME)


def test_the_folder_is_a_program() -> None:
    done = subprocess.run([sys.executable, FOLDER / "demo", "arr-of-ten"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "necropsy: no example named arr-of-ten. Did you mean 'array-of-ten'?\n"


def test_what_was_found_is_counted() -> None:
    found = [
        DemoResult(example="a", about="x", ended="SIGSEGV", rule="null-dereference", confidence="certain"),
        DemoResult(example="b", about="y", skipped="no g++ here"),
        DemoResult(example="c", about="z", ended="survives", faults=("it survived",)),
    ]
    counted = result.counted(found)
    assert (counted.right, counted.skipped, len(counted.examples)) == (1, 1, 3)


def test_an_interpreter_without_tensorflow_is_told_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named tensorflow' >&2\nexit 1\n")
    fake.chmod(0o755)
    assert main(["--python", str(fake), "session"]) == 125
    assert "no TensorFlow in" in capfd.readouterr().err.splitlines()[0]
