"""The walk in a process of its own, under the supervisor of ``necropsy run``: what it saw outlives its death."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from necropsy import supervised
from necropsy.dataset import child
from necropsy.dataset.journal import PHASES, Journal, Progress
from necropsy.errors import NecropsyError, NoInputError
from necropsy.model import Document, Gap

Watch = Callable[[Progress], None]
_TICK_S = 0.1
_PATIENCE_S = 40.0
"""Seconds until its supervisor is killed too, and the walk with it (NECROPSY_TIED)."""


@dataclass
class Walked:
    """What is left of a walk: ``seen`` as ``necropsy.dataset.answering`` writes it, ``run`` where a process died."""

    seen: dict[str, Any]
    run: Document | None = None
    gaps: list[Gap] = field(default_factory=list)


@dataclass
class _Attempt:
    seen: dict[str, Any] | None
    snapshot: dict[str, Any] | None
    at: Progress
    code: int
    run: Document | None
    timed_out: bool


def walk(
    request: Mapping[str, Any],
    python: str,
    *,
    timeout: float | None,
    watch: Watch | None,
    environment: Mapping[str, str] | None = None,
) -> Walked:
    """Walk; after a death, walk again to find the element. Raises ``NoInputError`` (interpreter), ``NecropsyError``."""
    interpreter = shutil.which(python)
    if interpreter is None:
        raise NoInputError(f"the interpreter {python} was not found")
    deadline = None if timeout is None else time.time() + timeout

    variables = {**(os.environ if environment is None else environment), "NECROPSY_KEEP": "0", "NECROPSY_TIED": "1"}

    def attempt(**changed: Any) -> _Attempt:
        return _attempt({**request, **changed}, interpreter, deadline, watch, variables)

    first = attempt()
    if first.seen is not None:
        return _with_workers(Walked(first.seen, first.run))
    if first.timed_out:
        return _stopped(first, timeout or 0.0)
    _raise_if_not_started(first, interpreter)
    death, last = first, first.at.first + first.at.step - 1
    if first.at.step > 1:
        again = attempt(single=True)
        if again.seen is None and not again.timed_out:
            death, last = again, again.at.first
    died = _died(death, last)
    before = attempt(single=True, limit=death.at.first).seen if death.at.first else None
    gaps = []
    seen = (before or {}).get("dataset")
    if seen is None:
        seen = (death.snapshot or first.snapshot or {}).get("dataset") or {}
        if death.at.first:
            gaps.append(
                Gap(part="elements", why="the walk up to the crash could not be repeated: counts may be too low")
            )
    seen |= {"ended": "crash", "died": died, "elements": death.at.first, "raised": None}
    gaps.append(Gap(part="elements", why=f"what comes behind element {death.at.first:,}: the process died"))
    return Walked({"dataset": seen}, death.run, gaps)


def _attempt(
    request: dict[str, Any], python: str, deadline: float | None, watch: Watch | None, variables: dict[str, str]
) -> _Attempt:
    with tempfile.TemporaryDirectory(prefix="necropsy-") as name:
        folder = Path(name)
        files = {one: str(folder / one) for one in ("journal", "snapshot", "result")}
        Path(files["journal"]).touch()
        journal = Journal(files["journal"])
        (folder / "request.json").write_text(json.dumps({**request, **files, "deadline": deadline}), encoding="utf-8")
        command = [python, child.__file__, str(folder / "request.json")]
        report = folder / "report.json"
        command = [*supervised.command(report, deadline), *command]
        hard = None if deadline is None else deadline + _PATIENCE_S
        code, killed = _run(command, hard, journal, watch, variables)
        at = journal.read()
        journal.close()
        run = supervised.document(report)
        stopped = killed or (run is not None and any(one.exit and one.exit.kind == "timeout" for one in run.processes))
        return _Attempt(_read(files["result"]), _read(files["snapshot"]), at, code, run, stopped)


def _run(
    command: list[str], hard: float | None, journal: Journal, watch: Watch | None, variables: dict[str, str]
) -> tuple[int, bool]:
    """Its exit code, and whether it was killed. Its output goes to stderr, because stdout has the document."""
    output = 2 if supervised.is_open(2) else subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, env=variables)
    killed = False
    try:
        while True:
            try:
                return process.wait(_TICK_S), killed
            except subprocess.TimeoutExpired:  # noqa: PERF203 - once in a tick
                if hard is not None and not killed and time.time() > hard:
                    killed = True
                    process.kill()
                if watch is not None:
                    watch(journal.read())
    except BaseException:  # Ctrl-C reaches the walk too
        try:
            process.wait(supervised.GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def _read(path: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return found


def _with_workers(walked: Walked) -> Walked:
    """If a worker process was killed, the resulting exception becomes that worker's death."""
    raised = walked.seen.get("dataset", {}).get("raised")
    reports = walked.run.reports if walked.run is not None else ()
    native = [one for one in reports if one.crash.fault is not None or (one.crash.exit and one.crash.exit.signal)]
    if raised is None or not native:
        walked.run = None
        return walked
    end = native[0].crash.exit
    signal = end.signal if end is not None and end.signal else "a signal"
    walked.seen["dataset"]["died"] = {
        "index": raised["index"],
        "phase": "fetching",
        "worker": True,
        "how": f"a worker process was killed by {signal}; the pipeline raised {raised['type']}",
    }
    return walked


def _stopped(attempt: _Attempt, timeout: float) -> Walked:
    seen = (attempt.snapshot or {}).get("dataset") or {}
    seen |= {"ended": "timeout", "elements": attempt.at.first}
    phase = PHASES[attempt.at.phase]
    doing = (
        "the dataset was being made" if phase == "loading" else f"element {attempt.at.first:,} was being {phase[:-3]}ed"
    )
    why = f"the time limit of {timeout:g} s passed while {doing}: what comes behind was not checked"
    return Walked({"dataset": seen}, attempt.run, [Gap(part="elements", why=why)])


def _died(attempt: _Attempt, last: int) -> dict[str, Any]:
    phase = PHASES[attempt.at.phase]
    loading = phase == "loading"
    how = f"killed by signal {-attempt.code}" if attempt.code < 0 else f"it exited with code {attempt.code}"
    report = attempt.run.reports[0] if attempt.run is not None and attempt.run.reports else None
    if report is not None and report.crash.exit is not None and report.crash.exit.signal:
        how = f"killed by {report.crash.exit.signal}"
    return {
        "index": None if loading else attempt.at.first,
        "last_index": last if not loading and last > attempt.at.first else None,
        "phase": phase,
        "how": how,
    }


def _raise_if_not_started(attempt: _Attempt, python: str) -> None:
    if attempt.run is None and attempt.code in {125, 126, 127}:
        raise NecropsyError(f"{python} could not be started")
