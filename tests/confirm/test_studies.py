"""What the studies of memory, imports and checkers conclude from runs, and that the limits end each of them anywhere."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from behaving import Program, Seen, diagnosis, report
from necropsy.confirm import import_order, memory_need, sanitizing, stack_sizes, valgrind
from necropsy.confirm.campaign import Campaign, Limits, Study
from necropsy.confirm.compiler import Builder
from necropsy.confirm.parameter_sweep import scale
from necropsy.confirm.proposed import Planned
from necropsy.model import Change, Crash, Culprit, Fold, Outcome, Report, Stack, Thread
from necropsy.rules.experiment_proposals import of_pointer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")
MIB = 1 << 20


def conducted(program: Program, study: Study, runs: int | None = None) -> Report:
    return Campaign(program, [study], Limits(runs=runs)).conducted(report(study.rule))


# ---------------------------------------------------------------- programs


def wants(megabytes: float) -> Program:
    """It takes so many MiB of address space, or for each N."""

    def does(change: Change) -> Seen:
        many = int(change.arguments.get("N", "400"))
        limited = change.address_space is None or 0 <= change.address_space < megabytes * MIB
        fits = many * megabytes / 400 < 96 if change.arguments or change.address_space is None else not limited
        used = many * megabytes / 400 * MIB
        measures = {"rss": used, "mapped": used} if fits else {"rss": 96.0 * MIB}
        return Seen("survives" if fits else "same", measures=measures)

    return Program(does)


def clashing(*guilty: str) -> Program:
    """It dies where all of ``guilty`` are imported, in this order."""
    names = ("aa", "bb", "cc", "dd")

    def does(change: Change) -> Seen:
        text = "".join(change.at_start)
        if change.checker == "imports":
            return Seen("same", why=" ".join(names), measures={"checked": 1.0})
        order = [word for word in text.split() if word in names]
        if "_exit(0)" not in text:
            order += [name for name in names if name not in order]
        places = [order.index(name) if name in order else -1 for name in guilty]
        return Seen("same" if -1 not in places and places == sorted(places) else "survives")

    return Program(does)


def watched(rule: str | None, outcome: Outcome = "survives") -> Program:
    culprit = Culprit(function="f", source="/src/op.cc", line=3)

    def does(change: Change) -> Seen:
        if change.checker is None:
            return Seen("same", measures={"rss": 10.0 * MIB})
        measures = {"checked": 1.0}
        if rule is None:
            return Seen(outcome, measures=measures)
        return Seen(outcome, rule=rule, where="f in op.cc:3", culprit=culprit, measures=measures)

    return Program(does)


class Compiled(Builder):
    """A builder whose compiler is not asked."""

    def build(self, flags: object) -> Path:
        return self.library


def races(rule: str) -> sanitizing.RaceBuild:
    return sanitizing.RaceBuild(rule, Compiled(Path("op.cc"), Path("/op.so"), "python", Path()), "t")


STUDIES: dict[str, tuple[Program, Study]] = {
    "lifted": (wants(1000), memory_need.Lifted("allocation-failed", {"address space": 500 * MIB})),
    "measured": (wants(1000), memory_need.Measured("out-of-memory-killed", 96 * MIB, [scale("N=1..400")])),
    "not measured": (wants(1000), memory_need.Measured("out-of-memory-killed", None)),
    "imports": (clashing("bb", "dd"), import_order.ImportOrder("conflicting-libraries", ("/",))),
    "valgrind": (watched("use-after-free"), valgrind.Memcheck("heap-corruption")),
    "races": (watched("data-race"), races("data-race")),
}


@pytest.mark.parametrize("name", STUDIES)
def test_wherever_the_budget_ends_nothing_is_claimed_that_was_not_seen(name: str) -> None:
    program, study = STUDIES[name]
    whole = conducted(Program(program.does), study)
    assert whole.verdict is not None
    full = Program(program.does)
    conducted(full, study)
    for runs in range(1, len(full.runs) + 1):
        short = Program(program.does)
        got = conducted(short, study, runs)
        assert len(short.runs) <= runs
        assert got.verdict is not None
        assert got.verdict.status in {"inconclusive", whole.verdict.status}
        verified = {fix.text for fix in got.verdict.fixes if fix.verified}
        assert verified <= {fix.text for fix in whole.verdict.fixes if fix.verified}
        if runs < 3:
            assert got.verdict.status == "inconclusive"


def test_the_limit_that_is_lifted_confirms() -> None:
    got = conducted(*STUDIES["lifted"])
    assert got.verdict is not None
    assert got.verdict.status == "confirmed"
    (fix,) = got.verdict.fixes
    assert fix.verified
    assert fix.command == f"ulimit -v {1250 << 10}"


def test_what_dies_without_a_limit_too_is_not_confirmed() -> None:
    program = Program(lambda _change: Seen("same"))
    got = conducted(program, memory_need.Lifted("allocation-failed", {"address space": MIB}))
    assert got.verdict is not None
    assert got.verdict.status == "inconclusive"
    assert got.verdict.experiments[1].means == "the limit is not the reason"


def test_an_input_that_would_fit_by_its_slope_proves_nothing() -> None:
    """It was killed all the same: it does not grow with the number, or not evenly."""

    def does(change: Change) -> Seen:
        if not change.arguments:
            return Seen("same", measures={"rss": 96.0 * MIB})
        return Seen("survives", measures={"rss": 20.0 * MIB + int(change.arguments["N"])})

    got = conducted(Program(does), memory_need.Measured("out-of-memory-killed", 96 * MIB, [scale("N=1..400")]))
    assert got.verdict is not None
    assert got.verdict.status == "inconclusive"
    assert not got.verdict.fixes


@pytest.mark.parametrize("guilty", [("aa", "bb"), ("aa", "dd"), ("bb", "cc"), ("aa", "bb", "dd")])
def test_the_imports_that_clash_are_found(guilty: tuple[str, ...]) -> None:
    got = conducted(clashing(*guilty), import_order.ImportOrder("conflicting-libraries", ("/",)))
    assert got.verdict is not None
    assert got.verdict.status == "confirmed"
    assert "; ".join(f"import {name}" for name in guilty) in {one.change for one in got.verdict.experiments}
    (fix,) = got.verdict.fixes
    assert (fix.command, fix.verified) == (f"import {guilty[-1]}", True)


def test_one_import_that_dies_alone_is_no_clash() -> None:
    got = conducted(clashing("cc"), import_order.ImportOrder("conflicting-libraries", ("/",)))
    assert got.verdict is not None
    assert got.verdict.status == "inconclusive"
    assert got.verdict.experiments[1].means == "it dies without any other package"


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
@pytest.mark.parametrize(
    ("claimed", "found", "outcome", "status"),
    [
        ("heap-corruption", "use-after-free", "survives", "confirmed"),
        ("invalid-read", "use-after-free", "same", "confirmed"),
        ("stack-overflow-recursion", "heap-buffer-overflow", "survives", "refuted"),
        ("stack-overflow-recursion", "heap-buffer-overflow", "same", "inconclusive"),
        ("heap-corruption", None, "survives", "inconclusive"),
    ],
)
def test_what_valgrind_sees_proves(claimed: str, found: str | None, outcome: Outcome, status: str) -> None:
    got = conducted(watched(found, outcome), valgrind.Memcheck(claimed, valgrind.HEAP))
    diagnoses = [one for one in (got.verdict, *got.alternatives) if one is not None and one.rule == claimed]
    assert [one.status for one in diagnoses] == [status]
    if status == "refuted":
        assert got.verdict is not None
        assert (got.verdict.rule, got.verdict.status) == (found, "confirmed")


def test_a_race_beside_another_verdict_is_a_diagnosis_of_its_own() -> None:
    got = conducted(watched("data-race"), races("double-free"))
    assert got.verdict is not None
    assert (got.verdict.rule, got.verdict.status) == ("data-race", "confirmed")
    assert got.verdict.culprit is not None
    assert [one.rule for one in got.alternatives] == ["double-free"]


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
@pytest.mark.parametrize(
    ("found", "left"), [("heap-buffer-overflow", []), (None, ["invalid-read"])], ids=["proved", "not proved"]
)
def test_the_sign_of_damage_that_is_proved_is_not_its_rival(found: str | None, left: list[str]) -> None:
    pointer = Planned("invalid-read", of_pointer(Crash())[0])
    studies: list[Study] = [pointer, valgrind.Memcheck("heap-corruption", valgrind.HEAP)]
    first = report("heap-corruption", "invalid-read")
    got = Campaign(watched(found, "same"), studies, Limits()).conducted(first)
    assert [one.rule for one in got.alternatives] == left
    assert got.verdict is not None
    assert got.verdict.rule == "heap-corruption"
    rows = [row.name for one in (got.verdict, *got.alternatives) for row in one.experiments]
    assert "one-thread" in rows, "what was tried is reported too"


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(("blamed", "name"), [("pong", "pong"), (None, "ping"), ("elsewhere", "ping")])
def test_a_recursion_is_called_as_the_verdict_calls_it_wherever_its_stack_ended(blamed: str | None, name: str) -> None:
    told = msgspec.structs.replace(diagnosis("stack-overflow-recursion"), culprit=Culprit(function=blamed))
    for functions in (("ping", "pong"), ("pong", "ping")):
        fold = Fold(period=2, times=9_000, functions=functions)
        thread = Thread(tid=7, crashed=True, stack=Stack(size=8 * MIB), folds=(fold,))
        study = stack_sizes.study(Crash(threads=(thread,)), [told.rule], told)
        assert study is not None
        assert study.repeated == f"`{name}`"
