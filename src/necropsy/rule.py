"""What a rule is, and the three words that rules are built from: all_of, any_of, absent.

The key idea: a question returns the evidence that answers it, not a boolean. An empty answer means *not seen*. So a
rule that matched has its evidence in hand, and a diagnosis without evidence cannot be built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from necropsy.model import (
    Confidence,
    Culprit,
    Diagnosis,
    Evidence,
    Fix,
    LastWords,
    Location,
    LockWait,
    Possibility,
    Proposal,
    Severity,
)

S = TypeVar("S")

Found = tuple[Evidence, ...]
"""The answer to a question: what was seen, or nothing."""

NOTHING: Found = ()


def all_of(*answers: Found) -> Found:
    """Everything that was seen, if every question was answered; otherwise nothing."""
    return tuple(evidence for answer in answers for evidence in answer) if all(answers) else NOTHING


def any_of(*answers: Found) -> Found:
    """Everything that was seen by at least one of the questions."""
    return tuple(evidence for answer in answers for evidence in answer)


def absent(answer: Found, *, observed: bool, claim: str, where: str | None = None) -> Found:
    """Evidence that something was *not* there: only where the part was observed, so that absence can be known."""
    if answer or not observed:
        return NOTHING
    return (Evidence(claim=claim, seen="not there", where=where),)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a rule concludes. ``evidence`` must not be empty; everything else may be unknown."""

    evidence: Found
    summary: str
    confidence: Confidence
    culprit: Culprit | None = None
    fixes: tuple[Fix, ...] = ()
    locations: tuple[Location, ...] = ()
    possible: tuple[Possibility, ...] = ()
    """Where it leaves several causes open: the most frequent first."""
    last_words: LastWords | None = None
    """What the program wrote last, where it is to be quoted."""
    deadlock: tuple[LockWait, ...] = ()
    title: str | None = None
    """Overrides the rule's title where the finding can say more."""
    severity: Severity | None = None
    """Overrides the rule's severity."""
    about: frozenset[str] = frozenset()
    """What is wrong, as keys that other rules give too (``numpy``, the path of a library): of two findings that share
    one, that of the more special rule is told, and the other becomes its evidence. Only of rules on an environment."""
    also: tuple[Finding, ...] = ()
    """Further findings of the same rule, each with a cause of its own. Only of rules on an environment."""

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError("a finding needs evidence")


def several(findings: Iterable[Finding]) -> Finding | None:
    """Independent findings of one rule as what its ``match`` returns; None where there are none."""
    every = tuple(findings)
    return replace(every[0], also=every[1:]) if every else None


Result = Literal["crash gone", "cause proved", "judged only"]
"""What came of the advice: the program lived with it; it showed what the cause is; nobody could follow it."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The rule's first piece of advice, followed on a real death that it was given for.

    ``advice`` says which one, ``how`` what was done and seen; for ``judged only``, why it could not be followed.
    ``test`` names the test that does it each time (``tests/rules/test_advice.py::test_native``); None: by hand.
    """

    advice: str
    result: Result
    how: str
    test: str | None = None


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[S]):
    """One diagnosis: when it holds, what it says, and what is known about it.

    ``needs`` names the parts of the subject that it cannot do without (fields of the subject, or ``stack`` and
    ``frames`` of the crashed thread): where one was not captured, the outcome is *not tried, because ...*.
    ``beats`` names the general rules that say less about the same fact. ``page`` is the rule module's docstring.
    ``hit`` and ``miss`` are sketches (see ``tests/sketch.py``): a subject that it fires on, and its nearest neighbour.
    """

    name: str
    subject: type[S]
    title: str
    match: Callable[[S], Finding | None]
    page: str
    hit: str
    miss: str
    severity: Severity = "error"
    needs: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    yields: bool = False
    """Every other rule that sees the same cause says more about it, as if all of them named it in ``beats``. Only of
    rules on an environment."""
    experiments: Callable[[S], tuple[Proposal, ...]] | None = None
    """What would prove or refute it, for a subject that it has matched; asked only where somebody wants it proved."""
    references: tuple[str, ...] = field(default=())
    tried: Tried | None = None
    checks: str | None = None
    """What it looks at, in a few words, for the line that lists what is in order; only of rules on an environment."""

    @property
    def whole_page(self) -> str:
        """The page with what came of the first piece of advice, before the sources."""
        if self.tried is None:
            return self.page
        one = self.tried
        by = f" (``{one.test}``)" if one.test else " (by hand)" if one.result != "judged only" else ""
        title = "Does the advice work?"
        section = (
            f"{title}\n{'-' * len(title)}\n{one.result.capitalize()}{by}. First advice: {one.advice}\n\n{one.how}\n\n"
        )
        return self.page.replace("Sources\n-------\n", section + "Sources\n-------\n")


def to_diagnosis(rule: Rule[S], finding: Finding) -> Diagnosis:
    """What ``rule`` has found, as it is in a document."""
    return Diagnosis(
        rule=rule.name,
        title=finding.title or rule.title,
        summary=finding.summary,
        severity=finding.severity or rule.severity,
        confidence=finding.confidence,
        evidence=finding.evidence,
        culprit=finding.culprit,
        locations=finding.locations,
        fixes=finding.fixes,
        possible=finding.possible,
        last_words=finding.last_words,
        deadlock=finding.deadlock,
        references=rule.references,
    )
