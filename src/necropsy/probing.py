"""Imports the frameworks and the named packages, each in its own process under ``necropsy run``.

The process has the variables and limits that doctor was started with, and a time limit. If it dies, the supervisor's
report becomes the finding.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from necropsy import doctor, supervised
from necropsy.model import Distribution, Document, Environment, Gap, Import, Process, Report

Watch = Callable[[str], None]
"""Called from time to time with the distribution being imported."""

LIMIT_S = 120.0
"""Seconds that the imports of one distribution may take."""
_TICK_S = 0.1
_PATIENCE_S = 40.0
"""Seconds after which its supervisor is killed too, and the process with it (NECROPSY_TIED)."""
_HARMFUL = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH")
_SELDOM_IMPORTED = frozenset(
    ["test", "tests", "testing", "doc", "docs", "example", "examples", "benchmark", "benchmarks", "scripts", "tools"]
)
_SCRIPT = Path(doctor.__file__).with_name("import_modules.py")
# The supervisor runs without the variables that may harm it, and with a stack of its own: the interpreter takes both
# back, and starts itself again with them.
_START = """
import json, os, sys
limits, variables, command = json.loads(sys.argv[1])
try:
    import resource
    for name, value in limits.items():
        number = getattr(resource, name)
        resource.setrlimit(number, (value, resource.getrlimit(number)[1]))
except (ImportError, OSError, ValueError):
    pass
os.environ.update(variables)
os.execv(command[0], command)
"""


def imported(environment: Environment, *, watch: Watch | None = None, limit_s: float = LIMIT_S) -> Environment:
    """Fill in ``imports``, allowing ``limit_s`` seconds per distribution; a process that cannot start becomes a gap."""
    found: list[Import] = []
    gaps: list[Gap] = []
    asked = {one.name for one in environment.asked}
    for one in environment.distributions or ():
        names = _modules(one, every=one.name in asked)
        if not one.named or not names or environment.executable is None:
            continue
        try:
            found.append(_import(environment, one.name, names, watch, limit_s))
        except OSError as error:
            gaps.append(Gap(part="imports", why=f"{one.name} could not be imported in a process: {error}"))
    return msgspec.structs.replace(
        environment, imports=None if gaps and not found else tuple(found), gaps=(*environment.gaps, *gaps)
    )


def _modules(one: Distribution, *, every: bool) -> list[str]:
    """The module with the distribution's name first; only that one unless ``every``."""
    named = one.name.replace("-", "_").lower()
    public = [name for name in one.modules if not name.startswith("_") and name.isidentifier()]
    usual = [name for name in public if name.lower() not in _SELDOM_IMPORTED] or public
    same = [name for name in usual if name.lower() == named or named.startswith(f"{name.lower()}_")]
    return [*same, *(name for name in usual if name not in same)] if every or not same else same


def _import(environment: Environment, name: str, modules: Iterable[str], watch: Watch | None, limit_s: float) -> Import:
    with tempfile.TemporaryDirectory(prefix="necropsy-", ignore_cleanup_errors=True) as folder:
        journal, report = Path(folder, "journal"), Path(folder, "report.json")
        deadline = time.time() + limit_s
        script = _SCRIPT.read_text(encoding="utf-8")
        command = _as_started(
            [environment.executable or sys.executable, "-c", script, str(journal), *modules], environment
        )
        code = _run(
            [*supervised.command(report, deadline), *command],
            deadline + _PATIENCE_S,
            _variables(environment),
            (lambda: watch(name)) if watch is not None else None,
        )
        return _seen(name, _lines(journal), supervised.document(report), code)


def _variables(environment: Environment) -> dict[str, str]:
    given = environment.variables if environment.variables is not None else os.environ
    kept = {name: value for name, value in given.items() if name not in _HARMFUL or sys.platform == "win32"}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "NECROPSY_KEEP": "0", "NECROPSY_TIED": "1"}


def _as_started(command: list[str], environment: Environment) -> list[str]:
    if sys.platform == "win32":
        return command
    variables = {name: value for name, value in (environment.variables or {}).items() if name in _HARMFUL}
    limits = _changed(environment.limits or {})
    if not variables and not limits:
        return command
    return [command[0], "-I", "-S", "-c", _START, json.dumps([limits, variables, command])]


def _changed(limits: Mapping[str, int]) -> dict[str, int]:
    """The soft limits that doctor has raised for itself."""
    if sys.platform == "win32":
        return {}
    import resource

    now = {name: resource.getrlimit(getattr(resource, name))[0] for name in limits}
    return {name: value for name, value in limits.items() if value != now[name] and value != -1}


def _run(command: list[str], deadline: float, variables: Mapping[str, str], watch: Callable[[], None] | None) -> int:
    """Return its exit code; its output is only for its supervisor."""
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=dict(variables))
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_TICK_S)
            if time.time() > deadline:
                process.kill()
            if watch is not None:
                watch()
    except BaseException:  # Ctrl-C reaches the process too
        try:
            process.wait(supervised.GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def _lines(journal: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return []


def _seen(name: str, told: list[dict[str, Any]], run: Document | None, code: int) -> Import:
    if not told:
        raise OSError(f"its interpreter ended with {code} before it could import anything")
    done = next((one for one in told if "done" in one), None)
    good = tuple(one["imported"] for one in told if "imported" in one)
    raised = next((one for one in told if "raised" in one), None)
    begun = [one["begin"] for one in told if "begin" in one]
    ended = {one.get("imported") or one.get("raised") for one in told}
    open_ = next((one for one in begun if one not in ended), None)
    first = run.processes[0] if run is not None and run.processes else None
    how = _how(first, code)
    timed_out = (first is not None and first.exit is not None and first.exit.kind == "timeout") or (
        done is None and code == -9 and first is None
    )
    report = run.reports[0] if run is not None and run.reports else None
    seen = Import(
        distribution=name,
        outcome="imported",
        imported=good,
        seconds=done["seconds"] if done else None,
        cpu_s=done["cpu_s"] if done else None,
        read_bytes=done["read_bytes"] if done else None,
    )
    if done is None:
        outcome = "timeout" if timed_out else "died"
        seen = msgspec.structs.replace(seen, outcome=outcome, module=open_, how=how, place=_place(report))
    elif raised is not None:
        seen = msgspec.structs.replace(
            seen, outcome="raised", module=raised["raised"], text=raised["text"], place=raised["place"]
        )
    elif _was_killed(first, code):
        seen = msgspec.structs.replace(seen, outcome="died", how=how, place=_place(report))
    else:
        return seen
    return _with_verdict(seen, report)


def _was_killed(process: Process | None, code: int) -> bool:
    """By a signal: a preloaded leak checker changes the exit code after a successful run."""
    return process.exit is not None and process.exit.kind == "signaled" if process is not None else code < 0


def _how(process: Process | None, code: int) -> str:
    end = process.exit if process is not None else None
    if end is not None and end.signal is not None:
        return f"killed by {end.signal}"
    if end is not None and end.code is not None:
        return f"it exited with code {end.code}"
    return f"killed by signal {-code}" if code < 0 else f"it exited with code {code}"


def _place(report: Report | None) -> str | None:
    culprit = report.verdict.culprit if report is not None and report.verdict is not None else None
    return culprit.module if culprit is not None else None


def _with_verdict(seen: Import, report: Report | None) -> Import:
    verdict = report.verdict if report is not None else None
    if verdict is None or verdict.rule in {"python-exception", "exit-status-only", "killed-by-signal"}:
        return seen
    advice = {fix.text: fix.command or "" for fix in verdict.fixes}
    return msgspec.structs.replace(seen, rule=verdict.rule, summary=verdict.summary, advice=advice)
