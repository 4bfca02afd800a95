"""What is loaded while nothing happens: piece by piece, and never before what does happen."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, signal, sys, time
told, tells = os.pipe()
from necropsy.capture.linux import idle
idle.AFTER_S, idle.SOON_S, idle.QUIET_S = {after}, {soon}, 0.01
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
loaded = []
def pieces(name):
    for number in range(3):
        loaded.append(f"{{name}}{{number}}")
        yield {then}
    if name == "a":
        os.write(tells, b"x")
waiting = idle.Idle(pieces("a"), pieces("b"))
for life in {lives}:
    child = os.fork()
    if not child:
        os.read(told, 1) if life == "until all is loaded" else time.sleep(life)
        os._exit(7)
    found, status = waiting.wait()
    assert (found, os.waitstatus_to_exitcode(status)) == (child, 7)
    print(*loaded)
"""


def run(after: float, *lives: float | str, soon: float = 60.0, then: bool = False) -> list[str]:
    script = SCRIPT.format(after=after, lives=lives, soon=soon, then=then)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_all_is_loaded_while_nothing_happens() -> None:
    assert run(0.0, "until all is loaded", 0.0) == ["b0 b1 b2 a0 a1 a2"] * 2


def test_what_every_report_needs_is_loaded_soon() -> None:
    """The first piece, and what follows upon a true one."""
    assert run(60.0, 0.0, 1.0, soon=0.1) == ["", "b0"]
    assert run(60.0, 0.0, 1.0, soon=0.1, then=True) == ["", "b0 b1 b2 a0 a1 a2"]


def test_a_short_run_loads_nothing() -> None:
    assert run(60.0, 0.0, 0.1) == ["", ""]


def test_nothing_of_ours_is_left_to_load() -> None:
    code = (
        "from necropsy.capture.linux import dying; from necropsy.cli import start; from itertools import chain\n"
        "import sys; list(chain(dying.loading(), start.loading()))\n"
        "before = set(sys.modules); from necropsy.rules import crash_rules; from necropsy.capture.linux import snapshot\n"
        "crash_rules(); print(sorted(name for name in set(sys.modules) - before if name.startswith('necropsy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
