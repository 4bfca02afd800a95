"""``necropsy.enable()`` in a Windows CPython under wine: a debugger attaches, reports, and detaches without harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import wine

pytestmark = wine.needed

PROGRAM = """
import ctypes, json, os, subprocess, sys, threading, time
if len(sys.argv) == 1:
    ends = {}
    for step in ("dies", "off", "killed", "well", "leaves"):
        done = subprocess.run([sys.executable, __file__, step], capture_output=True, text=True)
        ends[step] = {"code": done.returncode, "said": done.stdout.split(), "stderr": done.stderr}
    print(json.dumps(ends))
    sys.exit()

import necropsy
from necropsy.watch import windows_client
print(necropsy.enable(), necropsy.enable())
thread = threading.Thread(target=int)
thread.start(); thread.join()
step = sys.argv[1]
if step == "off":
    print(necropsy.disable(), necropsy.disable())
if step == "killed":
    windows_client._debugger.kill()
    windows_client._debugger.wait()
    print(sum(range(10)))
    sys.exit(7)
sys.stdout.flush()
if step in ("dies", "off"):
    # A thread of the system's that begins nowhere; what happens in ctypes' own calls is made an OSError.
    ctypes.windll.kernel32.CreateThread(None, 0, ctypes.c_void_p(8), None, 0, None)
    time.sleep(60)
if step == "leaves":
    os._exit(5)
"""
FAULT = 0xC0000005


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("enabled")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    env = {"NECROPSY_OUTPUT": wine.windows_path(folder / "reports")}
    done = wine.run(wine.python(), wine.windows_path(folder / "program.py"), env=env)
    assert done.code32 == 0, done
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return {**found, "kept": kept(folder / "reports")}


def kept(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


def test_a_death_is_reported_on_stderr_and_kept(ends: dict[str, Any]) -> None:
    dies = ends["dies"]
    assert (dies["code"], dies["said"]) == (FAULT, ["True", "True"])
    assert "necropsy: " in dies["stderr"] and "(bad-jump)" in dies["stderr"], dies["stderr"]
    assert ends["kept"]


def test_a_program_that_switched_it_off_dies_without_a_report(ends: dict[str, Any]) -> None:
    off = ends["off"]
    assert (off["code"], off["said"]) == (FAULT, ["True", "True", "True", "True"])
    assert "necropsy" not in off["stderr"]


def test_a_program_whose_debugger_is_killed_runs_on(ends: dict[str, Any]) -> None:
    assert (ends["killed"]["code"], ends["killed"]["said"]) == (7, ["True", "True", "45"])


def test_an_ordinary_end_has_no_report(ends: dict[str, Any]) -> None:
    assert (ends["well"]["code"], ends["well"]["stderr"]) == (0, "")
    assert (ends["leaves"]["code"], ends["leaves"]["stderr"]) == (5, "")
