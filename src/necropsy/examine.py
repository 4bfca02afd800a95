"""(Environment, rules) -> independent findings, worst first. Pure, as ``diagnose`` is.

Rules on a crash compete for one verdict; those on an environment do not. If two rules see the same cause (see
``Finding.about``), the one that names the other in ``beats`` reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from necropsy.model import Diagnosis, Environment, Evidence, Gap, NotTried, Passed, Severity
from necropsy.rule import Finding, Processor, Rule, to_diagnosis

_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Examination:
    """All rules asked: the findings, worst first; the rules that found nothing, and those that could not be asked."""

    findings: tuple[Diagnosis, ...]
    passed: tuple[Passed, ...]
    not_tried: tuple[NotTried, ...]
    failed: tuple[Gap, ...]


def _all(rule: Rule[Environment], finding: Finding) -> bool:  # noqa: ARG001 - what ``is_wanted`` is asked
    return True


def examine(
    environment: Environment,
    rules: Iterable[Rule[Environment]],
    is_wanted: Callable[[Rule[Environment], Finding], bool] = _all,
) -> Examination:
    """Ask every rule about ``environment``, keeping the wanted findings; a rule that raises becomes a gap."""
    found: list[tuple[Rule[Environment], Finding]] = []
    passed: list[Passed] = []
    not_tried: list[NotTried] = []
    failed: list[Gap] = []
    for rule in (one for one in rules if _is_for(environment, one)):
        reasons = [reason for need in rule.needs if (reason := why_missing(environment, need)) is not None]
        if reasons:
            not_tried.append(NotTried(rule=rule.name, reason="; ".join(dict.fromkeys(reasons)), checks=rule.checks))
            continue
        try:
            finding = rule.match(environment)
        except Exception as error:  # noqa: BLE001 - whatever a rule raises, the others still speak
            failed.append(Gap(part=f"rule {rule.name}", why=f"{type(error).__name__}: {error}"))
            continue
        if finding is None:
            passed.append(Passed(rule=rule.name, checks=rule.checks))
        else:
            found += [(rule, one) for one in (finding, *finding.also) if is_wanted(rule, one)]
    findings = [to_diagnosis(rule, one) for rule, one in _each_cause_once(found)]
    findings.sort(key=lambda one: (_ORDER[one.severity], one.rule))
    return Examination(tuple(findings), tuple(passed), tuple(not_tried), tuple(failed))


_ONLY_ON = {"dlls": "win32"}
"""Parts that only one system has: elsewhere, a rule on them does not count as skipped."""
_PROCESSORS: dict[str, Processor] = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "AArch64", "arm64": "AArch64"}
"""By what ``platform.machine()`` calls them."""


def _is_for(environment: Environment, rule: Rule[Environment]) -> bool:
    interpreter = environment.interpreter
    system, machine = (interpreter.system, interpreter.machine) if interpreter is not None else (None, None)
    if not rule.occurs.on(system, _PROCESSORS.get((machine or "").lower())):
        return False
    return all(_ONLY_ON.get(need, system) == system for need in rule.needs)


def why_missing(environment: Environment, part: str) -> str | None:
    """Why a rule cannot see ``part`` of the environment; None when it is there. ``libraries or dlls``: one of them."""
    part, *others = part.split(" or ")
    if any(getattr(environment, one) is not None for one in (part, *others)):
        return None
    gap = environment.gap(part)
    return gap.why if gap is not None else f"{part.replace('_', ' ')} not observed"


Found = list[tuple[Rule[Environment], Finding]]


def _each_cause_once(found: Found) -> Found:
    """Give the evidence of a cause found twice to the more specific rule's finding."""
    told: dict[int, list[Evidence]] = {}
    proved: set[int] = set()
    left: Found = []
    for rule, finding in found:
        better = next(
            (
                one
                for other, one in found
                if (rule.name in other.beats or (rule.yields and not other.yields)) and one.about & finding.about
            ),
            None,
        )
        if better is None:
            left.append((rule, finding))
        else:
            told.setdefault(id(better), []).extend(finding.evidence)
            # An import that has failed shows that a warning was right.
            if rule.yields and (finding.severity or rule.severity) == "error":
                proved.add(id(better))
    return [
        (rule, _with(replace(one, severity="error") if id(one) in proved else one, told.get(id(one), [])))
        for rule, one in left
    ]


def _with(finding: Finding, more: list[Evidence]) -> Finding:
    new = tuple(dict.fromkeys((one.claim, one.seen, one.where) for one in more))
    have = {(one.claim, one.seen, one.where) for one in finding.evidence}
    added = tuple(
        Evidence(claim=claim, seen=seen, where=where) for claim, seen, where in new if (claim, seen, where) not in have
    )
    return replace(finding, evidence=(*finding.evidence, *added)) if added else finding
