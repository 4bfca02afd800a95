"""From calls whose results or inputs are not what they should be to findings: the op breaks a promise, and goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from necropsy.fuzz import contract_tests, test_writer
from necropsy.fuzz.campaign import Campaign
from necropsy.fuzz.comparisons import Comparisons
from necropsy.fuzz.configurations import PLAIN
from necropsy.fuzz.described_calls import described, shown
from necropsy.fuzz.findings import Findings
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.remains import ACCESS, DAMAGE
from necropsy.fuzz.shrinker import Shrinker
from necropsy.model import CallComparison, Diagnosis, FuzzFinding, FuzzFirst, FuzzNeed, Gap, Reproduced
from necropsy.rule import to_diagnosis
from necropsy.rules import call_rules

_RUNS = 5
_MOST_RUNS = 60
_RACE = "data-race"
_OF_RESULTS = frozenset({"op-uninitialised-read", "op-nondeterministic", "op-gradient-wrong", _RACE})
_ACCESSES = ACCESS | DAMAGE | {"bad-jump", "stack-smash"}
_NEEDS: dict[str, tuple[FuzzNeed, ...]] = {
    "op-uninitialised-read": ("guard", "second-run"),
    "op-nondeterministic": ("second-run",),
    _RACE: ("second-run", "threads"),
}


def judged(comparison: CallComparison) -> dict[str, Diagnosis]:
    """The findings on a call, by rule."""
    found = ((rule, rule.match(comparison)) for rule in call_rules())
    return {rule.name: to_diagnosis(rule, one) for rule, one in found if one is not None}


def compare(campaign: Campaign, findings: Findings) -> None:
    """Make calls that were accepted several times, and add a finding for each promise that the op breaks."""
    comparisons = Comparisons(campaign.engine, campaign.op)
    broken: dict[str, list[Recipe]] = {}
    try:
        for recipe, comparison in comparisons.of(campaign.accepted):
            for rule in judged(comparison):
                broken.setdefault(rule, []).append(recipe)
        for rule, recipes in broken.items():
            cause = explaining(rule, campaign.op.name, findings.found)
            if cause is not None:
                why = f"{cause} may explain it; fuzz the op again once that is fixed"
                findings.gaps.append(Gap(part=f"{campaign.op.name}: {rule} was not looked into", why=why))
                continue
            _add(rule, recipes, campaign, comparisons, findings)
    finally:
        campaign.engine.use(PLAIN)


def explaining(rule: str, op: str, found: Sequence[FuzzFinding]) -> str | None:
    """The rule of a finding on the op that explains another one: an access beyond a buffer can change any result."""
    rules = (one.rule for one in found if one.call.target == op and _is_beyond(one))
    return next(rules, None) if rule in _OF_RESULTS else None


def _is_beyond(one: FuzzFinding) -> bool:
    """Whether it is an access beyond a buffer; of what the sanitizers report, only a number can be out of range."""
    return one.rule in _ACCESSES or (one.rule == "sanitizer-report" and "signed integer overflow" not in one.summary)


def _add(
    rule: str, recipes: Sequence[Recipe], campaign: Campaign, comparisons: Comparisons, findings: Findings
) -> None:
    op = campaign.op
    findings.watch(f"{op.name}: {rule}: making the call simpler")

    def breaks(recipe: Recipe) -> bool:
        comparison = comparisons.again(recipe, fresh=False)
        return comparison is not None and rule in judged(comparison)

    simplest = Shrinker(op, breaks, min(_MOST_RUNS, findings.most_runs)).shrink(recipes[0])
    for recipe in (simplest, recipes[0]):
        runs = [comparisons.again(recipe) for _ in range(_RUNS)]
        shows = [(one, judged(one)[rule]) for one in runs if one is not None and rule in judged(one)]
        if len(shows) == _RUNS:
            break
    else:
        why = f"it showed in {len(shows)} of {_RUNS} repetitions only: {shown(op.name, recipes[0])[:300]}"
        findings.gaps.append(Gap(part=f"{op.name}: {rule}", why=why))
        return
    comparison = comparisons.with_threads(recipe, shows[0][0], 2 * _RUNS)
    ((rule, diagnosis),) = ((name, one) for name, one in judged(comparison).items() if name in {rule, _RACE})
    place, _ = test_writer.place_for(findings.tests, op.name, recipe)
    text = contract_tests.text_of(
        rule,
        op.name,
        recipe,
        headline=f"{rule}: {diagnosis.summary}",
        source=findings.source,
        place=place,
        names=comparison.gradient[:1] if rule == "op-gradient-wrong" else comparison.modified,
    )
    test_writer.write(place, text)
    with contextlib.suppress(ValueError):
        place = place.resolve().relative_to(Path.cwd())
    findings.found.append(
        FuzzFinding(
            **{name: getattr(diagnosis, name) for name in Diagnosis.__struct_fields__},
            call=described(op.name, recipe, 1),
            test=str(place),
            first=FuzzFirst(execution=campaign.tally.executions, seconds=round(campaign.tally.seconds, 3)),
            times=len(recipes),
            reproduced=Reproduced(runs=_RUNS, crashed=len(shows)),
            needs=_NEEDS.get(rule, ()),
            elements=sum(one.size for one in recipe.tensors()),
        )
    )
