"""Findings held against what g++ and clang-tidy make of the same source; and what is said of layers that are missing."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from necropsy.audit.cxx import checks
from necropsy.audit.layers import compilation
from necropsy.audit.layers.applied import OptionalLayers
from necropsy.audit.layers.compilation import Job, of_command, run
from necropsy.audit.layers.compile_commands import CompileCommand
from necropsy.cli.commands import cli
from necropsy.model import LAYERS, CodeDefect, Gap

STACK = 8 << 20
DATABASE, CALL_GRAPH, TIDY = LAYERS
HEADER = """\
#define REGISTER_KERNEL_BUILDER(...)
struct OpKernelContext {};
struct OpKernel { virtual ~OpKernel() {} virtual void Compute(OpKernelContext* context) = 0; };
void Keep(volatile void* where);
"""
OP = """\
#include "tensorflow/core/framework/op_kernel.h"
struct Node { Node* next; };
int Depth(Node* node) { return node == nullptr ? 0 : Depth(node->next) + Depth(node->next->next); }
void Third(OpKernelContext* context) { double third[400000]; Keep(third); }
void Unused(int n) { double unused[3000000]; unused[0] = n; }
class FooOp : public OpKernel {
 public:
  void Compute(OpKernelContext* context) override {
    char own[2000000];
    Keep(own);
    Third(context);
    Unused(3);
  }
};
REGISTER_KERNEL_BUILDER(Name("Foo").Device(DEVICE_CPU), FooOp);
FooOp foo;
"""

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture
def op(tmp_path: Path) -> Path:
    """An op whose headers are a stand-in for TensorFlow's, with a compile database."""
    header = tmp_path / "tf" / "tensorflow" / "core" / "framework" / "op_kernel.h"
    header.parent.mkdir(parents=True)
    header.write_text(HEADER)
    source = tmp_path / "op.cc"
    source.write_text(OP)
    words = ["/bin/false", "-Itf", "-O2", "-fno-inline", "-fplugin=evil.so", "-c", "op.cc", "-o", "op.o"]
    entry = {"directory": str(tmp_path), "file": "op.cc", "arguments": words}
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    return source


def applied(source: Path) -> tuple[dict[str, CodeDefect], list[Gap]]:
    """By rule and function, as the layers leave them."""
    layers = OptionalLayers(None, 1)
    found = checks.look(str(source), STACK).defects
    (known,) = layers.applied({str(source): found}).values()
    assert len(known) == len(found)
    return {f"{one.rule} {one.function}": one for one in known}, layers.gaps


@needs_gcc
def test_frames_are_measured(op: Path) -> None:
    known, gaps = applied(op)
    assert CALL_GRAPH not in {one.part for one in gaps}
    assert DATABASE not in {one.part for one in gaps}
    third = known["op-large-frame Third"]
    assert 3_200_000 < third.numbers["bytes"] < 3_200_200
    assert third.confidence == "certain"
    assert f"{third.numbers['bytes']:,} bytes (options of compile_commands.json)" in third.facts[-1].seen
    assert third.facts[-1].claim == "frame in the code of g++ -O2"


@needs_gcc
def test_what_the_build_does_not_keep_on_the_stack_is_a_note(op: Path) -> None:
    known, _ = applied(op)
    unused = known["op-large-frame Unused"]
    assert unused.severity == "note"
    assert unused.numbers["bytes"] == 24_000_000


@needs_gcc
def test_recursion_is_told_with_the_bytes_of_a_turn(op: Path) -> None:
    known, _ = applied(op)
    facts = {one.claim: one.seen for one in known["op-recursion Depth"].facts}
    assert facts["one turn of the recursion in the code of g++ -O2"].endswith(
        " turns fit (options of compile_commands.json)"
    )


@needs_gcc
def test_what_was_measured_is_kept_for_these_contents(op: Path, tmp_path: Path) -> None:
    found = {str(op): checks.look(str(op), STACK).defects}
    told: list[str] = []

    def frame(known: dict[str, list[CodeDefect]]) -> int:
        return next(one.numbers["bytes"] for one in known[str(op)] if one.function == "Third")

    def layers() -> OptionalLayers:
        return OptionalLayers(None, 1, told.append, tmp_path / "cache")

    first = layers().applied(found)
    assert layers().applied(found) == first
    assert len(told) == 1
    op.write_text(OP.replace("400000", "500000"))
    assert frame(layers().applied(found)) - frame(first) == 800_000
    assert len(told) == 2


@needs_gcc
def test_a_source_that_does_not_compile_costs_one_line(op: Path) -> None:
    op.write_text(OP.replace("Keep(own)", "Gone(own)"))
    known, gaps = applied(op)
    assert known["op-large-frame Third"].facts[-1].claim == "size of a local variable"
    (gap,) = [one for one in gaps if one.part.startswith(CALL_GRAPH)]
    assert gap.part == f"{CALL_GRAPH} of a source"
    assert "op.cc: g++: " in gap.why
    assert "Gone" in gap.why


@pytest.mark.skipif(shutil.which("clang-tidy") is None, reason="clang-tidy is not installed")
def test_clang_tidy_is_evidence_for_findings_on_its_line(op: Path) -> None:
    known, gaps = applied(op)
    assert TIDY not in {one.part for one in gaps}
    assert "clang-tidy misc-no-recursion" in {one.claim for one in known["op-recursion Depth"].facts}
    assert len(known) == len(checks.look(str(op), STACK).defects)


def check(*words: object) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, words)])


def test_layers_that_were_not_used_are_gaps_and_one_line_of_text(op: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (op.parent / "compile_commands.json").unlink()
    document = json.loads(check("--format", "json", op).stdout)
    assert {one["part"] for one in document["gaps"]} == set(LAYERS)
    told = check(op).stdout.splitlines()
    assert [one for one in told if "clang-tidy" in one] == [
        f"Without optional layers: {', '.join(one['part'] for one in document['gaps'])}."
    ]
    monkeypatch.setenv("PATH", "")
    gaps = {one["part"]: one["why"] for one in json.loads(check("--format", "json", op).stdout)["gaps"]}
    assert gaps[CALL_GRAPH] == "no g++ was found"
    assert gaps[TIDY] == "it is not installed"


def test_a_database_cannot_name_what_is_run() -> None:
    words = (
        "@file",
        "-fplugin=x.so",
        "-B/tmp",
        "-wrapper",
        "sh",
        "-specs=x",
        "-Xclang",
        "-load",
        "-O2",
        "-DX=-fplugin=y",
    )
    one = of_command("op.cc", CompileCommand("db", Path("/p"), Path("/p"), words))
    assert one.options == ("-D", "X=-fplugin=y", "-O2")


def test_headers_of_others_are_those_of_the_system() -> None:
    words = ("-Iinclude", "-I/p/src", "-I/usr/lib/site-packages/tensorflow/include", "-I/p/venv/site-packages/x", "-O2")
    one = of_command("op.cc", CompileCommand("db", Path("/p"), Path("/p/build"), words))
    own = ("-I", "include", "-I", "/p/src")
    others = ("-isystem", "/usr/lib/site-packages/tensorflow/include", "-isystem", "/p/venv/site-packages/x")
    assert one.options == (*own, *others, "-O2")


def test_programs_end_at_the_limit_with_all_that_they_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(("sh", "-c", "sleep 600 & echo $! > pid; wait"), str(tmp_path))
    quick = Job(("sh", "-c", "echo $$ > quick; echo done"), str(tmp_path))
    looks = 0

    def clock() -> float:
        """The limit has passed at the second look at which both have done what they do."""
        nonlocal looks
        pids = [path.read_text() for name in ("pid", "quick") if (path := tmp_path / name).exists()]
        looks += len(pids) == 2 and all(pids) and not _lives(int(pids[1]))
        return 0.0 if looks < 3 else 1.0

    monkeypatch.setattr(compilation, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    slow, done, gone = run([job, quick, Job(("/gone/program",), str(tmp_path))], 1.0, 2)
    assert slow.trouble == "there was no time for it in 1 s"
    assert (done.out, done.trouble) == ("done\n", None)
    assert gone.trouble is not None
    assert "No such file" in gone.trouble
    left = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 60
    while _lives(left) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _lives(left)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_headers_of_an_interpreter_without_tensorflow(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho\n")
    python.chmod(0o700)
    assert compilation.headers_of(str(python), 20) is None
    (tmp_path / "include").mkdir()
    python.write_text(f"#!/bin/sh\necho {tmp_path}\n")
    assert compilation.headers_of(str(python), 20) == str(tmp_path / "include")
