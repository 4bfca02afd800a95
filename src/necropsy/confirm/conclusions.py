"""What the results of all experiments say: of each diagnosis its status, who did it, and which advice was tried.

Where the verdict is refuted and another diagnosis is confirmed, that one is the verdict: it is what was seen to hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from necropsy.model import Culprit, Diagnosis, Evidence, Experiment, Fix, Report, Status

if TYPE_CHECKING:
    from necropsy.confirm.campaign import Result


def conclude(report: Report, first: Experiment, results: Sequence[tuple[frozenset[str], Result]]) -> Report:
    """The report with what ``results`` say, each with the rules that it speaks of.

    ``first``: the runs of the unchanged program.
    """
    if report.verdict is None:
        return report
    known = {report.verdict.rule, *(one.rule for one in report.alternatives)}
    found: dict[str, Diagnosis] = {}
    for _rules, result in results:
        if result.instead is not None and result.instead.rule not in known:
            own = msgspec.structs.replace(result.instead, culprit=result.instead.culprit or report.verdict.culprit)
            found.setdefault(own.rule, own)
    verdict = judged(report.verdict, first, results)
    others = [judged(one, first, results) for one in (*report.alternatives, *found.values())]
    proved = next((one for one in others if one.status == "confirmed"), None)
    if proved is not None and (verdict.status == "refuted" or (verdict.status != "confirmed" and proved.rule in found)):
        others = [one for one in others if one is not proved] + [verdict]
        verdict = proved
    return msgspec.structs.replace(report, verdict=verdict, alternatives=tuple(others))


def proved_instead(
    rule: str, title: str, claim: str, experiment: Experiment, culprit: Culprit | None = None
) -> Diagnosis:
    """The diagnosis of ``rule``, which only ``experiment`` speaks for: ``claim`` says how the program lives in it."""
    seen = f"{experiment.crashed} of {experiment.runs} runs died"
    where = f" in `{culprit.function}`" if culprit is not None and culprit.function else ""
    return Diagnosis(
        rule=rule,
        title=title,
        summary=f"{title}{where}: {claim}.",
        severity="error",
        confidence="likely",
        culprit=culprit,
        evidence=(Evidence(claim=claim, seen=seen, where="experiment"),),
    )


def judged(diagnosis: Diagnosis, first: Experiment, results: Sequence[tuple[frozenset[str], Result]]) -> Diagnosis:
    """The diagnosis with its experiments, ``first`` of them the runs of the unchanged program.

    ``results``: each with the rules of which it says something. One refutation outweighs every proof.
    """
    mine = [result for rules, result in results if diagnosis.rule in rules]
    if not mine:
        return diagnosis
    proofs = [result.proofs[diagnosis.rule] for result in mine if diagnosis.rule in result.proofs]
    status: Status = "inconclusive"
    if False in proofs:
        status = "refuted"
    elif True in proofs:
        status = "confirmed"
    seen = next((result.culprit for result in mine if result.culprit is not None), None)
    return msgspec.structs.replace(
        diagnosis,
        status=status,
        culprit=_named(diagnosis.culprit, seen) if status == "confirmed" else diagnosis.culprit,
        evidence=(*diagnosis.evidence, *(one for result in mine for one in result.evidence)),
        experiments=(first, *(one for result in mine for one in result.experiments)),
        fixes=_verified(diagnosis.fixes, [fix for result in mine for fix in result.fixes]),
    )


def _named(known: Culprit | None, seen: Culprit | None) -> Culprit | None:
    """Who a check saw doing it, rather than who noticed it; the line of Python that led there stays."""
    if known is None or seen is None or seen.source is None:
        return seen if known is None else known
    return msgspec.structs.replace(
        known, function=seen.function, module=seen.module or known.module, source=seen.source, line=seen.line
    )


def _verified(fixes: Sequence[Fix], tried: Sequence[Fix]) -> tuple[Fix, ...]:
    """The advice, each with what its trial said; what was tried and works stands first."""
    by_text = {fix.text: fix for fix in tried}
    told_of = [by_text.pop(fix.text, fix) for fix in fixes] + list(by_text.values())
    return tuple(sorted(told_of, key=lambda fix: {True: 0, None: 1, False: 2}[fix.verified]))
