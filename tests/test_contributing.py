"""What contributors are told exists, and what GitHub and PyPI are given is well-formed."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
GUIDES = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs" / "dev").glob("*.md"))]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TOP = ("src/", "tests/", "docs/", "scripts/", "benchmarks/", "changelog.d", ".github/", ".pre-commit")

each_guide = pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


@each_guide
def test_each_path_that_a_guide_names_exists(guide: Path) -> None:
    named = re.findall(r"`([^`\s]+)`", guide.read_text(encoding="utf-8"))
    # Capitals stand for a name of the reader's own.
    paths = [one for one in named if one.startswith(TOP) and not re.search(r"[A-Z]{4,}", one.removesuffix(".md"))]
    missing = [one for one in paths if not (ROOT / one).exists()]
    assert not missing, f"{guide.name} names files that do not exist (were they renamed?): {missing}"
    assert paths or guide.parent.name == "dev"


@each_guide
def test_each_target_of_make_exists(guide: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"^\$ make (\w[\w-]*)|`make (\w[\w-]*)`", guide.read_text(encoding="utf-8"), re.MULTILINE)
    assert {one or other for one, other in named} <= set(targets)


def test_each_class_in_the_glossary_exists() -> None:
    glossary = (ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8").partition("## Glossary")[2]
    words = re.findall(r"^\| `(\w+)` \|", glossary, re.MULTILINE)
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "necropsy").rglob("*.py"))
    assert len(words) > 15
    assert [word for word in words if not re.search(rf"^class {word}\b", code, re.MULTILINE)] == []
    assert words == sorted(words)


def test_the_example_of_a_phrase_can_be_read() -> None:
    from necropsy.formats import phrases

    (row,) = re.findall(r"^```toml\n(.*?)^```", GUIDES[0].read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (phrase,) = phrases.parse(row)
    assert phrase.match(phrase.example)


def test_the_example_of_a_sketch_can_be_read() -> None:
    from sketch import crash

    (text,) = re.findall(r"^```text\n(.*?)^```", GUIDES[0].read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found = crash(text)
    assert found.fault is not None
    assert found.threads
    assert found.messages


# ---------------------------------------------------------------- YAML


def loaded(path: Path) -> Any:
    yaml = pytest.importorskip("yaml", reason="needs the extra `docs` (PyYAML)")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


JOB = {
    *("runs-on", "needs", "if", "steps", "strategy", "timeout-minutes", "env", "permissions", "environment"),
    *("defaults", "uses", "name", "services", "container"),
}
STEP = {"uses", "run", "with", "name", "if", "env", "id", "shell", "working-directory", "continue-on-error"}


@each_workflow
def test_a_workflow_has_the_keys_of_the_schema(path: Path) -> None:
    workflow = loaded(path)
    # YAML 1.1 reads `on` as true.
    assert set(workflow) <= {"name", True, "permissions", "concurrency", "env", "defaults", "jobs"}
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["jobs"]
    for job in workflow["jobs"].values():
        assert set(job) <= JOB
        assert ("steps" in job and "runs-on" in job) or job["uses"].startswith("./.github/workflows/")
        assert set([job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])) <= set(
            workflow["jobs"]
        )
        for step in job.get("steps", ()):
            assert set(step) <= STEP
            assert ("run" in step) != ("uses" in step)
    used = [step["uses"] for job in workflow["jobs"].values() for step in job.get("steps", ()) if "uses" in step]
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@(?:v\d+|release/v\d+)", one)] == []
    for job in workflow["jobs"].values():
        assert "uses" not in job or (ROOT / job["uses"]).exists()


@each_workflow
def test_a_workflow_runs_what_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake (\w[\w-]*)", text)) <= set(targets)
    assert [one for one in re.findall(r"\btests/[\w/]+\.py", text) if not (ROOT / one).exists()] == []


def test_every_supported_python_is_tested() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    matrix = loaded(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["linux"]["strategy"]["matrix"]
    assert matrix["python"] == re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)


def test_only_publishing_has_an_identity() -> None:
    jobs = loaded(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == {"publish"}
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}


def test_the_issue_form_has_the_keys_of_the_schema() -> None:
    form = loaded(ROOT / ".github" / "ISSUE_TEMPLATE" / "report.yml")
    assert set(form) <= {"name", "description", "title", "labels", "assignees", "projects", "type", "body"}
    for part in form["body"]:
        assert set(part) <= {"type", "id", "attributes", "validations"}
        assert part["type"] in {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        assert part["attributes"]["value" if part["type"] == "markdown" else "label"]
    ids = [part["id"] for part in form["body"] if "id" in part]
    assert len(ids) == len(set(ids)) > 3


def test_the_hooks_of_pre_commit_have_what_they_need() -> None:
    (repository,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert [hook for hook in repository["hooks"] if not {"id", "name", "entry", "language"} <= set(hook)] == []


# ---------------------------------------------------------------- the changelog

COLLECT = ROOT / "scripts" / "collect_changelog.py"
SCRIPT = runpy.run_path(str(COLLECT))


def test_each_fragment_can_be_collected() -> None:
    assert [problem for path in (ROOT / "changelog.d").glob("*") if (problem := SCRIPT["problem_with"](path))] == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "changelog.d").mkdir()
    shutil.copy(COLLECT, tmp_path / "scripts")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## Unreleased\n\n### Added\n\n- Old.\n\n### Fixed\n\n- Mended.\n\n## 0.1.0\n\n### Fixed\n\n- Older.\n"
    )
    return tmp_path


def collect(tree: Path, version: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / "scripts" / "collect_changelog.py"), version]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_fragments_become_items_under_the_version(tree: Path) -> None:
    (tree / "changelog.d" / "a.added.md").write_text("New\nthing.\n")
    (tree / "changelog.d" / "b.security.md").write_text("Safer.\n")
    assert collect(tree, "0.2.0").returncode == 0
    text = re.sub(r"\d{4}-\d\d-\d\d", "DAY", (tree / "CHANGELOG.md").read_text())
    assert text == (
        "# Changelog\n\n## Unreleased\n\n## 0.2.0 (DAY)\n\n### Added\n\n- Old.\n- New\n  thing.\n\n"
        "### Fixed\n\n- Mended.\n\n### Security\n\n- Safer.\n\n## 0.1.0\n\n### Fixed\n\n- Older.\n"
    )
    assert list((tree / "changelog.d").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "version", "problem"),
    [
        ("a.new.md", "x", "0.2.0", "KIND is one of added"),
        ("a.added.md", "", "0.2.0", "one paragraph"),
        ("a.added.md", "- x", "0.2.0", "one paragraph"),
        ("a.added.md", "x", "next", "next is not a version"),
    ],
)
def test_what_cannot_be_collected_is_named_and_stays(
    tree: Path, name: str, text: str, version: str, problem: str
) -> None:
    (tree / "changelog.d" / name).write_text(text)
    before = (tree / "CHANGELOG.md").read_text()
    done = collect(tree, version)
    assert done.returncode == 2
    assert problem in done.stderr
    assert (tree / "CHANGELOG.md").read_text() == before
    assert (tree / "changelog.d" / name).exists()
