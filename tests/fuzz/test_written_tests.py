"""The text of a written test: plain Python with the same lines for any headline, in a file of its own for each call."""

from __future__ import annotations

import ast
from pathlib import Path

from necropsy.fuzz import test_writer as writer
from necropsy.fuzz.recipes import Recipe, Tensor

RECIPE = Recipe("ops.GatherRows", {"rows": Tensor("int32", (1,), "same", (-1,))}, {"mode": "a'b"})


LIBRARY = writer.Source(library=Path("/elsewhere/my_op.so"))
SOURCES = (
    LIBRARY,
    writer.Source(),
    writer.Source(module="/elsewhere/bindings.py", function="f"),
    writer.Source(module="package.bindings", function="f"),
)


def text(headline: str, *, repeated: int = 1, source: writer.Source = LIBRARY) -> str:
    place = Path("/somewhere/tests/test_gather_rows.py")
    return writer.text_of("GatherRows", RECIPE, repeated=repeated, headline=headline, source=source, place=place)


def test_what_it_imports_and_where_its_lines_are() -> None:
    plain, odd = text("x"), text('It """died"""\n of \\ this. ' * 20)
    assert len(plain.splitlines()) == len(odd.splitlines())
    for one in (plain, odd, text("x", repeated=30), *(text("x", source=one) for one in SOURCES)):
        tree = ast.parse(one)
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert imported <= {"os", "sys", "runpy", "importlib", "numpy", "tensorflow"}
        assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == ["test_gather_rows"]
    assert "range(30)" in text("x", repeated=30)
    assert writer.VARIABLE in plain
    assert "'../../elsewhere/my_op.so'" in plain
    assert "tf.raw_ops" in text("x", source=SOURCES[1])


def test_each_call_has_its_file(tmp_path: Path) -> None:
    first = writer.place_for(tmp_path, "GatherRows", RECIPE)
    assert first == tmp_path / "test_gather_rows.py"
    first.write_text(text("x"))
    assert writer.place_for(tmp_path, "GatherRows", RECIPE) == first
    other = RECIPE.with_attribute("mode", "c")
    assert writer.place_for(tmp_path, "GatherRows", other) == tmp_path / "test_gather_rows_2.py"
    first.write_text("import os\n")  # the user's own
    assert writer.place_for(tmp_path, "GatherRows", RECIPE) == tmp_path / "test_gather_rows_2.py"
