"""The programs of the page with example reports die as it says, and it shows what is reported today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from page_programs import Program, programs

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "explanation" / "example-reports.md"
EXAMPLES = programs(PAGE.read_text())
NAMESPACE = needs.namespace("--user", "--map-root-user", "--mount", then="mount -t tmpfs none /mnt")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="`necropsy run` is for Linux")


def parts(report: str) -> tuple[str, str]:
    """The headline and the first advice, each as one line, without what every run has anew."""
    text = re.sub(r"psm_\w+", "psm_", report.replace("```\n", ""))
    headline = re.search(r"^necropsy: (.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    advice = re.search(r"^  Do now +(.*?)(?=^\n|^  [A-Z][a-z])", text + "\n\n", re.MULTILINE | re.DOTALL)
    assert headline is not None, report
    assert advice is not None, report
    return " ".join(headline[1].split()), " ".join(advice[1].split())


def run(program: Program, folder: Path) -> str:
    """What its commands print in the end."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").symlink_to(sys.executable)
    (bin_folder / "necropsy").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m necropsy "$@"\n')
    (bin_folder / "necropsy").chmod(0o755)
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "NECROPSY_OUTPUT": str(folder / "kept")}
    place = program.written(folder)
    command = ["sh", "-ec", program.commands]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr


@needs.command("gcc")
@pytest.mark.parametrize(
    ("name", "headline", "advice", "also"),
    [
        (
            "damaged",
            "A Python object was damaged before Python used it",
            r"sensors\.py:16 passes to cam\.read_frame",
            r"Native code that is called through ctypes without argtypes:\s+cam\.read_frame at sensors\.py:16",
        ),
        pytest.param(
            "worker",
            r"load\.py:7, in load, crashed \(SIGBUS\): No shared memory was left",
            "--shm-size",
            r"\n  load\.py:13 then raised BrokenProcessPool: ",
            marks=NAMESPACE,
        ),
        (
            "abort",
            r"plan\.py:9, in plan, aborted: “Assertion failure: no zero-sized FFTs”",
            r"fft_plan \(argument 1 = 0\) before the call in plan\.py:9",
            r"calls give_up in your own native module libfft\.so, fft_plan\.c:6\n",
        ),
    ],
)
def test_the_program_dies_as_the_page_says(name: str, headline: str, advice: str, also: str, tmp_path: Path) -> None:
    printed = run(EXAMPLES[name], tmp_path)
    said = parts(printed)
    assert re.search(headline, said[0])
    assert re.search(advice, said[1])
    assert re.search(also, printed)
    assert said == parts(EXAMPLES[name].shown), "run `make outputs`"


def test_every_example_shows_a_short_report() -> None:
    assert list(EXAMPLES) == ["recursion", "tensorflow", "damaged", "worker", "abort", "memory"]
    for one in EXAMPLES.values():
        headline, advice = parts(one.shown)
        report = one.shown[one.shown.index("necropsy: ") :].replace("```\n", "")
        assert len(report.rstrip().splitlines()) <= 20, one.name
        assert headline, one.name
        assert advice, one.name
