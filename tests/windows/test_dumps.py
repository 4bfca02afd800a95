"""Windows programs die under wine, Windows' own function writes a minidump of each, and it is read here on Linux.

The whole way: exception record, threads, stacks by the unwind tables, names from the debug information of MinGW, rules.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deaths import DEATHS, FULL, SOURCES, Death
from live_runs import live

import wine
from crashers.windows import build
from necropsy.capture import open_minidump
from necropsy.diagnose import diagnose
from necropsy.model import Report
from necropsy.rules import crash_rules

pytestmark = [
    wine.needed,
    pytest.mark.skipif(not build.available(), reason="the crashers need MinGW's compilers and dlltool"),
]
WINES_OWN = [
    folder
    for place in ("/usr/lib/x86_64-linux-gnu/wine", "/usr/lib/wine", "/opt/wine-stable/lib64/wine")
    if (folder := Path(place, "x86_64-windows")).is_dir()
]
"""Wine's DLLs, which stand for Windows' here: their tables are needed to get past them."""


def report_of(path: Path) -> Report:
    return diagnose(open_minidump.read(path, images=[build.programs(), *WINES_OWN]), crash_rules())


def dumped(death: Death) -> Path:
    first = (FULL, death.code) if death.first else (FULL,)
    return wine.dump(build.programs() / "crash.exe", *death.words, first=first)


def live_signature(death: Death, base: Path) -> str:
    """As it was under ``necropsy run``."""
    report = live(death, base).report
    assert report is not None
    return str(report["signature"])


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.verb)
def test_a_dump_is_diagnosed(death: Death, tmp_path_factory: pytest.TempPathFactory) -> None:
    report = report_of(dumped(death))
    assert report.signature == live_signature(death, tmp_path_factory.getbasetemp())
    verdict, crash = report.verdict, report.crash
    assert crash.exit is not None and crash.exit.ntstatus is not None
    assert int(crash.exit.ntstatus.value, 16) == death.code
    assert verdict is not None
    assert verdict.rule in death.rules, verdict.summary
    assert death.says in verdict.summary
    culprit = verdict.culprit
    named = (culprit.function if culprit is not None else None) or ""
    assert not death.culprit or named.removesuffix("(long)").rsplit("::", 1)[-1] in death.culprit, named
    if death.line:
        assert culprit is not None and culprit.source is not None and culprit.line is not None
        source = SOURCES / Path(culprit.source).name
        assert death.line in source.read_text().splitlines()[culprit.line - 1]
    thread = crash.crashed_thread
    assert thread is not None and thread.frames
    if death.complete:
        assert thread.complete
        assert [frame.function for frame in thread.frames][-1] == "RtlUserThreadStart"
    assert not [gap for gap in report.gaps if gap.part.startswith("rule ")]


def test_deaths_that_differ_have_different_signatures(tmp_path_factory: pytest.TempPathFactory) -> None:
    """But the recursion of one function that used up the stack of another thread is the same one."""
    base = tmp_path_factory.getbasetemp()
    found = {death.verb: live_signature(death, base) for death in DEATHS}
    the_same = [found.pop("recursion_in_thread"), found["recursion"]]
    assert len(set(the_same)) == 1
    assert len(set(found.values())) == len(found) == len(DEATHS) - 1


def test_a_delayed_import_of_mingw() -> None:
    """The helper of MinGW's own runtime; the DLL's name lies in a part of the image that may be written."""
    folder = build.programs() / "delayed"
    crash = open_minidump.read(wine.dump(folder / "needs.exe"), images=[folder, *WINES_OWN])
    verdict = diagnose(crash, crash_rules()).verdict
    assert verdict is not None and verdict.rule == "missing-library"
    thread = crash.crashed_thread
    assert thread is not None and thread.complete
    assert "main" in [frame.function for frame in thread.frames or ()]


def test_a_library_that_python_called() -> None:
    """On a thread of the library's own: ctypes would swallow the exception on the one that calls."""
    library = wine.windows_path(build.programs() / "crash.dll")
    code = f"import ctypes; ctypes.CDLL(r'{library}').crash_on_a_thread(b'null_member', 0)"
    report = report_of(wine.dump(wine.python(), "-c", code))
    assert report.verdict is not None and report.verdict.rule == "null-dereference"
    culprit = report.verdict.culprit
    assert culprit is not None and (culprit.function, culprit.module) == ("weight_of", "crash.dll")
    assert report.crash.environment is not None
    assert (report.crash.environment.executable or "").endswith("python.exe")
    assert report.crash.crashed_thread is not None and report.crash.crashed_thread.complete


def test_the_command_line_opens_it() -> None:
    path = dumped(next(one for one in DEATHS if one.verb == "huge_frame"))
    command = [sys.executable, "-m", "necropsy", "open", str(path), "--images", str(build.programs())]
    done = subprocess.run(
        [*command, "--format", "json"], capture_output=True, text=True, timeout=wine.LONG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)["reports"]
    assert report["verdict"]["rule"] == "stack-overflow-large-frame"
    assert any(fix["command"] and "editbin /STACK:" in fix["command"] for fix in report["verdict"]["fixes"])
    assert report["crash"]["stack_reserve"] == 2 << 20
