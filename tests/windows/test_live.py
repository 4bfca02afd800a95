"""The same deaths under ``necropsy run`` in a Windows CPython under wine: the verdicts of the dumps, from the live process.

Each death has a report of its own. What needs the words that a program writes has a run for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deaths import DEATHS, SOURCES, Death
from live_runs import live, program, supervised

import wine
from crashers.windows import build

pytestmark = [
    wine.needed,
    pytest.mark.skipif(not build.available(), reason="the crashers need MinGW's compilers and dlltool"),
]


def wrong(death: Death, report: dict[str, Any] | None) -> str:
    """What is wrong of the report of a death; empty where nothing is."""
    if report is None or report["verdict"] is None:
        return "no verdict"
    verdict, threads = report["verdict"], report["crash"]["threads"] or ()
    culprit = verdict["culprit"] or {}
    function = (culprit.get("function") or "").removesuffix("(long)").rsplit("::", 1)[-1]
    frames = next((thread["frames"] or () for thread in threads if thread["crashed"]), ())
    if verdict["rule"] not in death.rules:
        return f"{verdict['rule']}: {verdict['summary']}"
    if death.culprit and function not in death.culprit:
        return f"blamed is {function!r}"
    if death.says not in verdict["summary"]:
        return str(verdict["summary"])
    if death.line and death.line not in line_of(culprit):
        return f"named is {culprit}"
    if death.complete and (not frames or frames[-1]["function"] != "RtlUserThreadStart"):
        return f"the stack ends in {frames[-1:]}"
    return ""


def line_of(culprit: dict[str, Any]) -> str:
    """The line of the source that is named; empty where none is."""
    if not culprit.get("source") or not culprit.get("line"):
        return ""
    source: Path = SOURCES / str(culprit["source"]).replace("\\", "/").rsplit("/", 1)[-1]
    return source.read_text().splitlines()[int(culprit["line"]) - 1]


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.verb)
def test_a_death_is_diagnosed_where_it_happens(death: Death, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = live(death, tmp_path_factory.getbasetemp())
    assert found.code == death.end
    assert wrong(death, found.report) == ""


@dataclass(frozen=True)
class Told:
    """A death whose reason stands on stderr, or in its exit code alone."""

    command: tuple[str, ...]
    code: int
    rule: str
    says: str


TOLD = (
    # MinGW's C runtime ends abort() with exit code 3, and no exception is to be seen.
    Told(("crash.exe", "check_failed", "3"), 3, "check-failed", "dims == 3"),
    Told(("crash.exe", "check_failed_fast", "3"), 0xC0000409, "check-failed", "dims == 3"),
    Told(("crash.exe", "part_missing_fast"), 0xC0000409, "cuda-library-missing", "cudnn_ops_infer64_8.dll"),
    Told(("crash.exe", "failed_assert", "3"), 3, "assertion-failed", "number == 7"),
    Told(("crash.exe", "throw_runtime_error", "7"), 3, "uncaught-cpp-exception", "bad shape [7]"),
    Told(("crash.exe", "throw_at_exit"), 3, "uncaught-cpp-exception", "after main"),
    Told(("crash.exe", "pure_virtual"), 3, "pure-virtual-call", ""),
    Told(("crash.exe", "raise_fail_fast"), 0xC0000602, "fast-fail", "RaiseFailFastException"),
    Told(("missing/needs.exe",), 0xC0000135, "missing-library", "helper.dll"),
    Told(("delayed/needs.exe",), 0xC06D007E, "missing-library", "helper.dll"),
    # Wine says of a file that is no DLL what Windows says of one that is not there.
    Told(("damaged/needs.exe",), 0xC0000135, "missing-library", ""),
    Told(("refuses/needs.exe",), 0xC0000142, "exit-status-only", "its start-up code failed"),
    Told(("crash.exe", "part_missing"), 3, "cuda-library-missing", "cudnn_ops_infer64_8.dll"),
    # Nothing was written, and an exit code of 3 may be anybody's.
    Told(("crash.exe", "plain_abort"), 3, "exit-status-only", "abort()"),
)


@pytest.mark.parametrize("told", TOLD, ids=lambda told: "-".join(told.command))
def test_what_it_said_decides(tmp_path: Path, told: Told) -> None:
    name, *words = told.command
    done, document = supervised(tmp_path, program(name), *words, log=True)
    assert done.code32 == told.code
    (report,) = document["reports"]
    assert report["verdict"] is not None, done
    assert report["verdict"]["rule"] == told.rule, report["verdict"]["summary"]
    assert told.says in report["verdict"]["summary"]


@pytest.mark.parametrize("verb", ["bounded_recursion", "handled", "hundred_levels"])
def test_what_lives_has_no_report(tmp_path: Path, verb: str) -> None:
    done, document = supervised(tmp_path, program(), verb)
    assert done.code32 == 0
    assert document["reports"] == []


def test_a_library_that_python_called(tmp_path: Path) -> None:
    """ctypes swallows an exception on the thread that calls; the library dies on one of its own."""
    code = f"import ctypes; ctypes.CDLL(r'{program('crash.dll')}').crash_on_a_thread(b'null_member', 0)"
    _, document = supervised(tmp_path, "python", "-c", code)
    (report,) = document["reports"]
    assert report["verdict"]["rule"] == "null-dereference"
    assert report["verdict"]["culprit"]["function"] == "weight_of"
    assert report["verdict"]["culprit"]["module"] == "crash.dll"
    assert report["crash"]["environment"]["python"].startswith("3.11.")
    assert [process["python"] for process in document["processes"]] == [report["crash"]["environment"]["python"]]
    # What else it was started with is somebody's own.
    variables = report["crash"]["environment"]["variables"]
    assert not {name.upper() for name in variables} & {"PATH", "USERNAME", "NECROPSY_KEEP"}
