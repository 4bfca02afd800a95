"""Packages whose import ends the process, raises an exception or does not end: doctor imports them in a process."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

import standing
from doctor_building import NATIVE, OF_THE_MACHINE, SUFFIX, Venv, library, needs_compiler, wheel
from necropsy import probing
from necropsy.doctor import collect
from necropsy.examine import examine
from necropsy.model import Diagnosis, Document
from necropsy.rules import environment_rules

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the libraries and signals are those of Linux")


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv.make(tmp_path / "env")


def only(document: Document) -> Diagnosis:
    assert len(document.findings) == 1, [one.summary for one in document.findings]
    return document.findings[0]


def package(venv: Venv, name: str, code: str, **files: Path) -> None:
    paths: dict[str, str | Path] = {f"{name}/__init__.py": code}
    paths |= {f"{name}/{path.name}": path for path in files.values()}
    venv.install(name, "1.0", paths, tags=NATIVE if files else ("py3-none-any",))


@needs_compiler
def test_an_import_that_is_killed_has_the_cause_of_the_crash(venv: Venv, tmp_path: Path) -> None:
    code = "__attribute__((constructor)) static void start(void) { *(volatile int *)8 = 1; }"
    built = library(tmp_path / f"_c{SUFFIX}", code)
    package(venv, "breaker", "from breaker import _c\n", native=built)
    finding = only(venv.examine("breaker", probe=True))
    assert (finding.rule, finding.severity) == ("env-import-crash", "error")
    assert "breaker of breaker 1.0 ends the process (killed by SIGSEGV)" in finding.summary
    seen = {one.claim: one.seen for one in finding.evidence}
    assert seen["where it died"] == built.name
    assert "the cause, by the rule null-dereference" in seen
    venv.add_pip()
    files: dict[str, str | Path] = {"breaker/__init__.py": "", f"breaker/{built.name}": library(tmp_path / "whole.so")}
    wheel(tmp_path / "wheels", "breaker", "1.0", files, tags=NATIVE)
    venv.repair(finding, tmp_path / "wheels", fix=-1)
    assert venv.examine("breaker", probe=True).findings == ()


def test_a_process_that_ends_itself_while_it_imports(venv: Venv) -> None:
    package(venv, "leaver", "import os\nos._exit(3)\n")
    finding = only(venv.examine("leaver", probe=True))
    assert finding.rule == "env-import-crash"
    assert "it exited with code 3" in finding.summary


def test_an_exception_is_quoted_with_its_file(venv: Venv) -> None:
    package(venv, "reader", "import helper_that_nobody_has\n")
    finding = only(venv.examine("reader", probe=True))
    assert (finding.rule, finding.severity) == ("env-import-error", "error")
    assert "No module named 'helper_that_nobody_has'" in finding.summary
    assert finding.evidence[0].where == str(venv.site / "reader" / "__init__.py")
    assert (finding.fixes[0].command or "").endswith("install helper_that_nobody_has")


@needs_compiler
def test_a_cause_that_another_rule_knows_is_told_once(venv: Venv, tmp_path: Path) -> None:
    gone = library(tmp_path / "libnowhere.so.1", "int gl(void) { return 1; }", "-Wl,-soname,libnowhere.so.1")
    built = library(tmp_path / f"_c{SUFFIX}", "int gl(void); int f(void) { return gl(); }", str(gone))
    package(venv, "viewer", "from viewer import _c\n", native=built)
    finding = only(venv.examine("viewer", probe=True))
    assert finding.rule == "env-library-missing"
    assert any("ImportError: libnowhere.so.1" in one.seen for one in finding.evidence)


def test_the_import_has_the_variables_that_doctor_was_started_with(venv: Venv, tmp_path: Path) -> None:
    package(venv, "reader", "import os, given\nif os.environ['LD_LIBRARY_PATH'] != '/mine': raise ValueError\n")
    (tmp_path / "given.py").touch()
    variables = {"PYTHONPATH": str(tmp_path), "LD_LIBRARY_PATH": "/mine"}
    assert venv.examine("reader", probe=True, variables=variables).findings == ()
    assert [one.rule for one in venv.examine("reader", probe=True).findings] == ["env-import-error"]


def test_an_import_that_does_not_end(venv: Venv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stands = tmp_path / "stands"
    package(venv, "waiter", f"import time\nopen({str(stands)!r}, 'w').close()\ntime.sleep(600)\n")

    def command(report: Path, deadline: float) -> list[str]:
        assert deadline > time.time() + 900
        words = standing.necropsy(stands)
        return [*words, "run", "--quiet", "--json", str(report), "--timeout", standing.NEVER, "--"]

    monkeypatch.setattr("necropsy.supervised.command", command)
    collected = collect.collect(collect.Wanted(python=venv.python, packages=("waiter",)))
    answers = examine(probing.imported(collected, limit_s=1000), environment_rules())
    (finding,) = (one for one in answers.findings if one.rule not in OF_THE_MACHINE)
    assert finding.rule == "env-import-slow"
    assert "Importing waiter of waiter 1.0 did not end within the time limit" in finding.summary


def test_nothing_is_written_and_a_module_that_nobody_needs_is_a_warning(venv: Venv) -> None:
    files: dict[str, str | Path] = {"reader/__init__.py": "", "plugin/__init__.py": "raise OSError('not here')\n"}
    venv.install("reader", "1.0", files)
    before = set(venv.site.rglob("*"))
    finding = only(venv.examine("reader", probe=True))
    assert (finding.rule, finding.severity) == ("env-import-error", "warning")
    assert "plugin of reader 1.0 cannot be imported: OSError: not here." in finding.summary
    assert set(venv.site.rglob("*")) == before
