"""Puts real output into README.md: the report of one example, and the table of the benchmark.

    python docs/generate_readme.py          (make readme)

The example is the op that recurses 100,000 times, under a stack of 2,000,000 bytes, as Windows' python.exe has it.
TensorFlow's own log lines are left out: the block shows the short report that necropsy printed, with the temporary
folder as ``~``.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from necropsy import record, store
from necropsy.demo.examples import catalogue
from necropsy.demo.workshop import Workshop
from necropsy.reports import brief

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
EXAMPLE = "deep-recursion-windows"


def between(text: str, name: str, body: str) -> str:
    """The text with what stands between the markers of ``name`` replaced."""
    pattern = re.compile(rf"(<!-- {name}: begin[^\n]*-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"README.md has no block {name}")
    return pattern.sub(lambda match: f"{match[1]}{body}\n{match[2]}", text)


def report() -> tuple[str, str]:
    """The command as a user would type it, and what necropsy prints for it."""
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
        words = ["python", "train.py", "./op.so"]
        program = [sys.executable, *words[1:]]
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        subprocess.run(
            [sys.executable, "-m", "necropsy", "run", "--output", str(folder / "out"), "--", *program],
            cwd=folder,
            capture_output=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (example.stack, hard)),
        )
        written = sorted((folder / "out").rglob("report.json"))
        document = record.loads(written[0].read_bytes()) if written else None
        if document is None or not document.reports:
            raise SystemExit("the example did not crash: no report")
        again = f"necropsy show {store.short(document.id)} --full"
        shown = brief.render(document, again=again).replace(f"{folder}/", "~/").strip()
        # The first screen has room for 15 lines.
        return " ".join(words), re.sub(
            r"^  For now .*\n(?:.*\n)*?(?=  Full report)", "  [...]\n", shown, flags=re.MULTILINE
        )


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
