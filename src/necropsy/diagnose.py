"""(Subject, rules) -> diagnoses, ranked. Pure: the same subject and rules give the same answer.

Defects of the environment that could explain a death are found by ``doctor``'s rules, asked about the dead process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from necropsy.examine import examine
from necropsy.model import Confidence, Crash, Diagnosis, Evidence, Gap, NotTried, Report
from necropsy.ownership import Owners
from necropsy.rule import Rule, S, to_diagnosis
from necropsy.rules import environment_rules_named
from necropsy.rules.aarch64 import can_occur
from necropsy.rules.called import with_call
from necropsy.rules.known_fixes import with_known_fixes
from necropsy.rules.likelier import with_likelier_causes
from necropsy.rules.mapped import environment_of
from necropsy.rules.others_code import with_advice_for_users
from necropsy.rules.related import SAME, asked_about, explains
from necropsy.signature import signature

_MOST = 3
"""Pieces of evidence that a verdict takes from one finding."""


def with_environment(report: Report) -> Report:
    """The report with the findings that could explain its death; the reasons of the verdict are evidence."""
    verdict = report.verdict
    found = findings(report.crash, verdict)
    if verdict is None or not found:
        return report
    reasons = [one for one in found if verdict.rule in SAME.get(one.rule, ())]
    return msgspec.structs.replace(report, verdict=_supported(verdict, reasons), environment_findings=found)


def findings(crash: Crash, verdict: Diagnosis | None) -> tuple[Diagnosis, ...]:
    """What is wrong with the environment and could explain the death; nothing where the verdict has no room for it."""
    if verdict is None or not (names := asked_about(crash, verdict)):
        return ()
    environment = environment_of(crash)
    if environment is None:
        return ()
    found = examine(
        environment,
        environment_rules_named(names),
        lambda rule, finding: explains(rule.name, finding, crash, environment, verdict),
    )
    return found.findings


def _supported(verdict: Diagnosis, reasons: list[Diagnosis]) -> Diagnosis:
    """Add the findings' evidence that the verdict does not have yet."""
    seen = {one.seen for one in verdict.evidence}
    more = [one for reason in reasons for one in reason.evidence[:_MOST] if one.seen not in seen]
    return msgspec.structs.replace(verdict, evidence=(*verdict.evidence, *more)) if more else verdict


T = TypeVar("T")
_ORDER: dict[Confidence, int] = {"certain": 0, "likely": 1, "possible": 2}
_WEAKER: dict[Confidence, Confidence] = {"certain": "likely", "likely": "possible", "possible": "possible"}


@dataclass(frozen=True)
class Judgement:
    """All rules asked: ``diagnoses`` ranked best first, the rules that could not be asked, and those that failed."""

    diagnoses: tuple[Diagnosis, ...]
    not_tried: tuple[NotTried, ...]
    failed: tuple[Gap, ...]


def judge(subject: S, rules: Iterable[Rule[S]], why_missing: Callable[[S, str], str | None]) -> Judgement:
    """Ask every rule about ``subject``; a rule that raises is recorded and the others go on.

    ``why_missing(subject, part)`` says why a part that a rule needs was not captured, or None if it was.
    """
    found: list[tuple[Rule[S], Diagnosis]] = []
    not_tried: list[NotTried] = []
    failed: list[Gap] = []
    for rule in rules:
        reasons = [reason for need in rule.needs if (reason := why_missing(subject, need)) is not None]
        if reasons:
            not_tried.append(NotTried(rule=rule.name, reason="; ".join(reasons)))
            continue
        try:
            diagnosis = _ask(rule, subject)
        except Exception as error:  # noqa: BLE001 - whatever a rule raises, the others still speak
            failed.append(Gap(part=f"rule {rule.name}", why=f"{type(error).__name__}: {error}"))
            continue
        if diagnosis is not None:
            found.append((rule, diagnosis))
    return Judgement(_rank(found), tuple(not_tried), tuple(failed))


def _ask(rule: Rule[S], subject: S) -> Diagnosis | None:
    finding = rule.match(subject)
    return None if finding is None else to_diagnosis(rule, finding)


def _rank(found: list[tuple[Rule[S], Diagnosis]]) -> tuple[Diagnosis, ...]:
    """Drop what a more specific rule says better; the surest first, then the one with the most evidence."""
    beaten = {name for rule, _ in found for name in rule.beats}
    left = [diagnosis for rule, diagnosis in found if rule.name not in beaten]
    left.sort(key=lambda diagnosis: (_ORDER[diagnosis.confidence], -len(diagnosis.evidence), diagnosis.rule))
    if len(left) > 1 and left[0].confidence == left[1].confidence == "certain":
        # Two decisive observations that do not know of each other: neither rules the other out.
        left = [msgspec.structs.replace(one, confidence=_WEAKER[one.confidence]) for one in left]
    return tuple(left)


_PARTS_OF_CRASHED_THREAD = {"stack": "stack", "frames": "frames"}


def why_missing_in_crash(crash: Crash, part: str) -> str | None:
    """Why a rule cannot see ``part`` of the crash; None when it is there. ``messages or fault``: one of them."""
    part, *others = part.split(" or ")
    if any(_is_present(crash, one) for one in (part, *others)):
        return None
    gap = crash.gap(part)
    return f"{part} not captured" + (f": {gap.why}" if gap else "")


def _is_present(crash: Crash, part: str) -> bool:
    if part not in _PARTS_OF_CRASHED_THREAD:
        return getattr(crash, part) is not None
    thread = crash.crashed_thread
    return thread is not None and getattr(thread, _PARTS_OF_CRASHED_THREAD[part]) is not None


def _by_confidence(diagnosis: Diagnosis) -> int:
    return _ORDER[diagnosis.confidence]


def _as_sure_as_its_frame(crash: Crash, diagnosis: Diagnosis) -> Diagnosis:
    """Lower the certainty if the blamed frame was found by a stack scan, which also finds stale return addresses.

    Only a jump to a bad address is certain even then: its return address was pushed last.
    """
    thread, culprit = crash.crashed_thread, diagnosis.culprit
    frames = thread.frames or () if thread is not None else ()
    if diagnosis.confidence != "certain" or culprit is None or culprit.function is None:
        return diagnosis
    blamed = next((at for at, one in enumerate(frames) if one.function == culprit.function), None)
    fault = crash.fault
    jumped = fault is not None and frames and (fault.access == "exec" or fault.address == frames[0].address)
    first = 2 if jumped else 1
    if blamed is None or not any(one.found_by == "scan" for one in frames[first : blamed + 1]):
        return diagnosis
    guess = Evidence(
        claim="that this function was called is a guess",
        seen=f"{culprit.function}, by a search of the stack for return addresses",
        where=f"frame {frames[blamed].index}",
    )
    return msgspec.structs.replace(diagnosis, confidence="likely", evidence=(*diagnosis.evidence, guess))


def _with_owner(diagnosis: Diagnosis, crash: Crash, owners: Owners) -> Diagnosis:
    if diagnosis.culprit is None:
        return diagnosis
    return msgspec.structs.replace(diagnosis, culprit=owners.of_culprit(diagnosis.culprit, crash.crashed_thread))


def _attempt(failed: list[Gap], part: str, value: T, step: Callable[[T], T]) -> T:
    """If ``step`` fails, keep ``value``: a verdict is worth more than its additions."""
    try:
        return step(value)
    except Exception as error:  # noqa: BLE001 - any defect of that step
        failed.append(Gap(part=part, why=f"{type(error).__name__}: {error}"))
        return value


def diagnose(crash: Crash, rules: Iterable[Rule[Crash]]) -> Report:
    """The report of one crash: the verdict first, its rivals after it, and what could not be asked."""
    failed: list[Gap] = []
    owners = Owners(crash)
    crash = _attempt(failed, "owners", crash, owners.of_crash)
    judgement = judge(crash, (one for one in rules if can_occur(one, crash)), why_missing_in_crash)
    sure = (_as_sure_as_its_frame(crash, one) for one in judgement.diagnoses)
    owned = (_attempt(failed, "owners", one, lambda it: _with_owner(it, crash, owners)) for one in sure)
    told = sorted(owned, key=_by_confidence)
    if told:
        told[0] = _attempt(failed, "likelier causes", told[0], lambda it: with_likelier_causes(it, crash))
        told[0] = _attempt(failed, "advice", told[0], with_advice_for_users)
        told[0] = _attempt(failed, "call", told[0], lambda it: with_call(it, crash))
        told[0] = _attempt(failed, "known fixes", told[0], lambda it: with_known_fixes(it, crash))
    verdict, alternatives = (told[0], tuple(told[1:])) if told else (None, ())
    report = Report(
        crash=crash,
        pid=crash.pid,
        signature=signature(crash, verdict),
        verdict=verdict,
        alternatives=alternatives,
        not_tried=judgement.not_tried,
    )
    report = _attempt(failed, "environment", report, with_environment)
    return msgspec.structs.replace(report, gaps=(*crash.gaps, *judgement.failed, *failed))
