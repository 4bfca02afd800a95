"""Steps of a pass that run at the same time lead to the same programs as one after the other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from necropsy.reduce.criterion import Death
from necropsy.reduce.lanes import Lanes
from necropsy.reduce.program import Pass, Program, Search, Steps, from_the_end, in_parts, search
from necropsy.reduce.runner import Outcome, Runner
from necropsy.reduce.trials import Count, OutOfBudgetError, Trials
from necropsy.reduce.walking import accepted_programs
from necropsy.reduce.workspace import Workspace

DEATH = Death("s", None, None, None, None, None)


class NoWorkspace:
    def twin(self) -> Workspace:
        return cast("Workspace", self)

    def close(self) -> None:
        pass


class Pretended(Runner):
    """A runner of programs that die as long as they have all that is needed; others take longer."""

    def __init__(self, needed: set[int]) -> None:
        self.needed = needed
        self.workspace = NoWorkspace().twin()

    def twin(self, workspace: Workspace) -> Runner:
        return Pretended(self.needed)

    def run(self, program: Program, timeout_s: float, *, observe: bool = False) -> Outcome:
        dies = self.needed <= set(program.files["all"])
        time.sleep(0.0002 * (len(program.files["all"]) % 3))
        return Outcome(DEATH if dies else None, None, None, -11 if dies else 0, timed_out=False, seconds=0)

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def trials_of(runner: Runner, deadline: float = float("inf")) -> Trials:
    return Trials(runner, DEATH, timeout_s=1, start_s=1, deadline=deadline, count=Count())


def noting(ranges: Search, refused: set[object]) -> Pass:
    """A pass that notes what was refused, and does not propose it again."""

    def steps(program: Program) -> Steps:
        things = list(program.files["all"])

        def without(gone: list[int]) -> Program:
            return program.with_file("all", bytes(one for one in things if one not in gone))

        inner = search(program, things, ranges, without)
        accepted = None
        try:
            while True:
                candidate = next(inner) if accepted is None else inner.send(accepted)
                key = candidate.files["all"]
                accepted = key not in refused and (yield candidate)
                if not accepted:
                    refused.add(key)
        except StopIteration as end:
            return cast("Program", end.value)

    return steps


@settings(max_examples=40)
@given(st.sets(st.integers(0, 30)), st.integers(0, 30), st.sampled_from([from_the_end, in_parts]), st.integers(2, 4))
def test_the_number_of_lanes_changes_nothing(needed: set[int], count: int, ranges: Search, width: int) -> None:
    program = Program({"all": bytes(range(count))}, "all")
    runner = Pretended({one for one in needed if one < count})
    found = []
    for lanes in (None, Lanes(runner, width)):
        refused: set[object] = set()
        trials = trials_of(runner)
        accepted = list(accepted_programs(noting(ranges, refused), program, trials, lanes, refused))
        found.append(([one.files["all"] for one in accepted], refused))
        if lanes is not None:
            lanes.close()
    assert found[0] == found[1]
    assert count == 0 or (found[0][0] or [program.files["all"]])[-1] == bytes(sorted(runner.needed))


def test_the_budget_ends_candidates_that_run_ahead() -> None:
    runner = Pretended({3, 7})
    lanes = Lanes(runner, 3)
    trials = trials_of(runner, time.monotonic() - 1)
    refused: set[object] = set()
    program = Program({"all": bytes(range(9))}, "all")
    with pytest.raises(OutOfBudgetError):
        list(accepted_programs(noting(from_the_end, refused), program, trials, lanes, refused))
    lanes.close()
    assert trials.count.trials == 0


def test_a_twin_has_the_folders_and_links_of_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "large").write_bytes(bytes(16 << 20))
    first = Workspace()
    first.copy(tmp_path)
    second = first.twin()
    try:
        assert second.base != first.base
        assert (second.work / "empty").is_dir()
        assert (second.work / "large").resolve() == tmp_path / "large"
        assert second.links() == first.links()
    finally:
        first.close()
        second.close()
