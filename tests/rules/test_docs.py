"""docs/rules and docs/reference are what the rules' own files and the tables say."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from necropsy.explanation import explain
from necropsy.formats.phrases import Phrase, phrases
from necropsy.model import Crash
from necropsy.rule import Rule
from necropsy.rules import crash_rules

DOCS = Path(__file__).parent.parent.parent / "docs"
SOURCES = DOCS.parent / "src" / "necropsy"
REFERENCE: Mapping[str, Any] = runpy.run_path(str(DOCS / "generate_reference.py"))


def test_pages_are_fresh() -> None:
    stale = runpy.run_path(str(DOCS / "generate_rules.py"))["stale"]()
    assert not stale, (
        f"docs/rules: {stale} are missing or differ from their rules: run `make docs` and commit the result"
    )


def test_each_page_shows_a_report_of_its_rule() -> None:
    for page in (DOCS / "rules").glob("*.md"):
        if page.name != "index.md":
            shown = re.search(
                r"^## What a report looks like\n.*?^```\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
            )
            assert shown is not None, page.name
            assert page.stem in shown[1], page.name


def test_the_indexes_by_code_and_by_message_are_fresh() -> None:
    assert REFERENCE["stale"]() == [], "run `make docs`"


@pytest.mark.parametrize("rule", crash_rules(), ids=lambda rule: rule.name)
def test_every_section_of_a_page_says_something(rule: Rule[Crash]) -> None:
    parts = re.split(r"^(.+)\n-{3,}$", rule.page, flags=re.MULTILINE)
    sections = {title: text.strip() for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    for title, text in sections.items():
        assert len(text) >= 40, title
    # Something to type or to write, not only a thought.
    assert "``" in sections["How to fix it now"]
    assert sections["Sources"].count("https://") >= 1


def test_every_message_leads_to_rules_that_exist() -> None:
    names = {rule.name for rule in crash_rules()}
    unknown = sorted({(phrase.id, name) for phrase in phrases() for name in phrase.verdicts if name not in names})
    assert not unknown, f"src/necropsy/data/phrases.toml: verdicts of rules that do not exist: {unknown}"


def test_every_message_is_looked_for() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    unused = sorted({phrase.id for phrase in phrases() if phrase.verdicts and f'"{phrase.id}"' not in code})
    assert not unused, (
        f"no code asks for the phrases {unused}: use them in a rule (says(crash, ID, claim=...)), delete their rows, "
        "or give them a remark instead of verdicts"
    )


TRACEBACK = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 4, in <module>\n    main()\n{}\n'
ENDS = (
    ("{}", ()),
    (TRACEBACK, ("1",)),
    ("{}", ("134",)),
    ("{}", ("139",)),
    ("{}", ("127",)),
    ("{}", ("2",)),
    ("{}", ("-1073740791",)),
)
"""Texts and codes with which a message may be the cause of a death."""


def verdicts(phrase: Phrase) -> set[str]:
    """The verdicts that its example leads to: alone, as an exception, and before ends of several kinds."""
    found = set()
    raised = phrase.example if "Error: " in phrase.example else f"RuntimeError: {phrase.example}"
    for text, codes in ENDS:
        said = text.format(raised if text is TRACEBACK else phrase.example)
        document = explain(["-", *codes], crash_rules, stdin=BytesIO(said.encode())).document
        assert document is not None
        found |= {report.verdict.rule for report in document.reports if report.verdict is not None}
    return found


@pytest.mark.parametrize("phrase", phrases(), ids=[f"{i}-{one.id}" for i, one in enumerate(phrases())])
def test_an_example_leads_to_its_verdict(phrase: Phrase) -> None:
    if phrase.verdicts:
        assert verdicts(phrase) & set(phrase.verdicts), (
            f"src/necropsy/data/phrases.toml: the example of {phrase.id} leads to {sorted(verdicts(phrase))}"
        )
    else:
        # What is harmless alone is named by no rule that is about messages.
        assert verdicts(phrase) <= {"abort", "python-exception", "exit-status-only", "killed-by-signal", "invalid-read"}
