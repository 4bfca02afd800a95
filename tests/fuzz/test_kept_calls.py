"""The corpus: what a campaign keeps, the next one begins with; anyone may have written the files."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from necropsy.errors import NecropsyError
from necropsy.fuzz.campaign import Campaign
from necropsy.fuzz.checked_recipes import UnfitRecipeError, checked_recipe
from necropsy.fuzz.corpus import MOST_FILES, Corpus, Kept, kind_of_result
from necropsy.fuzz.definitions import definition, python_function
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.recipes import DTYPES, Recipe, Tensor, to_json

OP = definition(
    {
        "name": "Pick",
        "inputArg": [{"name": "x", "typeAttr": "T"}, {"name": "more", "typeAttr": "T", "numberAttr": "N"}],
        "attr": [
            {"name": "T", "type": "type"},
            {"name": "N", "type": "int", "hasMinimum": True, "minimum": "0"},
            {"name": "axis", "type": "int"},
            {"name": "out", "type": "type", "defaultValue": {"type": "DT_FLOAT"}},
            {"name": "taps", "type": "list(float)", "defaultValue": {"list": {}}},
            {"name": "mode", "type": "string", "defaultValue": {"s": "YQ=="}},
        ],
        "kernels": [{"op": "Pick", "deviceType": "CPU"}],
    }
)
PARTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from([*sorted(DTYPES), "same", "cycle", "ramp", "random", "__import__('os')"]),
)
ANYTHING = st.recursive(
    PARTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["type", "bytes", "times", "inputs", "attributes"]), inner, max_size=3)
    ),
    max_leaves=12,
)
TENSORS = st.tuples(
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.integers(0, 4), max_size=3),
    st.tuples(st.sampled_from(["same", "cycle", "ramp", "random"]), PARTS, PARTS | st.tuples(st.text(), st.integers())),
).map(lambda one: [one[0], one[1], list(one[2])])
RECIPES = st.fixed_dictionaries(
    {
        "inputs": st.fixed_dictionaries({"x": TENSORS | ANYTHING, "more": st.lists(TENSORS, max_size=2) | ANYTHING}),
        "attributes": st.fixed_dictionaries(
            {"axis": st.integers() | ANYTHING},
            optional={
                "out": st.sampled_from([{"type": "int8"}, {"type": "int8)"}]) | ANYTHING,
                "taps": st.lists(st.floats() | st.integers(), max_size=3) | ANYTHING,
                "mode": st.text() | ANYTHING,
            },
        ),
    }
)


class Names:
    """Stands for `tf` and `np`: knows the names that recipes use, and no other."""

    KNOWN = frozenset({*DTYPES, "constant", "full", "array", "arange", "resize", "random", "bitcast", "cast", "bool_"})

    def __getattr__(self, name: str) -> Any:
        if name not in self.KNOWN and name not in {"nan", "inf", "RandomState", "randint", "uniform"}:
            raise AssertionError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    reshape = astype = __add__ = __mul__ = __call__

    def __neg__(self) -> Any:
        return self


@given(RECIPES | ANYTHING)
def test_a_file_that_anyone_wrote_makes_a_legal_call_or_is_refused(data: Any) -> None:
    try:
        recipe = checked_recipe(json.loads(json.dumps(data)), OP)
    except UnfitRecipeError:
        return
    assert checked_recipe(json.loads(to_json(recipe)), OP).call == recipe.call
    names = {"tf": Names(), "np": Names(), "float": float, "object": object, "__builtins__": {}}
    if all(times < 1000 for one in recipe.tensors() if one.dtype == "string" for _, times in one.items):
        eval(f"dict({recipe.call[1]})", {**names, "dict": dict})


@given(data=st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_gap(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "Pick").mkdir(exist_ok=True)
    (tmp_path / "Pick" / f"death-{0:016x}.json").write_bytes(data)
    corpus = Corpus(tmp_path)
    assert corpus.recipes(OP) == []
    (gap,) = corpus.gaps
    assert gap.part.startswith("Pick: 1 file of ")


def recipe_of(axis: int, dtype: str = "float32", size: int = 2) -> Recipe:
    return Recipe("ops.Pick", {"x": Tensor(dtype, (size,)), "more": ()}, {"axis": axis, "out": {"type": "int8"}})


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    kept = Kept()
    several = [recipe_of(1), recipe_of(2), recipe_of(3, "float64")]
    kept.note("death", "SIGSEGV f", several[0])
    kept.note("death", "SIGSEGV f", recipe_of(9))
    kept.note("message", "ab", several[1])
    kept.note("result", kind_of_result(several[2]), several[2])
    Corpus(tmp_path / "kept").keep(OP, kept, frozenset())
    again = Corpus(tmp_path / "kept")
    assert sorted(one.call for one in again.recipes(OP)) == sorted(one.call for one in several)
    assert again.gaps == []
    files = sorted((tmp_path / "kept" / "Pick").iterdir())
    assert [path.name.split("-")[0] for path in files] == ["death", "message", "result"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert json.loads(files[0].read_bytes())["attributes"] == {"axis": 1, "out": {"type": "int8"}}


def test_what_is_new_no_more_is_removed(tmp_path: Path) -> None:
    kept = Kept()
    for axis in range(3):
        kept.note("message", str(axis), recipe_of(axis))
    Corpus(tmp_path).keep(OP, kept, frozenset())
    corpus, less = Corpus(tmp_path), Kept()
    assert len(corpus.recipes(OP)) == 3
    less.note("message", "0", recipe_of(0))
    corpus.keep(OP, less, frozenset({recipe_of(1).call}))
    assert sorted(one.attributes["axis"] for one in Corpus(tmp_path).recipes(OP)) == [0, 1]


def test_results_of_one_kind() -> None:
    assert kind_of_result(recipe_of(1)) == kind_of_result(recipe_of(2, size=7))
    assert kind_of_result(recipe_of(1)) != kind_of_result(recipe_of(1, size=0))


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "Pick").mkdir()
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / "Pick" / f"death-{1:016x}.json").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "Pick" / f"death-{2:016x}.json")
    (tmp_path / "Pick" / f"death-{3:016x}.json").write_text("[" * 100_000)
    (tmp_path / "Pick" / "notes.txt").write_text("left alone")
    corpus = Corpus(tmp_path)
    assert corpus.recipes(OP) == []
    assert "not a regular file" in corpus.gaps[0].why
    assert "not JSON" in corpus.gaps[0].why
    corpus.keep(OP, Kept(), frozenset())
    assert (tmp_path / "Pick" / "notes.txt").exists()


def test_too_many_files(tmp_path: Path) -> None:
    (tmp_path / "Pick").mkdir()
    for number in range(MOST_FILES + 1):
        (tmp_path / "Pick" / f"death-{number:016x}.json").write_text("{}")
    corpus = Corpus(tmp_path)
    corpus.recipes(OP)
    assert f"has {MOST_FILES + 1} calls" in corpus.gaps[0].why


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NecropsyError, match="cannot make the folder"):
        Corpus(tmp_path / "file" / "corpus")


LETHAL = """
import os

def work(at: int) -> int:
    if at == 46341:
        os.abort()
    if at < 0:
        raise ValueError("negative")
    return at
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")
def test_a_campaign_begins_with_the_corpus(tmp_path: Path) -> None:
    file = tmp_path / "work.py"
    file.write_text(LETHAL)

    def executions(calls: int) -> list[int]:
        """At which calls a campaign saw a kind of death for the first time."""
        engine = Engine(sys.executable, {"module": str(file), "function": "work", "folder": str(tmp_path)})
        try:
            op, corpus = python_function(engine.offered["function"]), Corpus(tmp_path / "kept")
            first, deadline = corpus.recipes(op), time.monotonic() + 300
            campaign = Campaign(engine, op, seed=0, deadline=deadline, most_calls=calls, first=first)
            campaign.run()
            corpus.keep(op, campaign.kept, campaign.unmade)
        finally:
            engine.close()
        return [one.execution for one in campaign.suspects.values()]

    (late,) = executions(45)
    assert late > 5
    names = sorted(path.name.split("-")[0] for path in (tmp_path / "kept" / "work").iterdir())
    assert names == ["death", "message", "result"]
    assert executions(30) == [1]
    file.write_text(LETHAL.replace("os.abort()", "return 0"))
    assert executions(30) == []
    assert not list((tmp_path / "kept" / "work").glob("death-*"))
