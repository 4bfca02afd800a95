"""What scripts/new_rule.py writes is a rule, and is not taken for a finished one."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from necropsy.model import Crash, Dataset, Environment, Part
from necropsy.rule import Rule

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "new_rule.py"
NAMES = {"crash": "lost-connection", "env": "env-disk-slow", "op": "op-odd-thing", "data": "data-weird"}


def marks(root: Path) -> list[str]:
    """Each line of a rule or of a case that is still to be written."""
    files = [*(root / "src" / "necropsy" / "rules").rglob("*.py"), *(root / "tests" / "cases").rglob("*.txt")]
    return [
        f"{path.relative_to(root).as_posix()}:{number}: {line.strip()}"
        for path in sorted(files)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"FILL.IN", line)
    ]


def test_no_rule_is_a_skeleton() -> None:
    found = marks(ROOT)
    assert not found, "rules that are not written yet (CONTRIBUTING.md, A rule):\n" + "\n".join(found)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with nothing but a skeleton of each kind."""
    root = tmp_path_factory.mktemp("tree")
    (root / "scripts").mkdir()
    shutil.copy(SCRIPT, root / "scripts")
    shutil.copy(ROOT / "pyproject.toml", root)
    for name in NAMES.values():
        done = new_rule(root, name)
        assert done.returncode == 0, done.stderr
    return root


def new_rule(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "scripts" / "new_rule.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_skeleton_passes_the_linter(tree: Path) -> None:
    for words in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--no-cache", "src"]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", NAMES)
def test_a_skeleton_is_a_rule_that_finds_nothing_yet(tree: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stem = NAMES[kind].replace("-", "_")
    spec = importlib.util.spec_from_file_location(stem, tree / "src" / "necropsy" / "rules" / kind / f"{stem}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, stem, module)
    spec.loader.exec_module(module)
    rule = module.RULE
    assert isinstance(rule, Rule)
    assert rule.name == NAMES[kind]
    subjects = (Crash(), Environment(), Part(dataset=Dataset()))
    assert [rule.match(one) for one in subjects if type(one) is rule.subject] == [None]


def test_each_line_to_be_written_is_named(tree: Path) -> None:
    found = marks(tree)
    assert {one.partition(":")[0] for one in found} == {
        "src/necropsy/rules/crash/lost_connection.py",
        "src/necropsy/rules/env/env_disk_slow.py",
        "src/necropsy/rules/op/op_odd_thing.py",
        "src/necropsy/rules/data/data_weird.py",
        "tests/cases/lost-connection/first.txt",
        "tests/cases/lost-connection/second.txt",
    }
    assert "src/necropsy/rules/env/env_disk_slow.py:1: " in "\n".join(found)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["lost-connection"], "src/necropsy/rules/crash/lost_connection.py exists already"),
        (["LostConnection"], "two or more words of lower case"),
        (["disk-slow", "--kind", "env"], "is called env-disk-slow"),
        (["../../x-y"], "two or more words of lower case"),
    ],
)
def test_a_name_that_will_not_do_is_refused(tree: Path, words: list[str], problem: str) -> None:
    done = new_rule(tree, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
