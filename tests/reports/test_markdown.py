"""The report to paste into an issue: golden pieces, its limit, and hostile text that stays text."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import CASES, RECURSION, document

from necropsy.model import Diagnosis, Evidence, Report
from necropsy.reports import markdown

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    path = GOLDEN / f"{name}.md"
    rendered = markdown.render(CASES[name])
    if os.environ.get("NECROPSY_GOLDEN") == "write":
        path.write_text(rendered)
    assert rendered == path.read_text()


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("`Walk` in deep.so", "`Walk` in deep.so"),
        ("a_b *c* __init__", "a_b \\*c\\* \\_\\_init\\_\\_"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("@octocat #12", "@<!-- -->octocat #<!-- -->12"),
        ("[x](javascript:y)", "\\[x\\](javascript:y)"),
        ("a | b", "a \\| b"),
        ("1. one", "1\\. one"),
        ("- one", "\\- one"),
        ("0.49 s - x", "0.49 s - x"),
        ("a\n# b", "a #<!-- --> b"),
        ("a\x1b[31m\u202eb", "a\\\\x1b\\[31m\\\\u202eb"),
    ],
)
def test_prose_is_shown_as_it_is(text: str, rendered: str) -> None:
    assert markdown.prose(text) == rendered


@given(st.text(alphabet=st.sampled_from("`~ax\n|"), max_size=40))
def test_nothing_ends_a_fence_from_inside(content: str) -> None:
    block = markdown.fence(content.split("\n")).split("\n")
    opening = re.match(r"`+", block[0])
    assert opening is not None
    assert block[-1] == opening.group()
    assert not any(re.match(rf"\s*{opening.group()}", line) for line in block[1:-1])


@given(st.text(alphabet=st.sampled_from("` ax"), max_size=30))
def test_nothing_ends_a_span_of_code_from_inside(content: str) -> None:
    span = markdown.code(content)
    ticks = re.match(r"`+", span)
    assert ticks is not None
    assert span.endswith(ticks.group())
    inside = span[len(ticks.group()) : -len(ticks.group())]
    assert ticks.group() not in re.findall(r"`+", inside)


@pytest.mark.parametrize("limit", [500, 3_000, 10_000, markdown.LIMIT])
def test_there_is_room_for_it_in_an_issue(limit: int) -> None:
    crash = msgspec.structs.replace(RECURSION.crash, log_tail="line\n" * 5000)
    report = msgspec.structs.replace(RECURSION, crash=crash)
    rendered = markdown.render(document(*[report] * 6), limit=limit)
    assert len(rendered) <= limit
    assert "called itself 104,652 times" in rendered[:500]
    assert len(re.findall(r"^\s*`{3,}", rendered, re.MULTILINE)) % 2 == 0, "every fence is closed"


def test_a_table_keeps_its_columns() -> None:
    verdict = RECURSION.verdict
    assert verdict is not None
    hostile = msgspec.structs.replace(verdict, culprit=None, summary="`a|b`\nc")
    rendered = markdown.render(msgspec.structs.replace(RECURSION, verdict=hostile))
    for row in re.findall(r"^\|.*$", rendered, re.MULTILINE):
        assert len(re.findall(r"(?<!\\)\|", row)) == 3


@given(st.text(max_size=60))
@settings(max_examples=60)
def test_no_text_becomes_an_element(text: str) -> None:
    verdict = Diagnosis(
        rule="x",
        title="t",
        summary=text or "s",
        severity="error",
        confidence="likely",
        evidence=(Evidence(claim="c", seen=text, where=text),),
    )
    rendered = markdown.render(Report(crash=RECURSION.crash, verdict=verdict))
    outside = re.sub(r"^(`{3,}).*?^\1", "", rendered, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", outside.replace("\\`", ""))
    elements = set(re.findall(r"<(?!!--)/?([A-Za-z]+)", outside))
    assert elements <= {"details", "summary"}
