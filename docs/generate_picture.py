"""Make docs/images/report.png, the picture of a page that README.md shows: `python docs/generate_picture.py`.

It needs TensorFlow, a compiler, Debian's chromium and (for a small file) pngquant, and the packages of the extras
`test` and `examples`. The example is that of README.md; its temporary folder is shown as ``/home/ada/model``.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from necropsy import record, rules
from necropsy.demo.examples import catalogue
from necropsy.demo.workshop import Workshop
from necropsy.reports import html

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "report.png"
EXAMPLE = "deep-recursion-windows"
SHOWN = "/home/ada/model"
WIDTH, MARGIN = 1000, 24
"""Of the picture, in pixels: ``MARGIN`` below the last part that is shown."""


def page() -> str:
    """The page of the example's death."""
    examples = ROOT / "examples"
    book = catalogue(examples)
    example = next(one for one in book.example if one.name == EXAMPLE)
    if example.build is None:
        raise SystemExit(f"{EXAMPLE} has no op")
    library = Workshop(examples, sys.executable).library(example.build, book.build[example.build])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(examples / "scripts" / example.script, folder / "train.py")
        shutil.copy(library, folder / "op.so")
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        words = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", "report.json", "--"]
        subprocess.run(
            [*words, sys.executable, "train.py", "./op.so"],
            cwd=folder,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (example.stack, hard)),
        )
        text = (folder / "report.json").read_text(encoding="utf-8")
    text = text.replace(str(folder), SHOWN).replace(sys.executable, "python")
    return html.render(record.loads(text.encode()), rules.page)


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
