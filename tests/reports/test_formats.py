"""Formats are found by their files; each has a test, and is offered where it is of use."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from necropsy import reports, serialize
from necropsy.cli import main
from necropsy.model import Crash, Diagnosis, Document, DocumentKind, Evidence, Report, Subject, Tool
from necropsy.reports import FORMATS, formats

TESTS = Path(__file__).parent.parent
FOLDER = Path(formats.__file__).parent
FILES = sorted(path for path in FOLDER.glob("*/*.py") if not path.name.startswith("_"))
TESTED_ELSEWHERE = {"json": "test_serialize.py", "github": "test_check.py", "sarif": "test_check.py"}
TESTED_ELSEWHERE |= {"junit": "reports/test_crash_formats.py"}
BRACKETS = "<b>[x](javascript:y)</b>\x1b[31m\n::error::z"


def of_kind(kind: str) -> Document:
    found = Diagnosis(
        rule="op-lock-order",
        title=BRACKETS,
        summary=BRACKETS,
        severity="error",
        confidence="certain",
        evidence=(Evidence(claim=BRACKETS, seen=BRACKETS),),
    )
    tool = Tool(name="necropsy", version="1")
    kinds: dict[str, DocumentKind] = {"crash": "diagnosis", "audit": "audit"}
    return Document(
        kind=kinds[kind],
        id="",
        tool=tool,
        complete=True,
        subject=Subject(kind="source"),
        findings=(found,),
        reports=(Report(crash=Crash(), verdict=found),) if kind == "crash" else (),
    )


@pytest.mark.parametrize("name", [*FORMATS, *(path.stem for path in FILES)])
def test_each_format_has_a_test(name: str) -> None:
    wanted = [f"reports/test_{name}.py", f"reports/formats/test_{name}.py", TESTED_ELSEWHERE.get(name, "-")]
    assert any((TESTS / one).exists() for one in wanted), f"write a test of the format {name}: tests/{wanted[1]}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_format_is_rendered_and_keeps_a_terminal_safe(path: Path) -> None:
    said = reports.rendered(of_kind(path.parent.name), path.stem)
    assert isinstance(said, str)
    assert "op-lock-order" in said
    assert "\x1b" not in said
    assert "\n::error::z" not in said


def test_formats_are_offered_where_they_are_of_use(capfd: pytest.CaptureFixture[str]) -> None:
    assert formats.names("audit") == ("github", "sarif")
    assert formats.names("run") == formats.names("diagnosis") == formats.names("triage") == ("github", "junit", "sarif")
    assert formats.names("no-such-kind") == ()
    assert main(["check", "x.py", "--format", "nonsense"]) == 2
    assert "sarif" in capfd.readouterr().err
    assert main(["doctor", "--format", "sarif"]) == 2
    assert "sarif" in capfd.readouterr().err


def test_a_kept_document_of_another_kind_says_which_forms_it_has(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "doctor.json"
    serialize.write(msgspec.structs.replace(of_kind("audit"), kind="doctor", id="20261121T004512Z-9f86d081"), path)
    assert main(["show", str(path), "--format", "junit"]) == 65
    assert "a document of kind doctor has no form junit: choose one of text, json" in capfd.readouterr().err


def test_a_file_is_all_that_a_format_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crash").mkdir()
    (tmp_path / "crash" / "shout.py").write_text("def render(document, pages):\n    return document.kind.upper()\n")
    monkeypatch.setattr(formats, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(formats, "__path__", [str(tmp_path)])
    for name in [name for name in sys.modules if name.startswith("necropsy.reports.formats.crash")]:
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    assert formats.names("run") == ("shout",)
    assert reports.rendered(of_kind("crash"), "shout") == "DIAGNOSIS"
    sys.modules.pop("necropsy.reports.formats.crash.shout")
    sys.modules.pop("necropsy.reports.formats.crash")


def test_names_of_formats_load_neither_the_model_nor_a_format() -> None:
    code = "import sys; from necropsy.reports import formats; formats.names('audit'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"necropsy.model", "necropsy.reports.formats.audit.sarif"} & set(done.stdout.split())
