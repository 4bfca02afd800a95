"""The programs of the benchmark of ``necropsy reduce``: what the table says of them is true."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from necropsy.reduce.program import Program
from necropsy.reduce.python_source import compiles
from necropsy.reduce.statements import count_statements

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def table() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("reduce_programs")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_each_folder_is_in_the_table_once(table: Any) -> None:
    folders = {path.name for path in table.FOLDER.iterdir() if path.is_dir()} - {"by_hand", "__pycache__"}
    assert sorted(one.name for one in table.SUBJECTS) == sorted(folders)


def test_the_programs_are_what_the_table_says(table: Any, tmp_path: Path) -> None:
    for subject in table.SUBJECTS:
        folder = table.FOLDER / subject.name
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}
        assert subject.script in files, subject.name
        assert all(map(compiles, files.values())), subject.name
        before = count_statements(Program(files, subject.script))
        assert 50 <= before <= 150, subject.name
        assert any(subject.culprit.encode() in data for data in files.values()), subject.name
        by_hand = {"by_hand.py": subject.by_hand.read_bytes()}
        assert compiles(by_hand["by_hand.py"]), subject.name
        assert 0 < count_statements(Program(by_hand, "by_hand.py")) <= before / 4, subject.name
        made = tmp_path / subject.name
        made.mkdir()
        subject.data(made)
        named = [word for word in subject.arguments[1:] if word.endswith((".csv", ".json", ".jsonl", ".bin", ".txt"))]
        assert all((made / name).is_file() for name in named), subject.name
