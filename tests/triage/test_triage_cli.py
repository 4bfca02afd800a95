"""`necropsy triage` as it is typed: what it prints, and with which code it ends."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import fleet
import pytest

from necropsy.cli import main
from necropsy.triage import store_lock, store_schema
from necropsy.triage.store import FILE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["necropsy"])
    fleet.fill(tmp_path / "in", {"score_rows": 3, "merge_rows": 1})
    return tmp_path


def triage(*words: str | Path) -> int:
    return main(["triage", *map(str, words)])


def asked(capfd: pytest.CaptureFixture[str], sql: str) -> list[dict[str, object]]:
    capfd.readouterr()
    assert triage("--store", "store", "--query", sql, "--format", "json") == 0
    found: list[dict[str, object]] = json.loads(capfd.readouterr().out)
    return found


def test_a_list_of_bugs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert triage("in", "--json", "out.json", "--jobs", "1") == 0
    said = capfd.readouterr().out
    assert "4 deaths are 2 bugs" in said
    assert "null pointer in rows::score_rows, called from train.py:7 score()" in said
    document = json.loads((folder / "out.json").read_text())
    assert document["kind"] == "triage"
    assert document["subject"] == {"kind": "folders", "path": str(folder / "in"), "command": None, "text": None}
    example = document["triage"]["groups"][0]["example"]["path"]
    assert main(["show", example]) == 0
    assert "null" in capfd.readouterr().out
    assert main(["show", str(folder / "out.json")]) == 0
    assert "2 bugs" in capfd.readouterr().out


def test_the_exit_code(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert triage("in", "--store", "store", "--fail-on", "new") == 1
    assert triage("in", "--store", "store", "--fail-on", "new") == 0
    assert triage("in", "--store", "store", "--fail-on", "any") == 1
    assert triage("close", _first(capfd), "--store", "store") == 0
    fleet.write(folder / "in", "back.json", number=30)
    assert triage("in", "--store", "store", "--fail-on", "new") == 1  # a regression
    (folder / "in" / "bad.json").write_text('{"schema": 1')
    assert triage("in", "--store", "store") == 1
    (folder / "in" / "bad.json").unlink()
    assert triage("in", "--store", "store") == 0
    assert triage("nix") == 66
    assert triage("--store", "nix") == 66
    assert triage("merge", "gffffffff", "g00000000", "--store", "store") == 66
    assert triage() == 2
    assert triage("merge", "gffffffff", "g00000000") == 2
    assert "Traceback" not in capfd.readouterr().err


def _first(capfd: pytest.CaptureFixture[str]) -> str:
    found = asked(capfd, "SELECT id FROM groups ORDER BY count DESC LIMIT 1")
    return str(found[0]["id"])


def test_a_store_that_cannot_be_used_has_its_own_code(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert triage("in", "--store", "store") == 0
    monkeypatch.setattr(store_lock, "WAIT_S", 0.1)
    with store_lock.held(folder / "store"):
        assert triage("in", "--store", "store") == 75
    connection = sqlite3.connect(folder / "store" / FILE)
    connection.execute(f"PRAGMA user_version = {store_schema.VERSION + 1}")
    connection.close()
    capfd.readouterr()
    assert triage("in", "--store", "store") == 65
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    assert "newer version" in said[0]


def test_corrections_are_made_by_commands(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert triage("in", "--store", "store") == 0
    one, two = (str(row["id"]) for row in asked(capfd, "SELECT id FROM groups ORDER BY count DESC"))
    assert triage("merge", one, two, "--store", "store") == 0
    assert "is part of" in capfd.readouterr().err
    assert triage("name", "--store", "store", two, "empty batch") == 0
    (row,) = asked(capfd, "SELECT title, count FROM groups")
    assert row == {"title": "empty batch", "count": 4}
    assert triage("split", one, "--by", "function", "--store", "store") == 0
    assert triage("close", one, "--fixed-in", "2.1", "--store", "store") == 0
    assert triage("--store", "store", "--full") == 0
    said = capfd.readouterr().out
    assert "was merged into" in said
    assert "was closed, fixed in 2.1" in said
    assert triage("close", one, "--undo", "--store", "store") == 0
    assert triage("split", one, "--by", "version", "--store", "store") == 65


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM death",
        "ATTACH '{folder}/other.db' AS other",
        "PRAGMA user_version = 9",
        "SELECT load_extension('x')",
        "COMMIT",
        "CREATE TABLE t (a)",
        "SELECT 1; SELECT 2",
        "SELECT nix FROM groups",
        "VACUUM INTO '{folder}/other.db'",
        "",
    ],
)
def test_a_query_only_reads(folder: Path, capfd: pytest.CaptureFixture[str], sql: str) -> None:
    assert triage("in", "--store", "store") == 0
    before = (folder / "store" / FILE).read_bytes()
    assert triage("--store", "store", "--query", sql.format(folder=folder)) == 65
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert (folder / "store" / FILE).read_bytes() == before
    assert not (folder / "other.db").exists()


def test_the_answer_to_a_query_as_text_and_markdown(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert triage("in", "--query", "SELECT count, title FROM groups ORDER BY count DESC") == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "count  title"
    assert lines[1].startswith("    3  null pointer in rows::score_rows")
    assert triage("in", "--query", "SELECT count, '|' AS bar FROM groups", "--format", "markdown") == 0
    assert "| 3 | \\| |" in capfd.readouterr().out
    assert triage("in", "--query", "SELECT 1", "--format", "html") == 2


def test_nothing_from_outside_reaches_the_terminal(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "in" / "escape\x1b[2J\n##[error]x.json").write_text('{"schema": 1')
    fleet.write(folder / "in", "b.json", "f\x1b[31m\n##[error]", number=70)
    assert triage("in") == 1
    told = capfd.readouterr()
    for text in (told.out, told.err):
        assert "\x1b" not in text
        assert "##[error]" not in text


def test_help_fits_a_screen(capfd: pytest.CaptureFixture[str]) -> None:
    assert triage("--help") == 0
    assert len(capfd.readouterr().out.splitlines()) <= 40
    for command in ("merge", "split", "name", "close"):
        assert triage(command, "--help") == 0
