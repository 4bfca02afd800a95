"""Chromium without a window, for tests of the pages; where it or axe-core is missing, tests skip: ``browser.needed``."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

WIDTHS = (390, 1280)
"""A phone and a desktop, in CSS pixels."""
_LONG_MS = 120_000.0
"""Ends what hangs, and decides nothing else: Playwright's own five seconds are too few on a busy machine."""
_EXECUTABLE = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)


def _lacking() -> str:
    """What keeps pages from being looked at here; empty where nothing does."""
    absent = [name for name in ("playwright", "axe_playwright_python") if importlib.util.find_spec(name) is None]
    absent += [] if _EXECUTABLE else ["chromium"]
    return f"not installed: {', '.join(absent)}" if absent else ""


reason = _lacking()
needed = pytest.mark.skipif(bool(reason), reason=reason or "chromium is here")


@contextmanager
def opened() -> Iterator[Any]:
    """A browser of Playwright. Its sandbox does not start as root or in most containers; it only sees our own files."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_EXECUTABLE, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def violations(page: Any, *rules: str) -> list[str]:
    """What axe-core finds wrong with a page as it is now: the rule, what it asks for, and the first element.

    ``rules``: check only these.
    """
    from axe_playwright_python.sync_playwright import Axe

    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    found = Axe().run(page, options=options).response["violations"]
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in found]


def wait_for_text(page: Any, selector: str, text: str) -> None:
    """Wait until the element contains ``text``.

    Not ``wait_for_function``: where its first look fails, it evaluates a string in the page, which our pages' content
    security policy refuses.
    """
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_contain_text(text, timeout=_LONG_MS)


def wait_for_count(page: Any, selector: str, count: int) -> None:
    """Wait until so many elements match. See ``wait_for_text``."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(count, timeout=_LONG_MS)
