"""A finding on an op that dies is confirmed, one on an op that refuses is refuted; what cannot be built is a gap."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import needs
from necropsy.cli.commands import cli
from necropsy.model import Culprit, Diagnosis, Evidence, Location
from necropsy.prove.proof import Prover
from necropsy.reports import findings as shown

SOURCE = Path(__file__).with_name("ranks.cc")
LINE = next(at for at, line in enumerate(SOURCE.read_text().splitlines(), 1) if "this aborts" in line)


def finding(op: str | None, rule: str = "op-rank-unchecked") -> Diagnosis:
    return Diagnosis(
        rule=rule,
        title="A custom op does not check a rank",
        summary="The rank is not checked.",
        severity="warning",
        confidence="likely",
        evidence=(Evidence(claim="the source", seen="x.matrix<float>()"),),
        culprit=Culprit(function="CornerOp::Compute", source=str(SOURCE), line=LINE, op=op),
        locations=(Location(path=str(SOURCE), line=LINE, column=21, end_line=LINE, role="access"),),
    )


def prover(place: Path, python: str = sys.executable) -> Prover:
    ops = {str(SOURCE): ("Corner", "CheckedCorner")}
    return Prover(python=python, place=place, stack=8 << 20, sources=ops, watch=lambda _: None)


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Diagnosis, ...]:
    """One build and one process for all findings."""
    one = prover(tmp_path_factory.mktemp("builds"))
    found = one.proved([finding("Corner"), finding("CheckedCorner"), finding("Corner", "op-kernel-state")])
    assert one.gaps == []
    return found


@pytest.mark.tensorflow
@needs.package("tensorflow")
@needs.command("g++")
@pytest.mark.skipif(sys.platform != "linux", reason="calls are made in forks")
def test_a_call_decides(proved: tuple[Diagnosis, ...]) -> None:
    dies, refuses, threads = proved
    assert [one.status for one in proved] == ["confirmed", "refuted", "inconclusive"]
    assert dies.experiments[-1].change.startswith("ops.Corner(x=tf.")
    assert "Check failed" in dies.experiments[-1].outcome
    assert dies.evidence[-2].seen == dies.experiments[-1].change
    assert "CheckedCorner gave a value or an error" in refuses.experiments[-1].outcome
    assert threads.experiments[-1].outcome == "one call of the op cannot show it"
    assert shown.tried_in_words(dies)[1] == dies.experiments[-1].change


def test_an_interpreter_that_is_missing_is_a_gap(tmp_path: Path) -> None:
    one = prover(tmp_path, python=str(tmp_path / "nowhere"))
    (found,) = one.proved([finding("Corner")])
    assert found.status == "inconclusive"
    assert [gap.part for gap in one.gaps] == ["proof of ranks.cc"]
    assert found.evidence == finding("Corner").evidence


def test_a_missing_compiler_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    one = prover(tmp_path)
    assert one.proved([finding("Corner")])[0].status == "inconclusive"
    assert [gap.why for gap in one.gaps] == ["no C++ compiler was found"]


def test_the_interpreter_has_to_be_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["check", "--prove", str(SOURCE)])
    assert done.exit_code == 2
    assert "--prove needs --tensorflow PYTHON" in done.output
