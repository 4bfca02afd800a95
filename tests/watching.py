"""Programs that have themselves watched, run by the tests of ``watch``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from necropsy import report_archive, store
from necropsy.model import Document

START = """
import ctypes, json, os, signal, subprocess, sys, threading, time, traceback
import necropsy
from necropsy import watch

def tell(**facts):
    print(json.dumps(facts), flush=True)

def tracer(pid=None):
    with open(f"/proc/{pid or os.getpid()}/status") as file:
        return int(next(line for line in file if line.startswith("TracerPid")).split()[1])

def hub(pid=None):
    '''The watcher, which is the parent of the tracers.'''
    with open(f"/proc/{pid or tracer()}/status") as file:
        return int(next(line for line in file if line.startswith("PPid")).split()[1])

def until_dead(pid):
    state = "R"
    while state not in "ZX":
        time.sleep(0.01)
        try:
            with open(f"/proc/{pid}/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except OSError:
            return

def crash():
    ctypes.string_at(0)

def dies(number, step):
    child = os.fork()
    if child:
        return child, os.waitpid(child, 0)[1]
    try:
        step()
    except BaseException:
        traceback.print_exc()
    os._exit(99)
"""


def program(
    text: str, folder: Path, before: Sequence[str] = (), *, arguments: Sequence[str] = (), **variables: str
) -> subprocess.Popen[str]:
    """Start it; its reports go to ``folder``, and its stderr to a file there."""
    environment = {name: value for name, value in os.environ.items() if name != "NECROPSY_WATCHER"}
    with (folder / "stderr").open("a") as file:
        return subprocess.Popen(
            [*before, sys.executable, "-c", START + text, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**environment, "NECROPSY_OUTPUT": str(folder / "reports"), **variables},
        )


def facts(process: subprocess.Popen[str]) -> dict[str, Any]:
    """All that it has told, once it has ended."""
    output, _ = process.communicate(timeout=300)
    found: dict[str, Any] = {}
    for line in output.splitlines():
        found |= json.loads(line)
    return found


def kept(folder: Path) -> list[Document]:
    """The reports, oldest first."""
    return [report_archive.read(path) for path in reversed(list(store.kept(folder / "reports")))]


def rules(folder: Path) -> list[str]:
    """The rules of the reports' first verdicts, sorted."""
    verdicts = [document.reports[0].verdict for document in kept(folder)]
    return sorted(verdict.rule if verdict is not None else "none" for verdict in verdicts)


def is_gone(pid: int, seconds: float = 60.0) -> bool:
    """The process ends within this time."""
    until = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()
