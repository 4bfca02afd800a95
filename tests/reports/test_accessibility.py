"""The pages in a browser: axe-core has nothing against them, nothing is loaded, and all can be reached and copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from html_page import Page
from profile_examples import TRAINING
from report_examples import RECURSION, UNKNOWN, document, with_lock_circle, with_many_threads

import browser
import triage_documents
from necropsy.model import Diagnosis, Document, Evidence, Fix, NotTried, Report, Subject
from necropsy.reports import listing, rendered
from necropsy.rules import page as rule_page

pytestmark = browser.needed

WORKERS = tuple(
    msgspec.structs.replace(
        RECURSION, pid=5000 + place, crash=msgspec.structs.replace(RECURSION.crash, pid=5000 + place)
    )
    for place in range(99)
)
OVERLAP = Diagnosis(
    rule="env-duplicate-openmp",
    title="t",
    summary="`libssl.so.3` is there twice, in two versions.",
    severity="warning",
    confidence="certain",
    evidence=(Evidence(claim="the library", seen="/usr/lib/libssl.so.3", where="the files"),),
    fixes=(Fix(text="Remove one of them.", command="pip uninstall one"),),
)
DOCTOR = msgspec.structs.replace(
    document(),
    kind="doctor",
    subject=Subject(kind="environment", path="/usr/bin/python3", text="Python 3.11.2"),
    findings=(OVERLAP, msgspec.structs.replace(OVERLAP, severity="error", rule="env-no-such-rule")),
    not_tried=(NotTried(rule="env-cuda-driver-too-old", reason="there is no GPU"),),
)
ROWS = [
    listing.ListingRow("20261121T004512Z-9f86d081", "9f86d081", None, document(RECURSION), number=1, seen=3),
    listing.ListingRow("20261121T004510Z-00000002", "00000002", None, None, "damaged", number=2),
]


def _html(subject: Document | Report) -> str:
    return rendered(subject if isinstance(subject, Document) else document(subject), "html", pages=rule_page)


PAGES: dict[str, Callable[[], str]] = {
    "crash": lambda: _html(RECURSION),
    "deadlock": lambda: _html(with_lock_circle()),
    "threads": lambda: _html(with_many_threads(6, calls=4)),
    "100-workers": lambda: _html(document(RECURSION, *WORKERS, UNKNOWN)),
    "healthy": lambda: _html(document()),
    "doctor": lambda: _html(DOCTOR),
    "profile": lambda: _html(TRAINING),
    "triage": lambda: rendered(triage_documents.document(3, 40), "html"),
    "list": lambda: listing.as_html(ROWS),
    "empty-list": lambda: listing.as_html([]),
}


MORE_PAGES: dict[str, Callable[[], str]] = {
    "some-bugs": lambda: _html(triage_documents.document()),
    "many-bugs": lambda: _html(triage_documents.document(60, 900)),
}
"""Made when they are shown: every worker of pytest loads this module, also those that have none of its tests."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.opened() as one:
        yield one


@pytest.fixture
def shown(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """Shows one of ``PAGES``, as a file; afterwards nothing else may have been loaded, and no error logged."""
    context = chromium.new_context()
    page = context.new_page()
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))

    def show(name: str) -> Any:
        path = tmp_path / f"{name}.html"
        path.write_text((PAGES | MORE_PAGES)[name](), encoding="utf-8")
        page.goto(path.as_uri())
        return page

    yield show
    context.close()
    assert len(requests) == 1
    assert errors == []


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(name: str, shown: Any) -> None:
    """Everything is unfolded first: what is hidden is not checked."""
    page = shown(name)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    for width in browser.WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing has to be scrolled sideways"
        assert browser.violations(page) == [], width
    page.emulate_media(color_scheme="dark")
    assert browser.violations(page, "color-contrast") == [], "dark: only the colours differ"


def test_axe_would_find_something(shown: Any) -> None:
    page = shown("crash")
    page.evaluate("document.documentElement.lang = ''; document.querySelector('h1').style.color = '#ddd'")
    assert {one.partition(":")[0] for one in browser.violations(page)} >= {"html-has-lang", "color-contrast"}


def test_the_copy_is_the_markdown(shown: Any) -> None:
    page = shown("crash")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click("text=Copy as Markdown")
    browser.wait_for_text(page, "#copied", "Copied.")
    assert page.evaluate("window.copied") == rendered(document(RECURSION), "markdown")
    assert Page(PAGES["crash"]()).markdown.strip() == rendered(document(RECURSION), "markdown").strip()


def test_without_a_clipboard_the_text_is_selected(shown: Any) -> None:
    page = shown("crash")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.evaluate("document.execCommand = () => false")
    page.click("text=Copy as Markdown")
    assert "Ctrl+C" in page.text_content("#copied")
    assert page.evaluate("document.activeElement.id") == "markdown"
    assert page.evaluate("document.activeElement.selectionEnd") > 1000


def test_a_link_opens_what_it_leads_to(shown: Any) -> None:
    page = shown("crash")
    assert not page.is_visible("text=How to be sure")
    page.click("a.pill.rule")
    assert page.is_visible("text=How to be sure")


def test_the_keyboard_gets_past_the_head_of_the_page_and_shows_where_it_is(shown: Any) -> None:
    page = shown("deadlock")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0, "visible once it has the focus"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


# ---------------------------------------------------------------- the page of a triage


def _titles(page: Any) -> list[str]:
    return [one for one in page.locator(".bug:visible b").all_text_contents() if one]


def test_bugs_are_filtered_without_a_server(shown: Any) -> None:
    page = shown("some-bugs")
    assert len(_titles(page)) == 12
    page.fill("#f-text", "EVICT data.py")
    assert _titles(page) == ["evict calls itself without end, called from data.py:11 batches()"]
    assert page.text_content("#f-said") == "1 of 12 bugs, 42 deaths"
    assert page.evaluate("document.querySelectorAll('.treemap .kept').length") == 1, "the pictures show only that one"
    page.click("text=Reset")
    browser.wait_for_count(page, ".bug:not([hidden])", 12)
    page.select_option("#f-status", "regression")
    assert [one.partition(" failed")[0] for one in _titles(page)] == ["CHECK"]
    page.select_option("#f-status", "")
    page.select_option("#f-host", label=triage_documents.BAD_HOST)
    assert 0 < len(_titles(page)) < 12
    page.select_option("#f-host", "")
    page.select_option("#f-order", "first")
    browser.wait_for_text(page, ".bug b >> nth=0", "score() (train.py:17)")


def test_a_link_to_a_bug_opens_it_although_the_list_is_long(shown: Any) -> None:
    page = shown("many-bugs")
    assert page.evaluate("document.querySelectorAll('.bug:not([hidden])').length") == 25
    page.evaluate("location.hash = '#bug60'")
    browser.wait_for_count(page, "#bug60[open]:not([hidden])", 1)
    page.click("text=Show all 60 bugs")
    assert page.evaluate("document.querySelectorAll('.bug:not([hidden])').length") == 60
    page.click("svg.heat rect[data-bug=bug5] >> nth=0")
    assert page.evaluate("document.getElementById('bug5').open"), "a cell leads to its bug"
