"""``necropsy run --timeout`` whose time is up when the command stands, however long it took to get there.

A time limit by the clock is a race of the command against it: on a busy machine Python may not have started in two
seconds, and the test is then about something else. The limit itself is real, and so is all that follows from it.
"""

from __future__ import annotations

import sys
from pathlib import Path

NEVER = "100000"
"""The limit to give: the clock does not get there."""

_SOURCE = """
import contextlib, sys, time
from pathlib import Path
from necropsy.capture.linux.supervise import supervisor
from necropsy.cli import main

MARK = sys.argv[1]
on_time = supervisor.Supervisor._on_time

def stat(path):
    with contextlib.suppress(OSError):
        return path.read_text().rpartition(") ")[2].split()
    return []

def family(command):
    of = {int(path.parent.name): stat(path)[1:2] for path in Path("/proc").glob("[0-9]*/stat")}
    return [command, *(pid for pid, parent in of.items() if parent == [str(command)])]

def threads(command):
    found = {}
    for pid in family(command):
        for path in Path(f"/proc/{pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                lines = path.with_name("status").read_text().splitlines()
                found[path] = stat(path)[:1], [line for line in lines if "ctxt_switches" in line]
    return found

def stands(self):
    if MARK:
        return Path(MARK).exists()
    now, seen = time.monotonic(), threads(self.command)
    if now - getattr(self, "looked", 0) < 0.4:
        return False
    before, self.seen, self.looked = getattr(self, "seen", None), seen, now
    return before == seen and bool(seen) and all(state == ["S"] for state, _ in seen.values())

def look(self):
    if self.deadline is not None and not self._terminated and stands(self):
        self.deadline = 0.0
    on_time(self)

supervisor.Supervisor._on_time = look
sys.exit(main(sys.argv[2:]))
"""


def necropsy(mark: Path | None = None) -> list[str]:
    """What is written in place of ``python -m necropsy``.

    The command stands when the file ``mark`` is there; without one, when no thread of it and of its children has run
    between two looks, and all sleep.
    """
    return [sys.executable, "-c", _SOURCE, str(mark) if mark is not None else ""]
