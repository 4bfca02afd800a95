"""What ``necropsy reduce`` leaves of programs that die, beside what a person and other reducers leave.

    python benchmarks/reduce.py [--only NAME,NAME] [--budget 600] [--others 300] [--out benchmarks/RESULTS.md]

Each program of ``reduce_programs`` is built in a folder of its own, reduced there, and the result run once more under
``necropsy run``. pysource-minimize gets the programs of one file, and decides by the same trials. shrinkray starts
a test for each of its trials, which runs ``necropsy run`` and compares the signatures; ``--shrinkray`` names its
command: ``"shrinkray --ui=basic --input-type=arg"``, or ``shrinkray`` alone for the versions for Python 3.11 and older. ``--others`` is the time that each of them has for one program; 0 leaves them out.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import results
from reduce_programs import SUBJECTS, Subject

from necropsy import serialize
from necropsy.model import Document
from necropsy.reduce.command import understood
from necropsy.reduce.criterion import Death
from necropsy.reduce.program import Program
from necropsy.reduce.runner import Runner
from necropsy.reduce.statements import count_statements
from necropsy.reduce.workspace import Workspace

TITLE = "# What is left of a program that dies"
NECROPSY = [sys.executable, "-m", "necropsy"]
MOST_RUNS = 60
HEAD = (
    "| program | statements | left | by hand | trials | seconds | trials/s | culprit there | dies the same "
    "| folder untouched | pysource-minimize | shrinkray |"
)


@dataclass
class Row:
    """What was measured of one program."""

    subject: Subject
    before: int
    left: int
    by_hand: int
    trials: int
    seconds: float
    per_second: float
    culprit: bool
    same: bool
    untouched: bool
    rate: float
    pysource: str = "-"
    shrinkray: str = "-"

    def cells(self) -> str:
        name = f"{self.subject.name}: {self.subject.about}"
        said = ["yes" if one else "**no**" for one in (self.culprit, self.same, self.untouched)]
        numbers = (self.before, f"{self.left} ({self.left / self.before:.0%})", self.by_hand, self.trials)
        cells = (name, *numbers, f"{self.seconds:.0f}", f"{self.per_second:.1f}", *said, self.pysource, self.shrinkray)
        return f"| {' | '.join(map(str, cells))} |"

    def met(self) -> bool:
        few = self.subject.most_trials is None or self.trials <= self.subject.most_trials
        small = self.left <= 0.4 * self.before and self.left <= 1.3 * self.by_hand
        return few and small and self.culprit and self.same and self.untouched


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def statements(*paths: Path) -> int:
    return count_statements(Program({path.name: path.read_bytes() for path in paths}, paths[0].name))


def reduce(subject: Subject, folder: Path, budget: float) -> tuple[Row, Document]:
    """The row of one program. What is left is in the folder ``result`` beside the program's."""
    work, output, file = folder / "work", folder / "result", folder / "reduction.json"
    subject.build(work)
    before = hashes(work)
    words = [
        *NECROPSY,
        "reduce",
        "--yes",
        "--runs",
        str(MOST_RUNS),
        "--budget",
        str(budget),
        "--json",
        file,
        "--output",
        output,
    ]
    began = time.monotonic()
    done = subprocess.run(
        [*words, "--", sys.executable, *subject.arguments], cwd=work, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    if done.returncode != 0:
        raise SystemExit(f"{subject.name}: {done.stderr[-2000:]}")
    document = serialize.loads(file.read_bytes())
    reduction = document.reduction
    assert reduction is not None
    text = "".join(path.read_text() for path in output.rglob("*.py") if "other-crashes" not in path.parts)
    row = Row(
        subject=subject,
        before=reduction.statements_before,
        left=reduction.statements,
        by_hand=statements(subject.by_hand),
        trials=reduction.trials,
        seconds=seconds,
        per_second=reduction.trials_per_second or 0,
        culprit=subject.culprit in text,
        same=dies(output, list(reduction.command), folder / "again.json", reduction.signature),
        untouched=hashes(work) == before,
        rate=min(reduction.rate, reduction.rate_before),
    )
    return row, document


def dies(folder: Path, command: list[str], file: Path, signature: str | None) -> bool:
    """The command dies with this signature, in one of some runs."""
    for _ in range(MOST_RUNS):
        subprocess.run(
            [*NECROPSY, "run", "--quiet", "--json", file, "--", *command], cwd=folder, capture_output=True, check=False
        )
        reports = json.loads(file.read_text())["reports"]
        if reports:
            return bool(reports[0]["signature"] == signature)
    return False


# ---------------------------------------------------------------- other reducers


class TimeIsUpError(Exception):
    pass


def by_pysource(subject: Subject, folder: Path, wanted: Death, seconds: float) -> str:
    """What pysource-minimize leaves, and in how many trials; its candidates run in our trials."""
    if importlib.util.find_spec("pysource_minimize") is None:
        return "not installed"
    work = folder / "work"
    if len(list(work.rglob("*.py"))) > 1:
        return "several files"
    from pysource_minimize import CouldNotMinimize, minimize  # type: ignore[import-not-found,unused-ignore]  # optional

    workspace = Workspace()
    command = understood([sys.executable, *subject.arguments], work)
    original = Program(workspace.copy(work).files, command.script, command.arguments)
    runner = Runner(command, workspace)
    best, trials, began = original, 0, time.monotonic()

    def checker(text: str) -> bool:
        nonlocal best, trials
        candidate = original.with_file(command.script, text.encode())
        if time.monotonic() - began > seconds:
            raise TimeIsUpError
        trials += 1
        accepted = wanted.is_same(runner.run(candidate, 10).death)
        if accepted and count_statements(candidate) <= count_statements(best):
            best = candidate
        return accepted

    note = ""
    try:
        minimize(original.files[command.script].decode(), checker)
    except TimeIsUpError:
        note = ", time is up"
    except CouldNotMinimize as error:
        note = f", {error}"
    finally:
        runner.close()
        workspace.close()
    return f"{count_statements(best)} / {trials} / {time.monotonic() - began:.0f} s{note}"


TEST = """
import json, os, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as folder:
    subprocess.run(["cp", "-r", {work!r}, os.path.join(folder, "copy")], check=True)
    with open(sys.argv[1] if sys.argv[1:] else 0, "rb") as file, open(os.path.join(folder, "copy", {script!r}), "wb") as into:
        into.write(file.read())
    words = [{python!r}, "-m", "necropsy", "run", "--quiet", "--timeout", "10", "--json", os.path.join(folder, "r.json"), "--"]
    subprocess.run(words + {words!r}, cwd=os.path.join(folder, "copy"), capture_output=True)
    with open({counter!r}, "a") as file:
        file.write(".")
    with open(os.path.join(folder, "r.json")) as file:
        reports = json.load(file)["reports"]
    sys.exit(not (reports and reports[0]["signature"] == {signature!r}))
"""


def by_shrinkray(subject: Subject, folder: Path, signature: str, seconds: float, command: list[str]) -> str:
    """What shrinkray leaves of the script, with a test that runs ``necropsy run``."""
    work, script, counter = folder / "work", folder / "shrunk.py", folder / "count"
    if len(list(work.rglob("*.py"))) > 1:
        return "several files"
    script.write_bytes((work / subject.script).read_bytes())
    test = folder / "test.py"
    words = [sys.executable, *subject.arguments]
    text = TEST.format(
        work=str(work),
        script=subject.script,
        python=sys.executable,
        words=words,
        counter=str(counter),
        signature=signature,
    )
    test.write_text(f"#!{sys.executable}{text}")
    test.chmod(0o755)
    began = time.monotonic()
    note = ""
    try:
        subprocess.run(
            [*command, "--timeout", "20", "--parallelism", "2", test, script],
            cwd=folder,
            capture_output=True,
            timeout=seconds,
            check=True,
        )
    except subprocess.TimeoutExpired:
        note = ", time is up"
    except (OSError, subprocess.CalledProcessError) as error:
        return f"failed: {error}"
    trials = counter.stat().st_size if counter.exists() else 0
    made = script.with_name(f"{script.name}.reduced")  # of the versions that do not edit the file in its place
    script = made if made.exists() else script
    return f"{statements(script)} / {trials} / {time.monotonic() - began:.0f} s{note}"


# ---------------------------------------------------------------- the table


def section(rows: list[Row], how: str) -> str:
    share = sum(row.left / row.before for row in rows) / len(rows)
    hand = max(row.left / row.by_hand for row in rows)
    lines = [
        TITLE,
        "",
        how,
        "",
        HEAD,
        f"|{'---|' * HEAD.count(' | ')}---|",
        *(row.cells() for row in rows),
        "",
        f"On average {share:.0%} of the statements are left; at most {hand:.1f} times what a person leaves.",
        "Of the other reducers: statements left / trials / seconds.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--budget", type=float, default=600)
    parser.add_argument("--others", type=float, default=300)
    parser.add_argument("--shrinkray", default="", help="the command that starts it")
    parser.add_argument("--keep", type=Path, help="a folder for the results")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    names = wanted.only.split(",") if wanted.only else [one.name for one in SUBJECTS]
    rows = []
    base = wanted.keep or Path(tempfile.mkdtemp(prefix="necropsy-bench-"))
    for subject in (one for one in SUBJECTS if one.name in names):
        folder = base / subject.name
        folder.mkdir(parents=True)
        row, document = reduce(subject, folder, wanted.budget)
        death = Death.of(document.reports[0])
        if wanted.others and death is not None and not subject.tensorflow and row.rate >= 1:
            row.pysource = by_pysource(subject, folder, death, wanted.others)
            if wanted.shrinkray:
                words = shlex.split(wanted.shrinkray)
                row.shrinkray = by_shrinkray(subject, folder, death.signature, wanted.others, words)
        rows.append(row)
        print(row.cells(), "" if row.met() else "  <- a goal is missed", flush=True)
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    words = re.sub(r" --(out|keep|shrinkray) \S+", "", " ".join(["", *sys.argv[1:]]))
    how = (
        f"`python benchmarks/reduce.py{words}`, {when}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"CPython {platform.python_version()}."
    )
    text = section(rows, how)
    print(text)
    if wanted.out is not None:
        results.put(wanted.out, text)
    return int(not all(row.met() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
