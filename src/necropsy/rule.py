"""What a rule is, and the three words that rules are built from: all_of, any_of, absent.

The key idea: a question returns the evidence that answers it, not a boolean. An empty answer means *not seen*. So a
rule that matched has its evidence in hand, and a diagnosis without evidence cannot be built.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import Generic, Literal, TypeVar, get_type_hints

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

_SOURCES = "Sources\n-------\n"
_LINK = re.compile(r"https?://[^\s`]*[^\s`.,;:)]")

Found = tuple[Evidence, ...]
"""What was seen; empty: nothing."""

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
    """Most frequent first, if the rule leaves several causes open."""
    last_words: LastWords | None = None
    """The program's last output, if it is to be quoted."""
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
"""The program lived with the advice; it revealed the cause; or it could not be followed."""


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


Processor = Literal["x86-64", "AArch64"]
X86_64: tuple[Processor, ...] = ("x86-64",)
BOTH: tuple[Processor, ...] = (*X86_64, "AArch64")
NEVER: tuple[Processor, ...] = ()
_ON = "Where it occurs"


@dataclass(frozen=True, kw_only=True)
class Occurs:
    """On which processors of each system a cause can occur at all; ``but``: a sentence on what differs there.

    What cannot occur on a machine is *not applicable* to a crash or an environment of it: it is not asked for, and not
    said to be unobserved.
    """

    linux: tuple[Processor, ...] = BOTH
    windows: tuple[Processor, ...] = BOTH
    macos: tuple[Processor, ...] = BOTH
    but: str = ""

    def __str__(self) -> str:
        """``Linux and Windows, on x86-64 and AArch64.``"""
        groups: dict[tuple[Processor, ...], list[str]] = {}
        for system, processors in (("Linux", self.linux), ("Windows", self.windows), ("macOS", self.macos)):
            if processors:
                groups.setdefault(processors, []).append(system)
        spelled = "; ".join(f"{_in_words(systems)}, on {_in_words(on)}" for on, systems in groups.items())
        return f"{spelled}. {self.but}".rstrip()

    def on(self, system: str | None, processor: Processor | None) -> bool:
        """Whether it can be there; what is not known may be any. ``system``: as ``sys.platform`` has it."""
        every = {"linux": self.linux, "win32": self.windows, "darwin": self.macos}
        there = every.get(system or "", (*self.linux, *self.windows, *self.macos))
        return bool(there) if processor is None else processor in there


def _in_words(names: Iterable[str]) -> str:
    """``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[S]):
    """One diagnosis: when it holds, what it says, and what is known about it.

    ``needs`` names the parts of the subject that it cannot do without (fields of the subject, or ``stack`` and
    ``frames`` of the crashed thread): where one was not captured, the outcome is *not tried, because ...*.
    ``beats`` names the general rules that say less about the same fact.
    ``hit`` and ``miss`` are sketches (see ``tests/sketch.py``): a subject that it fires on, and its nearest neighbour.

    What is not given comes from the module of ``match``: ``page`` is its docstring, ``name`` its file's name. ``title``
    is the page's first line, ``references`` are the links under the page's "Sources", and ``subject`` is the type of
    ``match``'s parameter.
    """

    match: Callable[[S], Finding | None] = field(kw_only=False)
    hit: str = ""
    miss: str = ""
    name: str = ""
    subject: type[S] | None = None
    title: str = ""
    page: str = ""
    severity: Severity = "error"
    needs: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    occurs: Occurs = Occurs()
    yields: bool = False
    """Every other rule that sees the same cause says more about it, as if all of them named it in ``beats``. Only of
    rules on an environment."""
    experiments: Callable[[S], tuple[Proposal, ...]] | None = None
    """What would prove or refute it, for a subject that it has matched; asked only where somebody wants it proved."""
    references: tuple[str, ...] = ()
    tried: Tried | None = None
    checks: str | None = None
    """What it looks at, in a few words, for the line that lists what is in order; only of rules on an environment."""

    def __post_init__(self) -> None:
        page = self.page or sys.modules[self.match.__module__].__doc__ or ""
        implied = {
            "name": self.name or self.match.__module__.rpartition(".")[2].replace("_", "-"),
            "page": page,
            "title": self.title or page.partition("\n")[0].rstrip("."),
            "references": self.references or tuple(_LINK.findall(page.partition(_SOURCES)[2])),
            "subject": self.subject or next(iter(get_type_hints(self.match).values()), None),
        }
        for name, value in implied.items():
            object.__setattr__(self, name, value)

    @property
    def whole_page(self) -> str:
        """The page with where it occurs and what came of the first piece of advice, before the sources."""
        place = f"{_ON}\n{'-' * len(_ON)}\n{fill(str(self.occurs), 118)}\n\n"
        page = self.page.replace(_SOURCES, place + _SOURCES)
        if self.tried is None:
            return page
        one = self.tried
        by = f" (``{one.test}``)" if one.test else " (by hand)" if one.result != "judged only" else ""
        title = "Does the advice work?"
        section = (
            f"{title}\n{'-' * len(title)}\n{one.result.capitalize()}{by}. First advice: {one.advice}\n\n{one.how}\n\n"
        )
        return page.replace(_SOURCES, section + _SOURCES)


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
