"""What a campaign concludes from outcomes: programs made of dice, because the conclusions are what is tested."""

from __future__ import annotations

import dataclasses
import random
import re
from typing import Any

import msgspec
import pytest

from behaving import Program, Seen, report
from necropsy.confirm import sampling
from necropsy.confirm.campaign import Campaign, Limits
from necropsy.confirm.parameter_sweep import scale, vary
from necropsy.confirm.proposed import Planned
from necropsy.confirm.stack_sizes import StackStudy
from necropsy.errors import InputError
from necropsy.model import Change, Fix, Outcome, Proposal

MIB = 1 << 20


def proposal(*predicts: Outcome, fix: Fix | None = None, **more: Any) -> Proposal:
    change = Change(environment={"X": "1"})
    return Proposal(name="x", change=change, text="X=1", predicts=predicts, fix=fix, **more)


def changed(change: Change) -> bool:
    return change.environment.get("X") == "1"


FIX = Fix(text="set X", command="export X=1")


def test_a_change_that_removes_the_crash_confirms_and_verifies() -> None:
    program = Program(lambda change: "survives" if changed(change) else "same")
    plan = [Planned("cause", proposal("survives", fix=FIX)), Planned("rival", proposal("same"))]
    got = Campaign(program, plan, Limits()).conducted(report("cause", "rival", fixes=(FIX,)))
    assert got.verdict is not None
    assert got.verdict.status == "confirmed"
    assert [fix.verified for fix in got.verdict.fixes] == [True]
    assert got.alternatives[0].status == "refuted"
    unchanged, tried, again = got.verdict.experiments
    assert (unchanged.runs, unchanged.crashed) == (sampling.AT_ONCE, sampling.AT_ONCE)
    assert (tried.runs, tried.crashed, tried.conclusive) == (sampling.EVERY_TIME, 0, True)
    assert (again.runs, again.crashed) == (1, 1)


def test_two_rules_that_propose_the_same_change_have_it_tried_once() -> None:
    program = Program(lambda change: "survives" if changed(change) else "same")
    other = msgspec.structs.replace(proposal("same", "another"), name="y", text="X is 1")
    plan = [Planned("cause", proposal("survives", fix=FIX)), Planned("rival", other)]
    got = Campaign(program, plan, Limits()).conducted(report("cause", "rival", fixes=(FIX,)))
    assert program.runs.count("x") == sampling.EVERY_TIME
    assert "y" not in program.runs
    assert got.verdict is not None
    assert (got.verdict.status, got.alternatives[0].status) == ("confirmed", "refuted")
    mine, its = got.verdict.experiments[1], got.alternatives[0].experiments[1]
    assert (mine.predicts, its.predicts) == ("it survives", "it still dies")
    assert (mine.runs, mine.outcome) == (its.runs, its.outcome) == (sampling.EVERY_TIME, "survives")


@pytest.mark.parametrize("deaths", range(3, 9))
def test_a_crash_that_goes_by_itself_is_no_change_s_work(deaths: int) -> None:
    """It dies so many times, and then never again, whatever is changed: a queue that empties, the time of day."""
    program = Program(lambda _change: "same" if len(program.runs) <= deaths else "survives")
    plan = [
        Planned(rule, msgspec.structs.replace(proposal("survives", fix=fix), name=rule, change=Change(seconds=number)))
        for number, (rule, fix) in enumerate([("cause", FIX), ("rival", FIX), ("third", FIX)])
    ]
    got = Campaign(program, plan, Limits()).conducted(report("cause", "rival", "third", fixes=(FIX,)))
    assert got.verdict is not None
    for one in (got.verdict, *got.alternatives):
        assert one.status != "confirmed"
        assert not any(fix.verified for fix in one.fixes)
    told = [row.means or "" for one in (got.verdict, *got.alternatives) for row in one.experiments]
    assert any("by itself" in one for one in told) == (deaths < 6), "each of the three may have been its death"


def test_a_control_that_the_limits_do_not_allow_takes_nothing_back() -> None:
    program = Program(lambda change: "survives" if changed(change) else "same")
    got = Campaign(program, [Planned("cause", proposal("survives", fix=FIX))], Limits(runs=5)).conducted(
        report("cause", fixes=(FIX,))
    )
    assert got.verdict is not None
    assert got.verdict.status == "confirmed"
    assert [one.name for one in got.verdict.experiments] == ["unchanged", "x"]


def test_a_change_that_does_nothing_refutes_in_one_run() -> None:
    program = Program(lambda _change: "same")
    got = Campaign(program, [Planned("cause", proposal("survives", fix=FIX))], Limits()).conducted(
        report("cause", fixes=(FIX,))
    )
    assert got.verdict is not None
    assert got.verdict.status == "refuted"
    assert [fix.verified for fix in got.verdict.fixes] == [False]
    assert got.verdict.experiments[1].runs == 1


def test_another_death_is_no_fix() -> None:
    program = Program(lambda change: Seen("another", rule="stack-smash") if changed(change) else "same")
    got = Campaign(program, [Planned("cause", proposal("survives", fix=FIX))], Limits()).conducted(
        report("cause", fixes=(FIX,))
    )
    assert got.verdict is not None
    assert got.verdict.status == "refuted"
    assert [fix.verified for fix in got.verdict.fixes] == [False]
    assert got.verdict.experiments[1].outcome == "dies in another way, by stack-smash"


def test_a_proposal_that_proves_nothing_decides_nothing() -> None:
    program = Program(lambda change: "another" if changed(change) else "same")
    plan = [Planned("cause", proposal("another", "same", proves=False, refutes=False))]
    got = Campaign(program, plan, Limits()).conducted(report("cause"))
    assert got.verdict is not None
    assert got.verdict.status == "inconclusive"


@pytest.mark.parametrize("chance", [0.3, 0.05])
def test_a_flaky_crash_is_never_called_fixed_too_soon(chance: float) -> None:
    rng = random.Random(11)
    wrong, times = 0, 400
    for _ in range(times):
        program = Program(lambda _change: "same" if rng.random() < chance else "survives")
        plan = [Planned("cause", proposal("survives", fix=FIX))]
        got = Campaign(program, plan, Limits()).conducted(report("cause", fixes=(FIX,)))
        assert got.verdict is not None
        wrong += got.verdict.fixes[0].verified is True
    assert wrong / times <= sampling.ERROR + 0.03, "3 standard deviations of 400 trials"


def test_a_flaky_crash_that_is_fixed_is_called_fixed_after_enough_runs() -> None:
    rng = random.Random(5)
    program = Program(lambda change: "same" if not changed(change) and rng.random() < 0.3 else "survives")
    got = Campaign(program, [Planned("cause", proposal("survives", fix=FIX))], Limits()).conducted(
        report("cause", fixes=(FIX,))
    )
    assert got.verdict is not None
    unchanged, tried, again = got.verdict.experiments
    assert again.crashed == 1
    assert unchanged.crashed == sampling.CRASHES < unchanged.runs
    assert tried.runs == sampling.needed(unchanged.runs)
    assert got.verdict.fixes[0].verified is True


@pytest.mark.parametrize("runs", [1, 3, 4])
def test_where_the_budget_ends_first_it_is_inconclusive(runs: int) -> None:
    program = Program(lambda change: "survives" if changed(change) else "same")
    got = Campaign(program, [Planned("cause", proposal("survives", fix=FIX))], Limits(runs=runs)).conducted(
        report("cause", fixes=(FIX,))
    )
    assert len(program.runs) == runs
    assert got.verdict is not None
    assert got.verdict.status == "inconclusive"
    assert got.verdict.fixes[0].verified is None


def test_the_time_is_a_budget_too() -> None:
    now = iter(range(100))
    program = Program(lambda _change: "survives")
    got = Campaign(program, [], Limits(budget_s=3), clock=lambda: float(next(now))).conducted(report("cause"))
    assert len(program.runs) == 2
    assert got.verdict is not None


def test_a_crash_that_never_comes_again_proves_nothing() -> None:
    program = Program(lambda _change: "survives")
    got = Campaign(program, [Planned("cause", proposal("survives", fix=FIX))], Limits()).conducted(report("cause"))
    assert set(program.runs) == {"unchanged"}
    assert got.verdict is not None
    assert got.verdict.status == "inconclusive"
    (unchanged,) = got.verdict.experiments
    assert (unchanged.runs, unchanged.crashed) == (60, 0)
    assert "fewer than 6% of the runs" in (unchanged.means or "")


def test_a_crash_that_stays_away_is_not_waited_for_longer_than_a_while() -> None:
    program = Program(lambda _change: Seen("survives", wall_s=7.0))
    got = Campaign(program, [], Limits()).conducted(report("cause"))
    assert got.verdict is not None
    assert got.verdict.experiments[0].runs == 10


def test_a_change_that_cannot_be_made_says_why() -> None:
    program = Program(lambda change: Seen("cannot-run", "the hard limit is lower") if changed(change) else "same")
    got = Campaign(program, [Planned("cause", proposal("survives"))], Limits()).conducted(report("cause"))
    assert got.verdict is not None
    assert got.verdict.status == "inconclusive"
    assert "the hard limit is lower" in got.verdict.experiments[1].outcome


# ---------------------------------------------------------------- stacks


def recursion(needs: int | None, own_size: int | None = None) -> Program:
    """A recursion that takes ``needs`` bytes of stack (None: it has no end), on a thread that may name its size."""

    def does(change: Change) -> Seen:
        size = change.thread_stack or (own_size or change.stack_limit or 8 * MIB)
        if needs is not None and needs <= size:
            return Seen("survives", measures={"main_peak": needs})
        return Seen("same", measures={"size": size, "used": size - 100, "per_level": 64.0, "depth": size / 64})

    return Program(does)


def study(*, is_main: bool = True, fixes: tuple[Fix, ...] = ()) -> StackStudy:
    return StackStudy("stack-overflow-recursion", frozenset({"stack-overflow-large-frame"}), is_main, 8 * MIB, fixes)


@pytest.mark.parametrize("needs", [9 * MIB, 40 * MIB, 300 * MIB, 900 * MIB])
def test_the_stack_that_is_needed(needs: int) -> None:
    got = Campaign(recursion(needs), [study()], Limits()).conducted(report("stack-overflow-recursion"))
    assert got.verdict is not None
    assert got.verdict.status == "confirmed"
    (fix,) = [fix for fix in got.verdict.fixes if fix.verified]
    assert fix.command is not None
    octets = int(fix.command.removeprefix("ulimit -s ")) << 10
    assert needs < octets <= max(1.4 * needs, needs + 2 * MIB)


def test_a_thread_that_names_its_size_is_reached_by_the_hook_and_its_need_is_bisected() -> None:
    program = recursion(50 * MIB, own_size=8 * MIB)
    got = Campaign(program, [study(is_main=False)], Limits()).conducted(report("stack-overflow-recursion"))
    assert got.verdict is not None
    assert got.verdict.status == "confirmed"
    fix = got.verdict.fixes[0]
    assert fix.verified
    assert (fix.command or "").startswith("threading.stack_size(")
    (bisected,) = [one for one in got.verdict.experiments if one.name == "stack-bisected"]
    assert "it needs between" in bisected.outcome
    assert bisected.conclusive


def test_a_limit_that_a_thread_does_not_mind_is_no_size_that_was_tried() -> None:
    program = recursion(int(1.6 * 8 * MIB), own_size=8 * MIB)
    got = Campaign(program, [study(is_main=False)], Limits()).conducted(report("stack-overflow-recursion"))
    assert got.verdict is not None
    (bisected,) = [one for one in got.verdict.experiments if one.name == "stack-bisected"]
    assert "it needs between 12." in bisected.outcome, bisected.outcome
    assert bisected.runs <= 5


def test_a_recursion_without_an_end() -> None:
    larger = Fix(text="more stack", command="ulimit -s 65536")
    got = Campaign(recursion(None), [study(fixes=(larger,))], Limits()).conducted(
        report("stack-overflow-recursion", fixes=(larger,))
    )
    assert got.verdict is not None
    assert got.verdict.status == "confirmed"
    advice, refused = got.verdict.fixes
    assert "what should end" in advice.text
    assert (advice.verified, refused.verified) == (None, False)
    assert "no end" in got.verdict.evidence[-1].seen


def test_rivals_on_a_stack_are_refuted_by_the_size_that_it_needs() -> None:
    needs = 300 * MIB
    one = dataclasses.replace(study(), shares=frozenset({"stack-overflow-large-frame", "stack-overflow-small-stack"}))
    got = Campaign(recursion(needs), [one], Limits()).conducted(
        report("stack-overflow-recursion", "stack-overflow-large-frame", "stack-overflow-small-stack")
    )
    assert [rival.status for rival in got.alternatives] == ["refuted", "refuted"]


@pytest.mark.parametrize(("depth", "status"), [(60_000, "refuted"), (1_000, "inconclusive")])
def test_a_small_stack_is_no_cause_where_a_recursion_filled_it(depth: int, status: str) -> None:
    def does(change: Change) -> Seen:
        if (change.stack_limit or 2 * MIB) >= 3 * MIB:
            return Seen("survives", measures={"main_peak": 3 * MIB})
        return Seen("same", measures={"size": 2 * MIB, "used": 2 * MIB, "depth": depth, "per_level": 32})

    one = StackStudy("stack-overflow-recursion", frozenset({"stack-overflow-small-stack"}), True, 2 * MIB)
    got = Campaign(Program(does), [one], Limits()).conducted(
        report("stack-overflow-recursion", "stack-overflow-small-stack")
    )
    assert got.verdict is not None
    assert got.verdict.status == "confirmed"
    assert [rival.status for rival in got.alternatives] == [status]


@pytest.mark.parametrize(("peak", "fewest"), [(50 * MIB, 2), (20 * MIB, 5)])
def test_what_a_thread_had_used_shortens_the_bisection_where_it_was_the_one(peak: int, fewest: int) -> None:
    def does(change: Change) -> Seen:
        size = change.stack_limit or 8 * MIB
        if size >= 50 * MIB:
            return Seen("survives", measures={"peak": peak})
        return Seen("same", measures={"size": size, "used": size})

    got = Campaign(Program(does), [study(is_main=False)], Limits()).conducted(report("stack-overflow-recursion"))
    assert got.verdict is not None
    (bisected,) = [one for one in got.verdict.experiments if one.name == "stack-bisected"]
    assert bisected.conclusive
    assert bisected.runs == fewest if peak == 50 * MIB else bisected.runs >= fewest


def test_a_check_that_fires_confirms_whatever_was_predicted() -> None:
    found = Seen("another", rule="heap-buffer-overflow", where="f in op.cc:3")
    program = Program(lambda change: found if changed(change) else "same")
    asked = proposal("another", "same", proves=False, refutes=False, finds=("heap-buffer-overflow",))
    got = Campaign(program, [Planned("heap-corruption", asked)], Limits()).conducted(report("heap-corruption"))
    assert got.verdict is not None
    assert got.verdict.status == "confirmed"
    assert "f in op.cc:3" in (got.verdict.experiments[1].means or "")


@pytest.mark.parametrize(("plain", "checked"), [("same", "same"), ("another", "another")])
def test_the_death_that_comes_anyway_is_nothing_that_a_check_found(plain: Outcome, checked: Outcome) -> None:
    def does(change: Change) -> Seen:
        return Seen(checked if changed(change) else plain, rule="heap-corruption")

    asked = proposal("another", "same", proves=False, refutes=False, finds=("heap-corruption",))
    got = Campaign(Program(does), [Planned("heap-corruption", asked)], Limits()).conducted(report("heap-corruption"))
    assert got.verdict is not None
    assert got.verdict.status == "inconclusive"
    assert "the check found it" not in (got.verdict.experiments[1].means or "")


def test_what_dies_with_most_of_the_stack_free_was_no_overflow() -> None:
    def does(change: Change) -> Seen:
        size = change.stack_limit or 8 * MIB
        return Seen("same", measures={"size": size, "used": 7.9 * MIB})

    got = Campaign(Program(does), [study()], Limits()).conducted(report("stack-overflow-recursion"))
    assert got.verdict is not None
    assert got.verdict.status == "refuted"


# ---------------------------------------------------------------- scale and vary


@pytest.mark.parametrize("threshold", [2, 7, 4321, 999_999])
def test_scale_finds_the_threshold(threshold: int) -> None:
    program = Program(lambda change: "same" if int(change.arguments.get("N", 10**6)) >= threshold else "survives")
    asked = dataclasses.replace(scale("N=1..1000000"), rule="cause")
    got = Campaign(program, [asked], Limits()).conducted(report("cause"))
    assert got.verdict is not None
    row = got.verdict.experiments[1]
    assert row.conclusive
    numbers = [int(word.replace(",", "")) for word in re.findall(r"[\d,]*\d", row.outcome)]
    assert numbers[-1] >= threshold > (numbers[0] if len(numbers) > 1 else numbers[0] - 1)
    assert numbers[-1] - threshold <= max(1, threshold // 1000)


def test_scale_says_where_there_is_no_threshold() -> None:
    asked = dataclasses.replace(scale("N=1..9"), rule="cause")
    got = Campaign(Program(lambda _change: "same"), [asked], Limits()).conducted(report("cause"))
    assert got.verdict is not None
    assert "dies with 1 already" in got.verdict.experiments[1].outcome


@pytest.mark.parametrize("text", ["N", "N=1", "N=5..5", "N=9..2", "1N=1..2", "N=a..b", ""])
def test_a_range_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        scale(text)


def test_vary_reads_variables_and_words() -> None:
    assert vary("MODE=a,b").values == ("a", "b")
    assert not vary("MODE=a,b").is_variable
    assert vary("ENV:OMP_NUM_THREADS=1,2").is_variable
    with pytest.raises(InputError):
        vary("=a")


@pytest.mark.parametrize("outcomes", [["hangs"], ["survives", "hangs"]])
def test_a_run_that_was_stopped_at_its_time_limit_speaks_for_nothing(outcomes: list[Outcome]) -> None:
    def does(change: Change) -> Outcome:
        return outcomes[min(program.runs.count("x") - 1, len(outcomes) - 1)] if changed(change) else "same"

    program = Program(does)
    plan = [Planned("cause", proposal("same", "another")), Planned("rival", proposal("survives", fix=FIX))]
    got = Campaign(program, plan, Limits()).conducted(report("cause", "rival", fixes=(FIX,)))
    assert got.verdict is not None
    assert [one.status for one in (got.verdict, *got.alternatives)] == ["inconclusive", "inconclusive"]
    assert "time limit" in (got.verdict.experiments[1].means or "")
    assert not any(fix.verified for one in (got.verdict, *got.alternatives) for fix in one.fixes)
