"""Windows programs under ``necropsy run`` in a Windows CPython under wine, and the deaths of the table in such runs.

One run follows a program that starts crash.exe once for each death. All tests share these runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deaths import DEATHS, RACE, Death

import shared_runs
import wine
from crashers.windows import build

GROUPS = 4
"""The table is divided among this many runs, so that several workers can make them at the same time."""


class LiveDeath(NamedTuple):
    """How it ended, and the report on it; None where there is none."""

    code: int
    report: dict[str, Any] | None


def supervised(folder: Path, *command: str, log: bool = False) -> tuple[wine.Completed, dict[str, Any]]:
    """``log``: stderr goes into a file, which is what is read back; a pipe's end is gone."""
    path = folder / "report.json"
    env = {"WINEPATH": wine.windows_path(wine.python().parent), "NECROPSY_KEEP": "0"}
    words = ("-m", "necropsy", "run", "--json", wine.windows_path(path), "--", *command)
    if log:
        text = folder / "log.txt"
        line = " ".join(("python", *words, f"2>{wine.windows_path(text)}"))
        done = wine.run("cmd.exe", "/c", line, env=env, log=text)
    else:
        done = wine.run(wine.python(), *words, env=env)
    assert path.exists(), done
    document = json.loads(path.read_text())
    assert isinstance(document, dict)
    return done, document


def program(name: str = "crash.exe") -> str:
    return wine.windows_path(build.programs() / name)


def live(death: Death, base: Path) -> LiveDeath:
    """``base``: the temporary folder of a worker or of the only process."""
    group = DEATHS.index(death) % GROUPS
    folder = shared_runs.folder_of(base, "windows-deaths")
    found = shared_runs.once(
        folder, str(group), lambda: _deaths_of_a_run(folder / f"run-{group}", DEATHS[group::GROUPS])
    )
    return LiveDeath(*found[death.verb])


def _deaths_of_a_run(folder: Path, deaths: Sequence[Death]) -> dict[str, LiveDeath]:
    folder.mkdir(exist_ok=True)
    verbs = [death.verb for death in deaths]
    found = _run(folder, verbs)
    for _ in range(3):
        if RACE not in found or "|?|" not in str((found[RACE].report or {}).get("signature")):
            break
        found |= _run(folder, [RACE])
    return found


def _run(folder: Path, verbs: Sequence[str]) -> dict[str, LiveDeath]:
    done, document = supervised(folder, program(), "each", *verbs)
    assert done.code32 == 0, done
    reports = {report["pid"]: report for report in document["reports"]}
    rows = (row.rsplit(" ", 2) for row in done.stdout.splitlines())
    return {verb: LiveDeath(int(code, 16), reports.get(int(pid))) for verb, pid, code in rows}
