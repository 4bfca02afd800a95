"""After the made-up death, the report of a real one finds compiled what it needs."""

from __future__ import annotations

import subprocess
import sys

from necropsy.rules import one_by_one

COUNT = """
import re._compiler, sys
from necropsy import reporting
from necropsy.document import of_run
from necropsy.model import Address, Crash, Exit, Fault, Frame, Process, RunRecord, Thread
from necropsy.reports import brief
from necropsy.rules import crash_rules
rules = crash_rules()
if sys.argv[1] == "warm":
    for _ in reporting.loading():
        pass
compiled, compile = [], re._compiler.compile
re._compiler.compile = lambda *words: compiled.append(words[0]) or compile(*words)
frames = (
    Frame(index=0, kind="native", function="Sum::Of(int const*)", module="/srv/app/libsum.so", address=Address(1 << 40)),
    Frame(index=1, kind="native", function="main", module="/srv/app/sum", address=Address(1 << 41)),
)
crash = Crash(
    pid=7,
    exit=Exit(kind="signaled", signal="SIGSEGV"),
    fault=Fault(signal="SIGSEGV", code="SEGV_MAPERR", address=Address(8), access="read"),
    threads=(Thread(tid=7, crashed=True, frames=frames),),
)
process = Process(pid=7, role="command", command=("./sum",), exit=crash.exit)
document = of_run(RunRecord(processes=(process,), crashes=(crash,)), ("./sum",), rules)
assert document.reports[0].verdict.rule == "null-dereference", document.reports[0].verdict
brief.render(document)
print(len(compiled))
"""


def compiled(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


def test_little_is_compiled_for_a_report_after_the_warm_up() -> None:
    cold, warm = compiled("cold"), compiled("warm")
    assert cold > 20
    assert warm < cold / 5


def test_the_made_up_death_is_diagnosed() -> None:
    """A step that raises would end the warm-up, and nobody would be told."""
    from necropsy import warm_up

    assert len(list(warm_up.steps([one for one in one_by_one() if one is not None]))) > 60
