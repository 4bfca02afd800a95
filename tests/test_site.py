"""The documentation as a site: it builds without a warning, loads nothing from the network, and no page is lost."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
"""What a browser loads by itself; a link that a reader follows (`<a href>`) is none."""


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs the extra `docs` (mkdocs)")
def test_the_site_builds_strictly_and_loads_nothing_from_the_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = sorted(tmp_path.rglob("*.html"))
    assert len(built) >= len(PAGES)
    assert [found for page in built for found in _FETCHED.findall(page.read_text(encoding="utf-8"))] == []


def test_what_a_page_would_load_is_recognised() -> None:
    assert _FETCHED.search('<link rel="stylesheet" href="https://fonts.example/css">')
    assert _FETCHED.search("<script src=//cdn.example/x.js></script>")
    assert not _FETCHED.search('<a href="https://docs.python.org">')


@pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="needs the extra `docs` (PyYAML)")
def test_yaml_in_the_pages_is_yaml() -> None:
    yaml = importlib.import_module("yaml")
    blocks = [
        (page.name, block)
        for page in PAGES
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ]
    assert len(blocks) > 4
    for name, block in blocks:
        assert yaml.safe_load(block), name


def test_each_page_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r": ([\w/-]+\.md)$", config, re.MULTILINE))
    there = {page.relative_to(DOCS).as_posix() for page in PAGES}
    assert listed <= there
    # The pages of these two folders are listed by their index.
    assert {name for name in there - listed if not name.startswith(("rules/", "explanation/decisions/"))} == set()
    for folder in ("rules", "explanation/decisions"):
        index = (DOCS / folder / "index.md").read_text(encoding="utf-8")
        assert {page.name for page in (DOCS / folder).glob("*.md")} - {"index.md"} <= set(
            re.findall(r"\(([\w-]+\.md)\)", index)
        )


def test_links_lead_somewhere() -> None:
    """Of the pages that test_manual does not look at."""
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.glob("rules/*.md")]
    links = [(page, *link) for page in pages for link in links_of(page)]
    assert len(links) > 130
    assert [(page.name, target, anchor) for page, target, anchor in links if not leads(page, target, anchor)] == []


def links_of(page: Path) -> list[tuple[str, str]]:
    """(target, anchor) of each link to a file or a heading; code is no link."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    found = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text)
    return [(target, anchor) for target, anchor in found if "://" not in target]


def leads(page: Path, target: str, anchor: str) -> bool:
    other = page.parent / target if target else page
    return other.exists() and (not anchor or anchor in anchors(other))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_a_list_begins_after_an_empty_line() -> None:
    """GitHub takes a list that follows a line of text for a list, the site does not."""
    assert [f"{page.relative_to(ROOT)}:{line}" for page in PAGES for line in runs_on(page)] == []


def runs_on(page: Path) -> Iterator[int]:
    item = re.compile(r"(?:[-*]|\d+\.) ")
    before, code = "", False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            code = not code
        of_text = before.strip() and not before.startswith((" ", "#")) and not item.match(before)
        if not code and item.match(line) and of_text:
            yield number
        before = line
