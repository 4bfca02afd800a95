"""A corpus of texts as people post them, each with the cause that is known of it (tests/cases/texts.md).

What is demanded of a single text: that nothing wrong is ever called certain, and that a text without a death gives
nothing. Of all texts together: that the first verdict, the culprit and a fix are right on 95 of 100.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path

import pytest
import tomllib

from necropsy import explanation
from necropsy.model import Diagnosis, Document
from necropsy.rules import crash_rules

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*/texts/*.toml"))
OWN = "written for this corpus"
RIGHT = 0.95
FIRST, FIRST_THREE = 0.92, 0.96
OPEN = frozenset({"exit-status-only", "killed-by-signal"})
"""Verdicts that name the end and not its cause."""


@dataclass(frozen=True)
class Text:
    """One file of the corpus. ``rule`` is empty where nothing may be found."""

    path: Path
    thread: str
    title: str
    rule: str
    text: str
    also: tuple[str, ...] = ()
    culprit: str = ""
    fix: str = ""
    inputs: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.path.parent.parent.name}/{self.path.stem}"

    @property
    def accepted(self) -> frozenset[str]:
        return frozenset({self.rule, *self.also})


@lru_cache(maxsize=1)
def texts() -> tuple[Text, ...]:
    return tuple(_read(path) for path in FILES)


def _read(path: Path) -> Text:
    fields = tomllib.loads(path.read_text("utf-8"))
    also, inputs, cause = (tuple(fields.pop(name, ())) for name in ("also", "inputs", "cause"))
    return Text(path=path, also=also, inputs=inputs, cause=cause, **fields)


@cache
def document(path: Path) -> Document | None:
    text = _read(path)
    explained = explanation.explain(["-", *text.inputs], crash_rules, stdin=BytesIO(text.text.encode()))
    return explained.document


def verdict(text: Text) -> Diagnosis | None:
    found = document(text.path)
    return found.reports[0].verdict if found is not None and found.reports else None


def told(diagnosis: Diagnosis) -> str:
    """All that a verdict says of its culprit, in one string."""
    parts = [diagnosis.title, diagnosis.summary]
    parts += [f"{piece.seen} {piece.where or ''}" for piece in diagnosis.evidence]
    parts += [f"{place.path}:{place.line}" for place in diagnosis.locations]
    culprit = diagnosis.culprit
    if culprit is not None:
        parts += [one for one in (culprit.function, culprit.module, culprit.source, culprit.op, culprit.kernel) if one]
        if culprit.python is not None:
            parts += [f"{culprit.python.file}:{culprit.python.line} {culprit.python.function}"]
    return "\n".join(parts)


def fixed(diagnosis: Diagnosis, pattern: str) -> bool:
    return any(re.search(pattern, f"{fix.text}\n{fix.command or ''}", re.IGNORECASE) for fix in diagnosis.fixes)


def crashes() -> list[Text]:
    return [text for text in texts() if text.rule]


def wrong_verdicts(among: list[Text]) -> list[str]:
    wrong = []
    for text in among:
        found = verdict(text)
        if found is None or found.rule not in text.accepted:
            said = f"{found.rule} ({found.confidence})" if found else "nothing"
            wrong.append(f"{text.name}: {said}, not {text.rule}")
    return wrong


def enough(among: list[Text], wrong: list[str]) -> bool:
    return len(among) - len(wrong) >= RIGHT * len(among)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}/{path.stem}")
def test_nothing_wrong_is_certain(path: Path) -> None:
    text, found = _read(path), verdict(_read(path))
    if found is not None and found.confidence == "certain":
        assert found.rule in text.accepted, found.summary


@pytest.mark.parametrize("path", [text.path for text in texts() if not text.rule], ids=lambda path: path.stem)
def test_no_death_gives_nothing(path: Path) -> None:
    found = verdict(_read(path))
    assert found is None, found.summary


def test_the_first_verdict_is_right() -> None:
    wrong = wrong_verdicts(crashes())
    assert enough(crashes(), wrong), "\n".join([f"{len(wrong)} of {len(crashes())}", *wrong])


def test_the_culprit_is_named() -> None:
    among = [text for text in crashes() if text.culprit and verdict(text) is not None]
    wrong = [text.name for text in among if (found := verdict(text)) and text.culprit not in told(found)]
    assert enough(among, wrong), "\n".join([f"{len(wrong)} of {len(among)}", *wrong])


def test_a_fix_fits() -> None:
    among = [text for text in crashes() if text.fix and verdict(text) is not None]
    wrong = [text.name for text in among if (found := verdict(text)) and not fixed(found, text.fix)]
    assert enough(among, wrong), "\n".join([f"{len(wrong)} of {len(among)}", *wrong])


def answers(text: Text) -> list[str]:
    """What is said of the cause, the likeliest first. That only a number or a signal is known is no answer: the list is."""
    found = document(text.path)
    report = found.reports[0] if found is not None and found.reports else None
    if report is None or report.verdict is None:
        return []
    said = [report.verdict.rule] if report.verdict.rule not in OPEN or not report.verdict.possible else []
    said += [one.rule for one in report.verdict.possible if one.rule is not None]
    return list(dict.fromkeys([*said, *(one.rule for one in report.alternatives)]))


def causes(text: Text) -> frozenset[str]:
    """The confirmed cause, where more is known of it than that the text does not show it."""
    return frozenset(text.cause) or text.accepted - OPEN


def test_the_confirmed_cause_is_among_the_first() -> None:
    among = [text for text in crashes() if text.thread != OWN and causes(text)]
    later = [text.name for text in among if not causes(text) & set(answers(text)[:1])]
    missed = [text.name for text in among if not causes(text) & set(answers(text)[:3])]
    assert len(among) - len(later) >= FIRST * len(among), "\n".join(later)
    assert len(among) - len(missed) >= FIRST_THREE * len(among), "\n".join(missed)


def test_every_text_is_complete() -> None:
    names = {rule.name for rule in crash_rules()}
    for text in texts():
        assert text.accepted - {""} <= names, text.name
        assert text.title, text.name
        assert text.thread == OWN or text.thread.startswith("https://"), text.name
        assert text.rule == "" or text.fix, text.name


def test_the_corpus_is_wide() -> None:
    count = Counter(text.rule for text in texts())
    assert len(texts()) >= 150
    assert len(count) - 1 >= 40, "so many rules have a text"
    assert count[""] >= 15, "texts without a death"
    assert max(count[rule] for rule in count if rule) <= len(texts()) / 6, "no rule outweighs the others"
