"""Runs in the emulated machine: commands, two at a time and mostly under supervision, and what was found of each.

``supervised_cases.py CASES``: the path of a file of JSON. Of each case it prints a line of JSON. All that a report needs is
imported once, and each case is a fork of this process: an emulated processor takes many seconds to import it. What is
limited in time is given ten times as much of it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pwd
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import msgspec

from necropsy import serialize
from necropsy.capture import open_core
from necropsy.capture.linux.inspect import guard_records
from necropsy.capture.linux.supervise import c_library, launch, read_jobs
from necropsy.capture.run_options import RunOptions, RunRecord
from necropsy.diagnose import diagnose
from necropsy.document import of_run
from necropsy.rules import crash_rules

for _name in ("inspect.crash_builder", "inspect.source_lines", "supervise.tracer_process"):
    importlib.import_module(f"necropsy.capture.linux.{_name}")  # once, and not in each of the forks
_AT_ONCE = 2
_BUDGET_S = 200.0
_PR_SET_DUMPABLE = 4
_PLACE = Path(tempfile.mkdtemp(prefix="cases-"))
"""The machine has run others before."""
read_jobs._SLACK_S = 600.0
guard_records._LONGEST_S = 20.0


def main() -> None:
    """Run the cases."""
    cases: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
    crash_rules()
    _PLACE.chmod(0o755)
    running: dict[int, int] = {}
    for number, case in enumerate(cases):
        while len(running) >= _AT_ONCE:
            _ended(running, cases)
        pid = os.fork()
        if not pid:
            _run(number, case)
        running[pid] = number
    while running:
        _ended(running, cases)


def _folder(number: int) -> Path:
    return _PLACE / str(number)


def _ended(running: dict[int, int], cases: list[dict[str, Any]]) -> None:
    pid, status = os.wait()
    number = running.pop(pid, None)
    if number is None:
        return
    folder = _folder(number)
    told = json.loads(found.read_text()) if (found := folder / "told").exists() else {}
    texts = {name: (folder / name).read_text(errors="replace") for name in ("out", "err")}
    said = {"name": cases[number]["name"], "status": os.waitstatus_to_exitcode(status), **texts, **told}
    print(json.dumps(said), flush=True)


def _run(number: int, case: dict[str, Any]) -> None:
    folder = _folder(number)
    folder.mkdir()
    folder.chmod(0o777)
    try:
        os.setsid()
        for handle, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), handle)
        if case["user"]:
            entry = pwd.getpwnam(case["user"])
            os.setgroups(())
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)  # as it is again after an exec, which there is none of here
        os.chdir(folder)
        if case["stack"]:
            _, most = resource.getrlimit(resource.RLIMIT_STACK)
            resource.setrlimit(resource.RLIMIT_STACK, (case["stack"], most))

        if case["plain"]:
            for signo in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                signal.signal(signo, signal.SIG_DFL)
            os.execvp(case["command"][0], case["command"])

        os.environ[c_library.CHOICE] = case["loop"]
        assert (c_library.load() is not None) == (case["loop"] == "c"), c_library.why_missing()

        def on_end(record: RunRecord) -> None:
            (folder / "told").write_text(json.dumps(_told(case["command"], record)))

        options = RunOptions(budget_s=_BUDGET_S, report_s=_BUDGET_S, keep=(1,), **case["options"])
        os._exit(launch.run(case["command"], options, on_end))
    except BaseException:
        traceback.print_exc()
        os._exit(125)


def _told(command: list[str], record: RunRecord) -> dict[str, Any]:
    """The reports of a run; and of each core that was kept, the report after it was opened again."""
    rules = crash_rules()
    reports = of_run(record, command, rules).reports
    opened = []
    for number, core in enumerate(record.cores.values()):
        path = Path(f"core-{number}.gz")
        path.write_bytes(core().read())
        opened.append(diagnose(open_core.read(path, budget_s=_BUDGET_S), rules))
    return {
        name: msgspec.to_builtins(some, enc_hook=serialize.to_json)
        for name, some in (("reports", reports), ("opened", opened))
    }


if __name__ == "__main__":
    main()
