"""Puts real output into README.md: the report of one example, and the table of the benchmark.

    python docs/generate_readme.py          (make readme)

The report is that of the recursion op under a stack of 2,000,000 bytes, as Windows' python.exe has it. TensorFlow's own
log lines are left out: the block shows what necropsy printed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
EXAMPLE = "python examples/scripts/deep_recursion.py"
STACK_KIB = 1953  # 2,000,000 bytes, whole KiB


def between(text: str, name: str, body: str) -> str:
    """The text with what stands between the markers of ``name`` replaced."""
    pattern = re.compile(rf"(<!-- {name}: begin[^\n]*-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"README.md has no block {name}")
    return pattern.sub(lambda match: f"{match[1]}{body}\n{match[2]}", text)


def report() -> str:
    """What necropsy prints for the example, as it stands in its --output folder."""
    with tempfile.TemporaryDirectory() as folder:
        python = sys.executable
        command = [python, "-m", "necropsy", "run", "--output", folder, "--", "python", *EXAMPLE.split()[1:]]
        line = f'ulimit -S -s {STACK_KIB}; PATH="{Path(python).parent}:$PATH" exec "$@"'
        subprocess.run(["bash", "-c", line, "-", *command], cwd=ROOT, capture_output=True, check=False)
        texts = sorted(Path(folder).rglob("*.txt"))
        if not texts:
            raise SystemExit("the example did not crash: no report")
        text = texts[0].read_text().rstrip()
    return text.replace(str(ROOT) + "/", "")


def main() -> None:
    text = README.read_text()
    shell = f"$ ulimit -s {STACK_KIB}\n$ necropsy run {EXAMPLE}\n"
    text = between(text, "output", f"```\n{shell}{report()}\n```")
    if RESULTS.exists():
        table = RESULTS.read_text().split("\n", 2)[2].strip()
        text = between(text, "bench", table)
    README.write_text(text)


if __name__ == "__main__":
    main()
