"""Combines all results: each diagnosis's status and culprit, and which advice was tried.

Another confirmed diagnosis replaces an unconfirmed verdict. So does a confirmed cause, such as the overrun that made a
pointer invalid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.model import Culprit, Diagnosis, Evidence, Experiment, Fix, Report, Status

_SHOWN = {
    "data-race": "It takes more than one thread for this death",
    "conflicting-libraries": "Which libraries are loaded, and in which order, decides",
    "allocation-failed": "It was refused memory, and did not ask whether it got it",
}
"""An experiment shows less than observing the race, or the two copies of one library."""


CAUSES = frozenset(
    {
        *("heap-corruption", "double-free", "heap-buffer-overflow", "use-after-free"),
        *("stack-smash", "buffer-overflow-fortify"),
    }
)
"""Damage to memory: what the compiler's checks may name."""
SIGNS = frozenset(
    {"invalid-read", "invalid-write", "bad-jump", "abort", "python-without-gil", "deliberate-trap", "damaged-object"}
)
"""Symptoms of that damage, which chance decides: they describe the death, not its cause."""
_ADVICE = {
    "stack-smash": "In {who}, compare each index and length with the size of the local array that is written.",
    "buffer-overflow-fortify": "In {who}, compare each length with the size of the array that is written.",
    "data-race": "Find what {who} uses that another thread changes, or has not initialised yet: take one lock around "
    "both (std::mutex, threading.Lock), or give each thread its own.",
    "allocation-failed": "In {who}, check the result of each allocation. Use less memory, or raise the limit.",
}
"""What to do about these, where an experiment showed them."""


@dataclass(frozen=True)
class ExperimentResult:
    """What an experiment found: its rows, whether each prediction came true and counts, and the fixes that it tried."""

    experiments: tuple[Experiment, ...]
    proofs: Mapping[str, bool] = field(default_factory=dict)
    """For each rule it speaks of: whether it holds."""
    fixes: tuple[Fix, ...] = ()
    culprit: Culprit | None = None
    """The culprit, if a check saw the act."""
    evidence: tuple[Evidence, ...] = ()
    """Further measurements and observations for its diagnosis."""
    summary: str | None = None
    """What happened, if more is known than before, for a diagnosis that it proves."""
    instead: Diagnosis | None = None
    """The diagnosis it proves, if not the tested one."""
    is_cause: bool = False
    """``instead`` led to the tested death, which happened as diagnosed."""


def conclude(
    report: Report,
    first: Experiment,
    results: Sequence[tuple[frozenset[str], ExperimentResult]],
    last: tuple[Experiment, ...] = (),
) -> Report:
    """The report with ``results`` and the rules each concerns; ``first``, ``last``: runs of the unchanged program."""
    if report.verdict is None:
        return report
    known = {report.verdict.rule, *(one.rule for one in report.alternatives)}
    found: dict[str, Diagnosis] = {}
    for _rules, result in results:
        if result.instead is not None and result.instead.rule not in known:
            own = msgspec.structs.replace(result.instead, culprit=result.instead.culprit or report.verdict.culprit)
            found.setdefault(own.rule, own if own.fixes else msgspec.structs.replace(own, fixes=_advice(own)))
    if not results:
        # Nothing was tried, and the runs of the unchanged program say why.
        told = msgspec.structs.replace(report.verdict, status="inconclusive", experiments=(first,))
        return msgspec.structs.replace(report, verdict=told)
    verdict = judged(report.verdict, first, results, last)
    others = [judged(one, first, results, last) for one in (*found.values(), *report.alternatives)]
    causes = {result.instead.rule for _rules, result in results if result.instead is not None and result.is_cause}
    others.sort(key=lambda one: one.rule not in causes)
    proved = next((one for one in others if one.status == "confirmed"), None)
    if proved is not None and (verdict.status != "confirmed" or proved.rule in causes):
        others = [one for one in others if one is not proved] + [verdict]
        verdict = proved
    verdict, others = _with_its_signs(verdict, others)
    return msgspec.structs.replace(report, verdict=verdict, alternatives=tuple(others))


def _with_its_signs(verdict: Diagnosis, others: list[Diagnosis]) -> tuple[Diagnosis, list[Diagnosis]]:
    """Symptoms of proved memory damage are not rivals, because nothing could refute one.

    Their experiments become the verdict's. A symptom that was itself proved or refuted stays.
    """
    if verdict.status != "confirmed" or verdict.rule not in CAUSES:
        return verdict, others
    signs = [one for one in others if one.rule in SIGNS and one.status not in {"confirmed", "refuted"}]
    known = {row.name for row in verdict.experiments}
    rows = [row for sign in signs for row in sign.experiments if row.name not in known]
    verdict = msgspec.structs.replace(verdict, experiments=(*verdict.experiments, *rows))
    return verdict, [one for one in others if one not in signs]


def proved_instead(
    rule: str,
    title: str,
    claim: str,
    experiment: Experiment,
    culprit: Culprit | None = None,
    *,
    fixes: tuple[Fix, ...] = (),
) -> Diagnosis:
    """The diagnosis of ``rule``, supported by ``experiment`` alone; ``claim`` says how the program survives in it.

    Its summary claims no more than that; ``fixes``: matching advice.
    """
    shown = _SHOWN.get(rule, title)
    seen = f"{experiment.crashed} of {experiment.runs} runs died"
    where = f" in `{culprit.function}`" if culprit is not None and culprit.function else ""
    return Diagnosis(
        rule=rule,
        title=title,
        summary=f"{shown}{where}: {claim}.",
        severity="error",
        confidence="likely",
        culprit=culprit,
        evidence=(Evidence(claim=claim, seen=seen, where="experiment"),),
        fixes=fixes,
    )


def _advice(diagnosis: Diagnosis) -> tuple[Fix, ...]:
    text = _ADVICE.get(diagnosis.rule)
    function = diagnosis.culprit.function if diagnosis.culprit is not None else None
    return (Fix(text=text.format(who=f"`{function}`" if function else "it")),) if text is not None else ()


def judged(
    diagnosis: Diagnosis,
    first: Experiment,
    results: Sequence[tuple[frozenset[str], ExperimentResult]],
    last: tuple[Experiment, ...] = (),
) -> Diagnosis:
    """The diagnosis with its experiments; ``first`` and ``last`` are runs of the unchanged program.

    ``results``: each with the rules it concerns. One refutation outweighs every proof.
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

    def proved(one: ExperimentResult) -> bool:
        return status == "confirmed" and one.proofs.get(diagnosis.rule) is True

    seen = next((result.culprit for result in mine if result.culprit is not None), None)
    return msgspec.structs.replace(
        diagnosis,
        status=status,
        summary=next((one.summary for one in mine if one.summary and proved(one)), diagnosis.summary),
        culprit=_named(diagnosis.culprit, seen) if status == "confirmed" else diagnosis.culprit,
        evidence=(*diagnosis.evidence, *(one for result in mine for one in result.evidence)),
        experiments=(first, *(one for result in mine for one in result.experiments), *last),
        fixes=_verified(diagnosis.fixes, [fix for result in mine for fix in result.fixes]),
    )


def _named(known: Culprit | None, seen: Culprit | None) -> Culprit | None:
    """Prefer who did it to who noticed it, and keep the Python line that led there."""
    if known is None or seen is None or seen.source is None:
        return seen if known is None else known
    return msgspec.structs.replace(
        known, function=seen.function, module=seen.module or known.module, source=seen.source, line=seen.line
    )


def _verified(fixes: Sequence[Fix], tried: Sequence[Fix]) -> tuple[Fix, ...]:
    """Advice with its trials' results: what works first, what did not help last."""
    by_text = {fix.text: fix for fix in tried}
    told_of = [by_text.pop(fix.text, fix) for fix in fixes]
    # What the experiments found out is more than what was said before them.
    new = [fix for fix in by_text.values() if fix.verified is None]
    told_of = [*new, *told_of, *(fix for fix in by_text.values() if fix.verified is not None)]
    return tuple(sorted(told_of, key=lambda fix: {True: 0, None: 1, False: 2}[fix.verified]))
