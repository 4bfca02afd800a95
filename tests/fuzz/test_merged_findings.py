"""One overrun is one finding, whoever dies of it; two bugs of one op are two. One campaign for all tests of real ops."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import needs
from necropsy.confirm.compiler import Builder
from necropsy.fuzz.causes import Alone, Cause, merge_victims
from necropsy.fuzz.cheap_signature import Death
from necropsy.fuzz.conditions import Condition, Term
from necropsy.fuzz.recipes import Recipe, Tensor
from necropsy.fuzz.remains import Remains, are_of_one_damage, may_be_of_one_damage
from necropsy.model import Crash, Evidence, FuzzCall, FuzzFinding, FuzzFirst, FuzzPrecondition, Report, Reproduced

SOURCE = Path(__file__).parent / "overrun_ops.cc"
CLAIM = "calls that do the same damage also died in another way"

campaign_needs = [
    pytest.mark.tensorflow,
    needs.package("tensorflow"),
    needs.command("g++"),
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked"),
]

AFTERMATH = Remains("invalid-read", frozenset())
SMASHED = Remains("bad-jump", frozenset({"Op::Compute"}), returning="Op::Compute")
OFF_THE_STACK = Remains("invalid-write", frozenset({"copy", "Op::Compute"}), left_stack="copy")
ELSEWHERE = Remains("invalid-read", frozenset({"row_of", "Op::Compute"}))
OTHER = Remains("invalid-read", frozenset({"tap_of", "Op::Other"}))


@pytest.mark.parametrize(
    ("one", "other", "may_be"),
    [
        (AFTERMATH, AFTERMATH, True),
        (AFTERMATH, SMASHED, True),
        (SMASHED, OFF_THE_STACK, True),
        (SMASHED, ELSEWHERE, True),
        (SMASHED, OTHER, False),
        (ELSEWHERE, OTHER, False),
        (AFTERMATH, Remains("check-failed", frozenset({"Op::Compute"})), False),
        (AFTERMATH, Remains("stack-overflow-recursion", frozenset()), False),
    ],
)
def test_which_deaths_may_be_of_one_damage(one: Remains, other: Remains, *, may_be: bool) -> None:
    assert may_be_of_one_damage(one, other) is may_be
    assert may_be_of_one_damage(other, one) is may_be


def test_a_write_off_the_stack_is_of_the_array_of_the_function_that_cannot_return() -> None:
    off = Remains("invalid-write", frozenset({"Op::Compute"}), left_stack="Op::Compute")
    assert are_of_one_damage(off, SMASHED)
    assert are_of_one_damage(SMASHED, off)
    assert not are_of_one_damage(SMASHED, OFF_THE_STACK)
    assert not are_of_one_damage(SMASHED, SMASHED)
    assert not are_of_one_damage(AFTERMATH, AFTERMATH)


def test_what_the_c_library_notices_is_the_damage_that_was_seen() -> None:
    written = Remains("heap-buffer-overflow", frozenset({"Op::Compute"}))
    for rule in ("heap-corruption", "double-free"):
        assert are_of_one_damage(Remains(rule, frozenset()), written)
        assert not are_of_one_damage(Remains(rule, frozenset()), ELSEWHERE)
    assert are_of_one_damage(Remains("heap-corruption", frozenset({"Op::Compute"})), written), "it only allocates"
    assert not are_of_one_damage(Remains("double-free", frozenset({"Op::Compute"})), written), "its own code frees it"


def finding(rule: str) -> FuzzFinding:
    return FuzzFinding(
        rule=rule,
        title="",
        summary="",
        confidence="certain",
        severity="error",
        evidence=(Evidence(claim="it died", seen="SIGSEGV"),),
        call=FuzzCall(target="Op", inputs={}, attributes={}, python=f"Op(rule='{rule}')"),
        first=FuzzFirst(execution=1, seconds=0.1),
        times=1,
        reproduced=Reproduced(runs=5, crashed=5),
        elements=0,
    )


def cause(remains: Remains, size: int, *conditions: Condition, test: Path | None = None) -> Cause:
    recipe = Recipe("ops.Op", {"x": Tensor("float32", (size,), "same", (0,))}, {})
    alone = Alone(recipe, 1, Death("SIGSEGV somewhere", "SIGSEGV"))
    return Cause(alone, [], Report(crash=Crash(pid=size)), remains, test, conditions)


def shorter(limit: int) -> Condition:
    return Condition(Term("size", "x"), "<=", limit)


def never(_whole: Cause, _other: Cause) -> bool:
    return False


def test_victims_join_what_did_the_damage(tmp_path: Path) -> None:
    unneeded = tmp_path / "test_op.py"
    unneeded.touch()
    found = [finding("invalid-read"), finding("op-input-modified"), finding("bad-jump"), finding("null-dereference")]
    causes = {
        0: cause(AFTERMATH, 110, test=unneeded),
        2: cause(SMASHED, 200, shorter(100)),
        3: cause(OTHER, 300, shorter(8)),
    }
    reports = [one.report for one in causes.values()]
    merge_victims([0, 2, 3], found, causes, reports, never)
    assert [one.rule for one in found] == ["op-input-modified", "bad-jump", "null-dereference"]
    assert {at: one.report.crash.pid for at, one in causes.items()} == {1: 200, 2: 300}
    assert [one.crash.pid for one in reports] == [200, 300]
    assert found[1].times == 2
    assert found[1].evidence[-1].claim == CLAIM
    assert "invalid-read, once: Op(rule='invalid-read')" in found[1].evidence[-1].seen
    assert not unneeded.exists()


@pytest.mark.parametrize(("limit", "told"), [(100, "size(x) <= 100"), (250, None)])
def test_the_condition_is_one_that_all_calls_break(limit: int, told: str | None) -> None:
    found = [finding("double-free"), finding("heap-buffer-overflow")]
    found[0] = msgspec.structs.replace(
        found[0], precondition=FuzzPrecondition(condition=f"size(x) <= {limit}", survived=9, died=9)
    )
    noticed = cause(Remains("double-free", frozenset()), 300, shorter(limit))
    causes = {0: noticed, 1: cause(Remains("heap-buffer-overflow", frozenset({"Op::Compute"})), 200)}
    merge_victims([0, 1], found, causes, [one.report for one in causes.values()], never)
    (one,) = found
    assert one.rule == "heap-buffer-overflow"
    assert (one.precondition.condition if one.precondition is not None else None) == told


def test_a_victim_of_calls_that_do_no_damage_stays() -> None:
    found = [finding("invalid-read"), finding("bad-jump")]
    causes = {0: cause(AFTERMATH, 90), 1: cause(SMASHED, 200, shorter(100))}
    merge_victims([0, 1], found, causes, [one.report for one in causes.values()], never)
    assert [one.rule for one in found] == ["invalid-read", "bad-jump"]


def test_a_victim_of_a_shorter_call_joins_the_overrun_that_left_the_stack() -> None:
    tried: list[tuple[int | None, int | None]] = []

    def shortened(whole: Cause, other: Cause) -> bool:
        tried.append((whole.report.crash.pid, other.report.crash.pid))
        return other.report.crash.pid == 90

    found = [finding("invalid-read"), finding("invalid-read"), finding("invalid-read"), finding("invalid-write")]
    causes = {0: cause(AFTERMATH, 90), 1: cause(AFTERMATH, 80), 2: cause(ELSEWHERE, 70), 3: cause(OFF_THE_STACK, 5000)}
    merge_victims([0, 1, 2, 3], found, causes, [one.report for one in causes.values()], shortened)
    assert [one.rule for one in found] == ["invalid-read", "invalid-read", "invalid-write"]
    assert found[2].times == 2
    assert sorted(tried) == [(5000, 80), (5000, 90)], "a death in code of the op's own is not tried"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("overruns")
    flags = ("-O2", "-g1", "-fno-stack-protector", "-U_FORTIFY_SOURCE")
    built = Builder(SOURCE, Path("overruns.so"), sys.executable, folder / "builds").build(flags)
    words = ["necropsy", "fuzz", str(built), "--calls", "800", "--budget", "300", "--json", "found.json"]
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, check=False, timeout=500)
    assert done.returncode == 1, done.stderr
    found: dict[str, Any] = json.loads((folder / "found.json").read_bytes())
    found["tests"] = sorted(path.name for path in (folder / "tests" / "fuzz").iterdir())
    return found


class TestRealOps:
    pytestmark = campaign_needs

    def test_one_overrun_with_several_victims_is_one_finding(self, document: dict[str, Any]) -> None:
        (one,) = (each for each in document["fuzz"]["findings"] if each["call"]["target"] == "JoinedPath")
        assert one["culprit"]["function"].startswith("JoinedPathOp::"), "and not a function of TensorFlow"
        assert one["precondition"]["condition"].startswith("len(folder) <= ")
        assert any(each["claim"] == CLAIM for each in one["evidence"])
        assert sum("joined_path" in name for name in document["tests"]) == 1

    def test_two_bugs_of_one_op_are_two_findings(self, document: dict[str, Any]) -> None:
        found = [each for each in document["fuzz"]["findings"] if each["call"]["target"] == "LabelledRow"]
        assert sorted(each["culprit"]["function"].partition("(")[0] for each in found) == ["labelled", "row_of"]

    def test_each_finding_keeps_its_report(self, document: dict[str, Any]) -> None:
        signatures = [one["signature"] for one in document["fuzz"]["findings"]]
        assert [one["signature"] for one in document["reports"]] == signatures
