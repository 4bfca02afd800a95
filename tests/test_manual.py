"""Generated pages are as their sources say, and links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from necropsy import serialize
from necropsy.cli.commands import cli

DOCS = Path(__file__).parent.parent / "docs"
# Our own pages; those of rules/ have tests of their own beside the rules.
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "rules")


@pytest.mark.parametrize("generator", ["generate_cli.py", "generate_json.py"])
def test_generated_pages_are_fresh(generator: str) -> None:
    done = subprocess.run([sys.executable, DOCS / generator, "--check"], check=False)
    assert done.returncode == 0, f"run `make docs` (python docs/{generator})"


def test_every_command_and_option_is_documented() -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    for name, command in cli.commands.items():
        assert f"## necropsy {name}\n" in page
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.opts[0] in page


def test_the_schema_on_disk_is_the_records() -> None:
    on_disk = json.loads((DOCS / "reference" / "necropsy.schema.json").read_text())
    assert on_disk["$defs"] == json.loads(json.dumps(serialize.json_schema()["$defs"]))
    assert on_disk["$ref"] == "#/$defs/Document"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    # Code is no link: `operator[](size_type)`.
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", page.read_text())
    for target in re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", text):
        if target and "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_anchors_are_there(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]*)\)", page.read_text()):
        text = (page.parent / target).read_text() if target else page.read_text()
        titles = [
            re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        ]
        assert anchor in titles


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_json_in_the_pages_is_json(page: Path) -> None:
    for block in re.findall(r"^```json\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        json.loads(block)


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    for page in (DOCS / "how-to").glob("*.md"):
        assert f"(how-to/{page.name})" in index


def programs(page: Path) -> list[str]:
    """The Python programs of a page, in their order."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def necropsy(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "necropsy", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.skipif(sys.platform != "linux", reason="`necropsy run` is for Linux")
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    dies, deep = programs(DOCS / "tutorial" / "first-dead-process.md")
    (tmp_path / "dies.py").write_text(dies)
    (tmp_path / "deep.py").write_text(deep)
    dead = necropsy(tmp_path, "run", sys.executable, "dies.py")
    assert dead.returncode == -11
    assert dead.stdout == "batch 0\nbatch 1\nbatch 2\n"
    assert "null-dereference" in dead.stderr
    assert dead.stderr.startswith("\nnecropsy: dies.py:5, in load, crashed (SIGSEGV): ")
    full = necropsy(tmp_path, "show", "--full")
    assert re.search(r"Python: \S*dies\.py:5 in load", full.stdout)
    shown = (DOCS / "tutorial" / "first-dead-process.md").read_text()
    assert re.findall(r"^necropsy: .*", dead.stderr, re.MULTILINE)[0] in shown, "run `make outputs`"
    page = necropsy(tmp_path, "show", "--format", "html")
    assert page.stdout.startswith("<!doctype html>")
    assert page.returncode == 0
    survives = necropsy(tmp_path, "run", "--always", sys.executable, "deep.py")
    assert (survives.returncode, survives.stdout) == (0, "1202\n")
    assert "main thread" in survives.stderr
    assert necropsy(tmp_path, "explain", "null-dereference").returncode == 0


def explained() -> list[list[str]]:
    """The words of each example of `necropsy explain` that needs no file, in the manual and in the help."""
    text = "\n".join((DOCS / name).read_text() for name in ("how-to/explain-a-log.md", "reference/cli.md"))
    found = [shlex.split(line, comments=True) for line in re.findall(r"^ *necropsy explain (.*)$", text, re.MULTILINE)]
    return [
        words for words in found if not any(word == "-" or word.endswith((".log", ".ips", ".zip")) for word in words)
    ]


def test_the_examples_of_explain_say_something(tmp_path: Path) -> None:
    assert len(explained()) > 5
    for words in explained():
        done = necropsy(tmp_path, "explain", *words)
        assert done.returncode == 0, words
        assert not done.stdout.startswith(("Nothing found", "exit code 0")), words
        if "segfault at" in words[0]:
            assert "(null-dereference)" in done.stdout
