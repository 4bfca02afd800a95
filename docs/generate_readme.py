"""Puts real output into README.md: the report of one example, and the table of the benchmark.

    python docs/generate_readme.py          (make readme)

The example is the op that recurses 100,000 times, under a stack of 2,000,000 bytes, as Windows' python.exe has it.
TensorFlow's own log lines are left out: the block shows the short report that necropsy printed, with the temporary
folder as ``~``.
"""

from __future__ import annotations

import re
from pathlib import Path

import example_crash

from necropsy import store
from necropsy.reports import brief

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"


def between(text: str, name: str, body: str) -> str:
    """The text with what stands between the markers of ``name`` replaced."""
    pattern = re.compile(rf"(<!-- {name}: begin[^\n]*-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"README.md has no block {name}")
    return pattern.sub(lambda match: f"{match[1]}{body}\n{match[2]}", text)


def report() -> tuple[str, str]:
    """The command as a user would type it, and what necropsy prints for it."""
    document = example_crash.document("~")
    shown = brief.render(document, again=f"necropsy show {store.short(document.id)} --full").strip()
    # The first screen has room for 15 lines.
    short = re.sub(r"^  For now .*\n(?:.*\n)*?(?=  Full report)", "  [...]\n", shown, flags=re.MULTILINE)
    return " ".join(("python", *example_crash.PROGRAM)), short


def main() -> None:
    text = README.read_text()
    command, printed = report()
    text = between(text, "output", f"```\n$ necropsy run {command}\n{printed}\n```")
    if RESULTS.exists():
        first = RESULTS.read_text().partition("\n# ")[0]
        table = first.split("\n", 2)[2].strip()
        text = between(text, "bench", table)
    README.write_text(text)


if __name__ == "__main__":
    main()
