"""A finding has a command only if that command removes it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from necropsy.audit.cxx import checks
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx_repairs import rounds
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.known import candidates
from necropsy.audit.cxx_repairs.promises import promised
from necropsy.checking import Asked, checked
from necropsy.cli.commands import cli
from necropsy.model import CodeDefect, Diagnosis

BAD = Path(__file__).parents[1] / "corpus" / "bad"
STACK = 8 << 20
TWO = """
#include "sizes.h"
void Fill(double* to) {
  double cells[4000000];
  for (int i = 0; i < 4000000; ++i) cells[i] = i;
  to[0] = cells[1];
}
"""
HEADER = "inline void Rows(double* to) { double rows[4000000]; rows[to[0] > 1] = 1; to[0] = rows[1]; }\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "sizes.h").write_text(HEADER)
    path = tmp_path / "op.cc"
    path.write_text(TWO)
    return path


def read(path: Path) -> dict[str, CodeDefect]:
    reading = promised(str(path), STACK, checks.look(str(path), STACK))
    return {str(one.function): one for one in reading.defects}


def test_a_defect_in_a_header_is_repaired_through_its_source(source: Path) -> None:
    defects = read(source)
    assert {name: (one.repair, one.source) for name, one in defects.items()} == {
        "Rows": ("moves `rows` to the heap", str(source)),
        "Fill": ("moves `cells` to the heap", None),
    }


@pytest.mark.parametrize(("offered", "count"), [(b"// no repair\n", 0), (b"#error\nvoid (\n", 0)])
def test_a_repair_that_does_not_help_is_not_promised(
    offered: bytes, count: int, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(_: Look, defect: CodeDefect) -> list[Repair]:
        return [Repair((Edit(defect.place.path, 0, 0, offered),), "adds a line")]

    monkeypatch.setattr(rounds, "candidates", same)
    assert sum(one.repair is not None for one in read(source).values()) == count


def test_of_several_repairs_one_that_does_not_help_stops_no_other(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    useless = Repair((Edit(str(source), 0, 0, b"// no repair\n"),), "adds a line")

    def some(look: Look, defect: CodeDefect) -> list[Repair]:
        return [useless] if defect.function == "Rows" else candidates(look, defect)

    monkeypatch.setattr(rounds, "candidates", some)
    assert {name: one.repair for name, one in read(source).items()} == {
        "Rows": None,
        "Fill": "moves `cells` to the heap",
    }


@pytest.mark.parametrize(
    ("name", "count"),
    [("alloca_for_text.cc", 1), ("scratch_struct_template.cc", 1), ("nested_parentheses.cc", 1), ("two_mutexes.cc", 0)],
)
def test_each_command_removes_its_finding(name: str, count: int, tmp_path: Path) -> None:
    def copied() -> str:
        for one in BAD.glob(f"{Path(name).stem}.*"):
            shutil.copy(one, tmp_path)
        return str(tmp_path / name)

    def findings() -> tuple[Diagnosis, ...]:
        return checked(Asked(paths=[copy], stack=STACK, jobs=1)).findings

    copy = copied()
    promises = [(one, each.command) for one in findings() for each in one.fixes if each.command is not None]
    assert len(promises) == count
    for one, command in promises:
        copied()
        CliRunner().invoke(cli, shlex.split(command)[1:])
        assert one.summary not in {each.summary for each in findings()}


def test_a_command_has_the_stack_size_that_the_finding_needs(source: Path) -> None:
    (source.parent / "sizes.h").write_text("")
    source.write_text(TWO.replace("4000000", "200000"))
    (one,) = checked(Asked(paths=[str(source)], stack=2 << 20, jobs=1)).findings
    command = next(each.command for each in one.fixes if each.command is not None)
    assert "--stack-size 2097152" in command
    CliRunner().invoke(cli, shlex.split(command)[1:])
    assert "std::vector<double> cells" in source.read_text()
