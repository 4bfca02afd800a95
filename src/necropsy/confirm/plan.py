"""Which experiments a report asks for: those of its verdict first, then those of its rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from necropsy.confirm import memory_need, stack_sizes, unmapping, valgrind
from necropsy.confirm.campaign import Study
from necropsy.confirm.parameter_sweep import Scale
from necropsy.confirm.proposed import Planned
from necropsy.model import Change, Crash, Proposal, Report
from necropsy.rule import Rule


def planned(
    report: Report, rules: Sequence[Rule[Crash]], scales: Sequence[Scale] = (), general: Sequence[Proposal] = ()
) -> tuple[Study, ...]:
    """The experiments of the verdict, then of its rivals; stack sizes are tried once for all rules on stacks.

    ``scales``: numbers in the command that may change; ``general``: proposals for any verdict.
    """
    by_name = {rule.name: rule for rule in rules}
    found: list[Study] = []
    diagnoses = [*((report.verdict,) if report.verdict else ()), *report.alternatives]
    names = [one.rule for one in diagnoses if one.rule in stack_sizes.RULES]
    if names and (study := stack_sizes.study(report.crash, names, report.verdict)) is not None:
        found.append(study)
    for diagnosis in diagnoses:
        rule = by_name.get(diagnosis.rule)
        if rule is not None and rule.experiments is not None:
            found += [_planned(rule.name, proposal, by_name) for proposal in rule.experiments(report.crash)]
    if report.verdict is not None:
        found += [_planned(report.verdict.rule, proposal, by_name) for proposal in general]
    found = _once(found)
    for name in (one.rule for one in diagnoses if one.rule in memory_need.RULES):
        if (measured := memory_need.study(report.crash, name, scales)) is not None:
            found.append(measured)
    if (
        report.verdict is not None
        and report.verdict.rule in memory_need.SYMPTOMS
        and report.crash.environment is not None
    ):
        allocation = by_name[memory_need.ALLOCATION]
        refused = memory_need.refused(report.verdict.rule, report.crash.environment, allocation.title)
        found += [refused] if refused is not None else []
    if report.verdict is not None and (watched := unmapping.study(report.crash, report.verdict.rule)) is not None:
        found.append(watched)
    if report.verdict is not None and report.verdict.rule in valgrind.RULES:
        titles = {name: rule.title for name, rule in by_name.items()}
        found.append(valgrind.Memcheck(report.verdict.rule, valgrind.HEAP, titles))
    return tuple(found)


def _planned(rule: str, proposal: Proposal, by_name: Mapping[str, Rule[Crash]]) -> Planned:
    other = by_name.get(proposal.otherwise) if proposal.otherwise is not None else None
    if other is None:
        return Planned(rule, proposal)
    return Planned(rule, proposal, frozenset({other.name}), other.title)


def _once(studies: Sequence[Study]) -> list[Study]:
    """Drop repeated studies for one rule; two rules may share a change, which the lab runs once."""
    kept: list[Study] = []
    known: list[tuple[str, Change]] = []
    for study in studies:
        if isinstance(study, Planned):
            if (study.rule, study.proposal.change) in known:
                continue
            known.append((study.rule, study.proposal.change))
        kept.append(study)
    return kept
