"""The same texts as people paste them: out of mails, browsers, containers' logs, without their indentation."""

from __future__ import annotations

import html
from collections.abc import Callable
from io import BytesIO

import pytest

from necropsy import explanation
from necropsy.rules import crash_rules
from test_corpus import Text, crashes, texts, verdict

EVERY = 3
"""Every third text is pasted in each way, each way beginning with another one."""
RIGHT = 0.97


def _each(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.split("\n"))


WAYS: dict[str, Callable[[str], str]] = {
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "a mail's quotation": lambda text: _each("> ", text),
    "a code block by indentation": lambda text: _each("    ", text),
    "a container's log": lambda text: _each("2024-05-06T07:08:09.123456789Z stderr F ", text),
    "docker compose": lambda text: _each("trainer-1  | ", text),
    "the source of a page": html.escape,
    "empty lines between": lambda text: text.replace("\n", "\n\n"),
    "no-break spaces": lambda text: text.replace("  ", "\u00a0 "),
    "blanks at the ends": lambda text: text.replace("\n", "   \n"),
    "no indentation": lambda text: "\n".join(line.strip() for line in text.split("\n")),
}


def _rule(pasted: str, text: Text) -> str | None:
    explained = explanation.explain(["-", *text.inputs], crash_rules, stdin=BytesIO(pasted.encode()))
    reports = explained.document.reports if explained.document is not None else ()
    return reports[0].verdict.rule if reports and reports[0].verdict is not None else None


@pytest.mark.parametrize("way", WAYS)
def test_a_pasted_text_says_the_same(way: str) -> None:
    first = list(WAYS).index(way) % EVERY
    known = [text for text in crashes() if (found := verdict(text)) is not None and found.rule in text.accepted]
    sample = known[first::EVERY]
    lost = [
        f"{text.name}: {rule}" for text in sample if (rule := _rule(WAYS[way](text.text), text)) not in text.accepted
    ]
    assert len(sample) - len(lost) >= RIGHT * len(sample), "\n".join(lost)
    healthy = [text for text in texts() if not text.rule][first::EVERY]
    assert not [text.name for text in healthy if _rule(WAYS[way](text.text), text) is not None]
