"""Make docs/images/report.png, the picture of a page that README.md shows: `python docs/generate_picture.py`.

It needs TensorFlow, a compiler, Debian's chromium and (for a small file) pngquant, and the packages of the extras
`test` and `examples`. The example is that of README.md; its temporary folder is shown as ``/home/ada/model``.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import example_crash
from playwright.sync_api import sync_playwright

from necropsy.reports import html
from necropsy.rules import page as rule_page

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "report.png"
SHOWN = "/home/ada/model"
WIDTH, MARGIN = 1000, 24
"""Of the picture, in pixels: ``MARGIN`` below the last part that is shown."""


def page() -> str:
    """The page of the example's death."""
    return html.render(example_crash.document(SHOWN), rule_page)


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        file = Path(name) / "report.html"
        file.write_text(page(), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme="light")
        shown.goto(file.as_uri())
        end = shown.evaluate("document.querySelector('.ring').getBoundingClientRect().bottom")
        shown.screenshot(
            path=PICTURE, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": end + MARGIN}, scale="css"
        )
        browser.close()
    if shutil.which("pngquant") is not None:
        subprocess.run(["pngquant", "--force", "--output", PICTURE, "64", PICTURE], check=True)


if __name__ == "__main__":
    main()
