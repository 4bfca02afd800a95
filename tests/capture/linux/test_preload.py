"""What is loaded while nothing happens: piece by piece, and never before what does happen."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from necropsy.capture.linux.supervise import crash_capture
crash_capture.AFTER_S, crash_capture.SOON_S, crash_capture.QUIET_S = {after}, {soon}, 0.01
loaded = []
def pieces():
    for number, soon in enumerate((True, False, False)):
        loaded.append(str(number))
        yield soon
waiting = crash_capture.Preloader(pieces())
for what in {steps}:
    if what == "hurry":
        waiting.hurry()
    else:
        waiting.step()
    print(*loaded, waiting.wait_s is None)
"""


def run(after: float, soon: float, *steps: str) -> list[str]:
    script = SCRIPT.format(after=after, soon=soon, steps=steps)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_all_is_loaded_while_nothing_happens() -> None:
    assert run(0.0, 0.0, *["step"] * 4)[-1] == "0 1 2 True"


def test_a_short_run_loads_nothing() -> None:
    assert run(60.0, 60.0, "step", "step") == ["False"] * 2


def test_what_every_report_needs_is_loaded_soon() -> None:
    assert run(60.0, 0.0, *["step"] * 4)[-1] == "0 1 False"


def test_while_a_death_is_read_what_its_report_needs_is_loaded() -> None:
    assert run(60.0, 60.0, "hurry", *["step"] * 4)[-1] == "0 1 2 True"


def test_nothing_of_ours_is_left_to_load() -> None:
    code = (
        "from necropsy.capture.linux.supervise import crash_capture; from necropsy import reporting; from itertools import chain\n"
        "import sys; list(chain(crash_capture.loading(), reporting.loading()))\n"
        "before = set(sys.modules); from necropsy.rules import crash_rules; from necropsy.capture.linux.inspect import crash_builder\n"
        "crash_rules(); print(sorted(name for name in set(sys.modules) - before if name.startswith('necropsy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
