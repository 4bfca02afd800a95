"""Die in many ways, each case in a forked process. Runs under `necropsy run`, or alone to leave cores and logs.

<<<<<<<< HEAD:tests/triage/corpus/dying_calls.py
Usage: dying_calls.py CASES.json PIDS.json, where a case is {"id", "kind", "library", "module", "function", "folder"}.
========
Usage: die_each_way.py CASES.json PIDS.json, where a case is {"id", "kind", "library", "module", "function", "folder"}.
>>>>>>>> triage-grouping:tests/triage/corpus/die_each_way.py
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

LIMIT_S = 60


def child(case: dict[str, Any]) -> None:
    """Call the buggy function; never returns."""
    folder = Path(case["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    said = os.open(folder / "stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    if case["kind"] not in {"live", "capsule"}:
        os.dup2(said, 2)
        os.dup2(said, 1)
    os.chdir(folder)
    cores = resource.RLIM_INFINITY if case["kind"] in {"core", "gdb"} else 0
    resource.setrlimit(resource.RLIMIT_CORE, (cores, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.alarm(LIMIT_S)
    if case["kind"] == "faulthandler":
        faulthandler.enable()
    os.environ["CORPUS_LIBRARY"] = case["library"]
    sys.path.insert(0, os.environ["CORPUS_CALLERS"])
    getattr(importlib.import_module(case["module"]), case["function"])(case["n"])
    os._exit(0)


def main() -> None:
    """Run the cases one after the other, and write which process each of them was."""
    cases = json.loads(Path(sys.argv[1]).read_text())
    if any(case["library"].endswith("ops.so") for case in cases):
        importlib.import_module("tensorflow")  # once, before the forks
    pids = {}
    for case in cases:
        pid = os.fork()
        if pid == 0:
            try:
                child(case)
            finally:
                os._exit(99)
        _, status = os.waitpid(pid, 0)
        pids[case["id"]] = [pid, status]
    Path(sys.argv[2]).write_text(json.dumps(pids))


main()
