"""compile_commands.json: which one is used, and what the reader of sources takes from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.audit.cxx import checks
from necropsy.audit.cxx.load import BuildFlags, Reader, load
from necropsy.audit.layers import compile_commands
from necropsy.audit.reading import AuditOptions, read_all

STACK = 8 << 20
OP = """#include <tables/sizes.h>
#include "scratch.h"
void Sum(int n) {
#if ON_STACK
  double table[kTable];
  Fill(table, n);
#endif
}
"""


def database(project: Path, source: Path, *words: str, folder: str = "build") -> Path:
    at = project / folder / "compile_commands.json"
    at.parent.mkdir(exist_ok=True)
    entry = {"directory": str(project), "file": str(source), "arguments": ["c++", *words, "-c", str(source)]}
    at.write_text(json.dumps([entry]))
    return at


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for path, text in {
        "src/op.cc": OP,
        "include/tables/sizes.h": "constexpr int kTable = 4000000;\n",
        "internal/scratch.h": "void Fill(double* table, int n);\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_headers_and_macros_of_the_build_are_read(project: Path) -> None:
    source = project / "src" / "op.cc"
    without = checks.look(str(source), STACK)
    assert [one.part for one in without.gaps] == ['header "scratch.h"']
    assert not without.defects
    database(project, source, "-Iinclude", "-I", str(project / "internal"), "-DON_STACK")
    found = checks.look(str(source), STACK)
    assert not found.gaps
    assert [(one.rule, one.place.line, one.numbers["bytes"]) for one in found.defects] == [
        ("op-large-frame", 5, 32_000_000)
    ]


def test_headers_outside_of_the_project_are_not_read(project: Path, tmp_path: Path) -> None:
    source = project / "src" / "op.cc"
    outside = tmp_path / "outside"
    (project / "include").rename(outside)
    database(project, source, f"-I{outside}", "-isystem", str(project / "internal"), "-DON_STACK")
    flags = compile_commands.flags(str(source))
    assert flags.folders == ()
    assert str(outside) not in " ".join(one.path for one in load(str(source), Reader((), flags)).files)


def test_macros_of_other_builds_do_not_count() -> None:
    words = ("-DGOOGLE_CUDA=1", "-DSIZE=4", "-D", "PLAIN", "-DGONE", "-UGONE", "-O2")
    command = compile_commands.CompileCommand("db", Path("/p"), Path("/p"), words)
    assert command.flags == BuildFlags((), ("SIZE 4", "PLAIN 1"))


def test_the_nearest_database_that_lists_the_source(project: Path) -> None:
    source = project / "src" / "op.cc"
    database(project, source, "-DFAR")
    database(project / "src", project / "src" / "other.cc", "-DNEAR", folder="")
    found = compile_commands.of(str(source))
    assert found is not None
    assert found.flags.macros == ("FAR 1",)


@pytest.mark.parametrize("text", ["", "{", '{"directory": 1}', '[{"directory": "x"}]', "\xff"])
def test_a_file_that_is_no_database_is_said_in_one_line(project: Path, text: str) -> None:
    source = project / "src" / "op.cc"
    path = project / "compile_commands.json"
    path.write_text(text, encoding="latin-1")
    assert compile_commands.of(str(source)) is None
    assert compile_commands.trouble(str(source)) == f"{path} is not a compile database"


@given(st.lists(st.text(max_size=12), max_size=12))
def test_any_words_are_options_or_none(words: list[str]) -> None:
    command = compile_commands.CompileCommand("db", Path("/p"), Path("/p"), tuple(words))
    assert len(list(command.options)) <= len(words)
    assert all(one.startswith("/p") for one in command.flags.folders)


def test_a_changed_database_is_noticed_behind_the_cache(project: Path, tmp_path: Path) -> None:
    source = str(project / "src" / "op.cc")
    options = AuditOptions(stack=STACK, top=1, follow=True, version="1")

    def rules() -> list[str]:
        (one,) = read_all([source], options, jobs=1, cache=tmp_path / "cache")
        return [each.rule for each in one.code or ()]

    database(project, Path(source), "-Iinclude", "-Iinternal", "-DON_STACK=0")
    assert rules() == []
    database(project, Path(source), "-Iinclude", "-Iinternal", "-DON_STACK")
    assert rules() == ["op-large-frame"]
