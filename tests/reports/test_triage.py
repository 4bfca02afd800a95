"""The bugs of a triage as text, Markdown and a page."""

from __future__ import annotations

import re

import msgspec
import pytest
from html_page import Page, elements
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ci_commands import COMMAND, HOSTILE

import triage_documents
from necropsy import serialize
from necropsy.model import Document, MergedFrame, MergedStack, Triage
from necropsy.reports import rendered
from necropsy.rules import page as rule_page

DOCUMENT = triage_documents.document()
FORMS = ("text", "markdown", "html", "json")


def triage_of(document: Document = DOCUMENT) -> Triage:
    assert document.triage is not None
    return document.triage


def with_changes(**changes: object) -> Document:
    return msgspec.structs.replace(DOCUMENT, triage=msgspec.structs.replace(triage_of(), **changes))


# ---------------------------------------------------------------- text


def test_the_text_begins_with_how_many_bugs_and_lists_them_by_deaths() -> None:
    lines = rendered(DOCUMENT, "text").splitlines()
    assert lines[0] == "necropsy: 400 deaths are 12 bugs: 1 new, 1 regression."
    assert lines[2] == "1. 135x null pointer in score_rows, called from train.py:5 score()"
    assert lines[3] == f"   {triage_of().groups[0].id} - 2026-11-02 to 2026-11-27 - 10 hosts, most on gpu-08 (18)"
    assert lines[4] == "   necropsy show runs/gpu-09/2026-11-000-0000.json"
    assert [int(one) for one in re.findall(r"^\d+\. (\d+)x", "\n".join(lines), re.MULTILINE)] == [
        one.count for one in triage_of().groups
    ]


def test_what_needs_a_decision_is_at_the_end() -> None:
    text = " ".join(rendered(DOCUMENT, "text").split())
    first, second = triage_of().suggested_merges[0].groups
    assert (
        f"These look like one bug: * a symbolised report of the same build names both `dot` necropsy triage merge {first} {second}"
        in text
    )
    assert "Skipped: 2 files * runs/gpu-02/cut.json: it is cut off in the middle of a string" in text
    assert "431 files read, 23 of them without a death. Next: `necropsy show FILE`" in text
    assert "regression: it was closed as fixed in 1.10 and is back" in text
    assert "from logs only" in text


def test_long_lists_are_cut_and_full_has_all() -> None:
    document = triage_documents.document(40, 900)
    text = " ".join(rendered(document, "text").split())
    assert "and 25 more bugs with " in text
    full = rendered(document, "text", full=True)
    assert len(re.findall(r"^\d+\. ", full, re.MULTILINE)) == 40
    assert "Why one bug: all died in `score_rows` of rows.so" in full
    assert "Fits worst (61 %): runs/" in full
    assert "Corrected by hand:" in full


def test_no_deaths() -> None:
    empty = triage_documents.of_groups([], Triage(files=7, without_death=7))
    assert rendered(empty, "text").splitlines() == [
        "necropsy: no deaths in 7 files.",
        "",
        "7 files read, 7 of them without a death.",
        "  * hosts: 12 texts do not say where they were written",
    ]
    for form in FORMS:
        assert rendered(empty, form)
    assert rendered(msgspec.structs.replace(empty, triage=None), "text") == ""


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit(width: int) -> None:
    for line in rendered(DOCUMENT, "text", width=width, full=True).splitlines():
        assert len(line) <= width or "necropsy show" in line or "necropsy triage" in line


def test_colour_is_only_added() -> None:
    colored = rendered(DOCUMENT, "text", color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == rendered(DOCUMENT, "text")
    assert "\x1b[1;31m" in colored


# ---------------------------------------------------------------- all forms


def test_the_document_survives_its_own_json() -> None:
    assert serialize.loads(rendered(DOCUMENT, "json").encode()) == DOCUMENT


def test_markdown_has_a_table_and_stays_below_its_limit() -> None:
    said = rendered(DOCUMENT, "markdown")
    assert said.startswith("### 400 deaths are 12 bugs: 1 new, 1 regression.\n")
    rows = [line for line in said.splitlines() if line.startswith("| ")]
    assert len(rows) == 13
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert len(rendered(triage_documents.document(300, 10_000), "markdown")) <= 60_000


@settings(max_examples=30)
@given(
    st.lists(
        st.sampled_from((*HOSTILE, "|", "`", "</textarea>", "<script>", "\ud800")) | st.text(max_size=8),
        min_size=1,
        max_size=4,
    ).map("".join)
)
def test_no_name_gets_out_of_any_form(text: str) -> None:
    document = triage_documents.hostile(text)
    for form in ("text", "markdown"):
        said = rendered(document, form, full=True)
        assert not COMMAND.search(said)
        assert all(char.isprintable() or char == "\n" for char in said)
    for line in rendered(document, "markdown").splitlines():
        if line.startswith("| 3 "):
            assert len(re.findall(r"(?<!\\)\|", line)) == 7
    html = rendered(document, "html")
    page = Page(html)
    assert not COMMAND.search(html.partition("</style>")[2].replace("::before", ""))
    assert len(page.scripts) == 1
    assert not any(
        name.startswith("on") or name in {"style", "src"} for _, attributes in page.elements for name in attributes
    )
    assert all((one.get("href") or "").startswith("#") for one in elements(page, "a"))


# ---------------------------------------------------------------- the page


def test_ten_thousand_deaths_make_a_page_below_three_megabytes() -> None:
    """Also with long names, many hosts and stacks that have little in common."""
    document = triage_documents.document(300, 10_000)
    long = "tensorflow::functor::" + "Very" * 60 + "LongName<float, Eigen::ThreadPoolDevice>"
    stacks = tuple(
        MergedStack(
            count=20 - number,
            frames=tuple(MergedFrame(function=f"{long}{number}{depth}", module="lib.so") for depth in range(30)),
        )
        for number in range(20)
    )
    hosts = {f"node-{number:05d}.cluster.example": 1 for number in range(2_000)}
    many = tuple(msgspec.structs.replace(one, stacks=stacks, hosts=hosts) for one in triage_of(document).groups)
    html = rendered(triage_documents.of_groups(many), "html", pages=rule_page)
    assert len(html.encode()) < 3_000_000
    assert html.count('<details class="bug"') == 300


def test_the_page_loads_nothing_and_has_all_parts() -> None:
    page = Page(rendered(DOCUMENT, "html", pages=rule_page))
    assert not {"img", "link", "iframe", "object", "image", "use"} & {name for name, _ in page.elements}
    assert "http" not in " ".join(
        str(value) for _, attributes in page.elements for value in attributes.values() if value
    )
    ids = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert {"bugs", "hosts", "versions", "modules", "merges", "skipped", "timeline", "filters"} <= set(ids)
    for one in elements(page, "a"):
        assert (one["href"] or "")[1:] in ids
    classes = [attributes.get("class") or "" for _, attributes in page.elements]
    assert {"spark", "days", "icicle flame", "heat", "treemap", "matrix"} <= set(classes)
    assert "Why one bug" in page.text
    assert sum(one == "icicle flame" for one in classes) == 12


def test_parts_without_contents_are_left_out() -> None:
    groups = tuple(
        msgspec.structs.replace(
            one,
            hosts={},
            versions={},
            stacks=(),
            trend=(),
            members=(),
            example=None,
            culprit=None,
            first=None,
            last=None,
        )
        for one in triage_of().groups
    )
    document = with_changes(groups=groups, suggested_merges=(), skipped=(), corrections=())
    page = Page(rendered(document, "html"))
    ids = {attributes.get("id") for _, attributes in page.elements}
    assert not {"hosts", "versions", "merges", "skipped", "timeline"} & ids
    assert "Calls that all deaths share" in page.text
    for form in FORMS:
        assert rendered(document, form, full=True)
