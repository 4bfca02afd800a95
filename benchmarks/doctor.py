"""How long doctor takes, and how many broken environments it names, beside `pip check` and the scripts that print lists.

    python benchmarks/doctor.py [--runs 5] [--out benchmarks/RESULTS.md]          (make bench)

The broken environments are those that the tests in tests/doctor build: whenever one of them has doctor examine an
environment and an error or a warning is found, `pip check` is asked about the same environment. It has named the problem
where it ends with 1 and its output holds the name of a package that the finding is about; nothing else is wrong there.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import pytest
import results

from necropsy.model import Diagnosis, Document

TESTS = Path(__file__).parent.parent / "tests"
TITLE = "# Doctor beside other checks"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@dataclass
class Timed:
    """A tool that is run on the environment of this interpreter; the best run counts."""

    name: str
    command: Sequence[str]
    wall: float = float("inf")
    cpu: float = float("inf")

    def run(self) -> None:
        before, start = _cpu(), time.monotonic()
        subprocess.run(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        self.wall = min(self.wall, time.monotonic() - start)
        self.cpu = min(self.cpu, _cpu() - before)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tools() -> list[Timed]:
    python = sys.executable
    found = [
        Timed("`necropsy doctor`", [python, "-m", "necropsy", "doctor", "--python", python]),
        Timed("`pip check`", [*PIP, "check"]),
    ]
    if importlib.util.find_spec("torch") is not None:
        found.append(Timed("`python -m torch.utils.collect_env`", [python, "-m", "torch.utils.collect_env"]))
    return found


@dataclass
class Broken:
    """A plugin of pytest: notes each environment in which something was found, and what pip says of it."""

    named: dict[tuple[str, tuple[str, ...]], bool] = field(default_factory=dict)
    """By test and rules: whether pip has named it."""
    failed: list[str] = field(default_factory=list)
    test: str = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collection_finish(self) -> None:
        from doctor_building import Venv

        plain = Venv.examine

        def examine(venv: Venv, *packages: str, variables: Mapping[str, str] | None = None, **more: Any) -> Document:
            document = plain(venv, *packages, variables=variables, **more)
            found = [one for one in document.findings if one.severity != "note"]
            key = (self.test, tuple(sorted({one.rule for one in found})))
            if found and key not in self.named:
                self.named[key] = _named_by_pip(venv.python, found, {**os.environ, **(variables or {})})
            return document

        Venv.examine = examine  # type: ignore[method-assign]  # that is how the plugin listens


def _named_by_pip(python: str, findings: Sequence[Diagnosis], variables: Mapping[str, str]) -> bool:
    command = [*PIP, "--python", python, "check"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    told = " ".join(f"{one.summary} {' '.join(each.seen for each in one.evidence)}" for one in findings)
    names = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    return done.returncode == 1 and any(name in told for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    timed, load = tools(), os.getloadavg()[0]
    for _ in range(wanted.runs):
        for one in timed:
            one.run()
    broken = Broken()
    pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", str(TESTS / "doctor")], plugins=[broken])
    lines = table(wanted.runs, load, timed, broken)
    print("\n".join(lines))
    if wanted.out is not None:
        results.put(wanted.out, "\n".join(lines) + "\n")
    return int(bool(broken.failed))


def table(runs: int, load: float, timed: Sequence[Timed], broken: Broken) -> list[str]:
    count = len(broken.named)
    named = {"`necropsy doctor`": f"{count} of {count}", "`pip check`": f"{sum(broken.named.values())} of {count}"}
    by_pip = sorted({rule for (_, rules), yes in broken.named.items() if yes for rule in rules})
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    missed = f" {len(broken.failed)} tests failed: {', '.join(broken.failed)}." if broken.failed else ""
    how = (
        f"`python benchmarks/doctor.py --runs {runs}`, {when}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, pip {version('pip')}. Times are of the environment "
        f"that the tests run in ({_installed()}): the best of {runs} runs. "
        f"Load average at the start: {load:.0f}; CPU time depends less on what else the machine does."
    )
    what = (
        f"The {count} broken environments are those that the tests in `tests/doctor` build and in which doctor reports an "
        "error or a warning, so doctor was made for them; each test says what has to be found, and fails where it is "
        f"not.{missed} `pip check` has named one where it ends with 1 and names a package that the finding is about. What it named: {', '.join(f'`{one}`' for one in by_pip) or 'none'}."
    )
    lists = (
        "PyTorch's `collect_env` and TensorFlow's `tf_env_collect.sh` print lists (versions, some variables, what "
        "nvidia-smi says) and compare nothing: they give no verdict, so there is nothing to count. "
        f"{'' if len(timed) > 2 else '`collect_env` was not run because torch is not installed here. '}"
        "`tf_env_collect.sh` was not run because TensorFlow's packages do not contain it."
    )
    return [
        TITLE,
        "",
        how,
        "",
        "| Tool | Wall s | CPU s | Broken environments named |",
        "|---|---|---|---|",
        *(f"| {one.name} | {one.wall:.2f} | {one.cpu:.2f} | {named.get(one.name, 'not counted')} |" for one in timed),
        "",
        what,
        "",
        lists,
    ]


def _installed() -> str:
    names = ("tensorflow", "tensorflow-cpu", "torch", "jax", "numpy")
    found = {one.name.lower().replace("_", "-"): one.version for one in distributions()}
    return ", ".join(f"{name} {found[name]}" for name in names if name in found)


if __name__ == "__main__":
    sys.exit(main())
