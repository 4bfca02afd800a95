"""The corpus of tests/triage/corpus, and how well a grouping finds its bugs.

B-cubed: for each death, the share of its group that is of its bug (precision), and the share of its bug that is in its
group (recall); the mean over all deaths.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from necropsy.triage.deaths import Fingerprint
from necropsy.triage.documents import ReportDocument
from necropsy.triage.fingerprints import fingerprint
from necropsy.triage.grouping import group

PLACE = Path(__file__).parent / "triage" / "corpus" / "deaths.jsonl.xz"
NATIVE = frozenset({"live", "core", "capsule"})
"""Kinds that were read from the process's memory; the others are texts."""


@dataclass(frozen=True)
class Case:
    """One death, and what is known of it beforehand."""

    bug: str
    kind: str
    build: str
    caller: str
    part: str
    document: ReportDocument
    fingerprint: Fingerprint


@dataclass(frozen=True)
class Score:
    """B-cubed, and how many groups there were."""

    groups: int
    precision: float
    recall: float

    @property
    def balanced(self) -> float:
        """The harmonic mean of both."""
        return 2 * self.precision * self.recall / (self.precision + self.recall)


Method = Callable[[Sequence[Case]], Sequence[Hashable]]
"""The group of each case."""


@cache
def corpus(place: Path = PLACE) -> tuple[Case, ...]:
    """All deaths of the corpus."""
    found = []
    for line in lzma.decompress(place.read_bytes()).splitlines():
        row = json.loads(line)
        document = msgspec.convert(row.pop("document"), ReportDocument)
        found.append(Case(**row, document=document, fingerprint=fingerprint(document.reports[0], document)))
    return tuple(found)


def score(cases: Sequence[Case], groups: Sequence[Hashable]) -> Score:
    """Of a grouping: ``groups`` has one label for each case."""
    sizes, bugs = Counter(groups), Counter(case.bug for case in cases)
    both = Counter(zip(groups, (case.bug for case in cases), strict=True))
    pairs = [(label, case.bug) for label, case in zip(groups, cases, strict=True)]
    precision = sum(both[pair] / sizes[pair[0]] for pair in pairs) / len(cases)
    recall = sum(both[pair] / bugs[pair[1]] for pair in pairs) / len(cases)
    return Score(len(sizes), precision, recall)


def grouped(cases: Sequence[Case]) -> list[Hashable]:
    """As `necropsy triage` groups them."""
    found = group({case.fingerprint.key: case.fingerprint for case in cases}, {}, [])
    of_key = {key: number for number, one in enumerate(found.groups) for key in one.keys}
    return [of_key[case.fingerprint.key] for case in cases]


def measured(cases: Sequence[Case], method: Method) -> tuple[Score, Score]:
    """Of the reports that were read from memory alone, and of all."""
    native = [case for case in cases if case.kind in NATIVE]
    return score(native, method(native)), score(cases, method(cases))
