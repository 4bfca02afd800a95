"""The text of a written test: plain Python with the same lines for any headline, in a file of its own for each call."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from necropsy.errors import NecropsyError
from necropsy.fuzz import sanitizer_tests
from necropsy.fuzz import test_writer as writer
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.recipes import Recipe, Tensor
from necropsy.fuzz.sanitized_build import SanitizedBuild
from necropsy.fuzz.sanitizing_compilers import SanitizingCompiler
from necropsy.fuzz.target.functions import VARIABLE

RECIPE = Recipe("ops.GatherRows", {"rows": Tensor("int32", (1,), "same", (-1,))}, {"mode": "a'b"})


GCC = SanitizingCompiler("gcc", "g++", "/lib/gcc/libasan.so")
CLANG = SanitizingCompiler("clang", "/opt/bin/clang++", "/lib/clang/libclang_rt.asan.so")
LIBRARY = writer.Source(library=Path("/elsewhere/my_op.so"))
SOURCES = (
    LIBRARY,
    writer.Source(),
    writer.Source(module="/elsewhere/bindings.py", function="f"),
    writer.Source(module="package.bindings", function="f"),
)


def text(
    headline: str,
    *,
    repeated: int = 1,
    source: writer.Source = LIBRARY,
    configuration: Configuration = PLAIN,
) -> str:
    return writer.text_of(
        "GatherRows",
        RECIPE,
        repeated=repeated,
        headline=headline,
        source=source,
        place=Path("/somewhere/tests/test_gather_rows.py"),
        configuration=configuration,
    )


def test_what_it_imports_and_where_its_lines_are() -> None:
    plain, odd = text("x"), text('It """died"""\n of \\ this. ' * 20)
    assert len(plain.splitlines()) == len(odd.splitlines())
    for one in (plain, odd, text("x", repeated=30), *(text("x", source=one) for one in SOURCES)):
        tree = ast.parse(one)
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert imported <= {"os", "sys", "runpy", "importlib", "numpy", "tensorflow"}
        assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == ["test_gather_rows"]
    assert "range(30)" in text("x", repeated=30)
    assert VARIABLE in plain
    assert "'../../elsewhere/my_op.so'" in plain
    assert "tf.raw_ops" in text("x", source=SOURCES[1])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("configuration", "line"),
    [
        (Configuration(guard="end"), "necropsy_guard_arm(-1)"),
        (Configuration(guard="begin"), '"NECROPSY_GUARD": "disarmed,small=1,large=1,begin"'),
        (Configuration(stack=512 << 10), "resource.setrlimit(resource.RLIMIT_STACK, (524288, hard))"),
    ],
)
def test_a_call_that_survives_plainly_has_a_process_of_its_own(
    source: writer.Source, configuration: Configuration, line: str
) -> None:
    plain, odd = (text(one, source=source, configuration=configuration) for one in ("x", '"""' * 99))
    assert len(plain.splitlines()) == len(odd.splitlines())
    assert line in plain
    assert ("--guard" in plain) == (configuration.guard is not None)
    tree = ast.parse(odd)
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == [
        writer.function_name("GatherRows", configuration),
        "test_gather_rows",
    ]
    at_the_top = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert not at_the_top & {"numpy", "tensorflow", "pytest"}, "the test's own process needs none of them"


@pytest.mark.parametrize("source", [LIBRARY, *SOURCES[2:]])
@pytest.mark.parametrize(
    ("names", "used", "compilers"),
    [
        (("my op.cc", "more.cc"), GCC, ["g++", "clang++"]),
        (("op.c",), GCC, ["gcc", "clang"]),
        (("op.cc",), CLANG, ["clang++", "g++"]),
        (("op.c",), CLANG, ["clang", "gcc"]),
    ],
)
def test_a_sanitized_call_is_built_from_its_source(
    source: writer.Source, names: tuple[str, ...], used: SanitizingCompiler, compilers: list[str]
) -> None:
    build = SanitizedBuild(Path("/builds/my_op.so"), tuple(Path("/elsewhere", name) for name in names), used)

    def text(headline: str, rule: str) -> str:
        place = Path("/somewhere/tests/test_gather_rows.py")
        return sanitizer_tests.text_of(
            "GatherRows", RECIPE, headline=headline, rule=rule, source=source, place=place, build=build
        )

    plain, odd = text("x", "stack-smash"), text('"""' * 99, "a report")
    assert len(plain.splitlines()) == len(odd.splitlines())
    tree = ast.parse(odd)
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == [
        "call_gather_rows",
        "test_gather_rows",
    ]
    at_the_top = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert at_the_top <= {"os", "shutil", "subprocess", "sys", "tempfile", "runpy", "importlib"}
    named = next(line for line in plain.splitlines() if line.startswith("COMPILERS = "))
    assert list(ast.literal_eval(named.removeprefix("COMPILERS = "))) == compilers, "the one that was used comes first"
    assert repr([f"../../elsewhere/{name}" for name in names]) in plain
    assert 'pytest.fail(f"stack-smash: {reports[0]}")' in plain
    assert ("get_compile_flags" in plain) == (source is LIBRARY)
    assert used.runtime not in plain, "another machine has it elsewhere"


def test_each_call_has_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "fuzz"
    first, second, third = (folder / f"test_gather_rows{number}.py" for number in ("", "_2", "_3"))
    assert writer.place_for(folder, "GatherRows", RECIPE) == (first, True)
    first.write_text(text("x"))
    assert writer.place_for(folder, "GatherRows", RECIPE) == (first, False)
    assert writer.place_for(folder, "GatherRows", RECIPE.with_attribute("mode", "c")) == (second, True)
    first.write_text("import os\n")  # the user's own
    assert writer.place_for(folder, "GatherRows", RECIPE) == (third, True)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NecropsyError, match=r"cannot write to .*file/fuzz: Not a directory"):
        writer.place_for(tmp_path / "file" / "fuzz", "GatherRows", RECIPE)
