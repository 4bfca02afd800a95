"""Runs in the emulated machine: kills necropsy's processes at random moments, and prints what became of the command.

``killed_supervisors.py PROGRAM TURNS``: ``PROGRAM`` is crashers/counting.c. A line of JSON for each turn.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_PR_SET_CHILD_SUBREAPER = 36
_LIMIT_S = 120.0
_T = TypeVar("_T")


def main() -> None:
    """Kill all of them, or one, in turn."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    chance = random.Random(1)
    program, turns = sys.argv[1], int(sys.argv[2])
    for turn in range(turns):
        of_all = not turn % 2
        log = ("off", "auto" if of_all else "tap")[turn // 2 % 2]
        print(json.dumps(_turn(program, log, chance, of_all=of_all)), flush=True)


def _turn(program: str, log: str, chance: random.Random, *, of_all: bool) -> dict[str, object]:
    folder = Path(tempfile.mkdtemp())
    counter, stop, err = folder / "counter", folder / "stop", folder / "err"
    with err.open("wb") as target:
        words = ["necropsy", "run", "--log", log, "--", program, str(counter), str(stop)]
        front = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=target)
    _until(lambda: _count(counter) > 5, "it counts")
    worker = _until(lambda: next((one for one in _processes() if _words(one)[:1] == [program]), 0), "the command")
    time.sleep(chance.uniform(0, 0.5))
    ours = [one for one in _processes() if str(counter) in _words(one) and _words(one)[0] != program]
    victims = ours if of_all else [chance.choice([one for one in ours if one != front.pid])]
    names = sorted(map(_name, victims))
    for one in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    before = _count(counter)
    _until(lambda: _count(counter) > before + 20, "it counts on")
    stop.touch()
    _, status = os.waitpid(worker if of_all else front.pid, 0)
    _until(lambda: worker not in _processes() or _state(worker) in {"Z", "X", ""}, "it has ended")
    lines = sum(line.isdigit() for line in err.read_bytes().split(b"\n"))
    for _ in range(100):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
    return {
        "log": log,
        "killed": names,
        "status": os.waitstatus_to_exitcode(status),
        "counted": _count(counter),
        "lines": lines,
        "said": [line for line in err.read_text().splitlines() if not line.isdigit()][:5],
    }


def _until(condition: Callable[[], _T], what: str) -> _T:
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError(what)


def _count(path: Path) -> int:
    return int.from_bytes(path.read_bytes(), "little") if path.exists() else 0


def _processes() -> list[int]:
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]


def _words(pid: int) -> list[str]:
    return _read(pid, "cmdline").split("\0")


def _name(pid: int) -> str:
    return _read(pid, "comm").strip()


def _state(pid: int) -> str:
    return _read(pid, "stat").rpartition(") ")[2][:1]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    main()
