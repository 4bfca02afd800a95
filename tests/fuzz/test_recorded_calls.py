"""Calls that a program makes are recorded as recipes: those of a Python function, and those of ops."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import needs
from necropsy.errors import NecropsyError
from necropsy.fuzz.checked_recipes import UnfitRecipeError, tensor_of
from necropsy.fuzz.definitions import OpDefinition, definition, python_function
from necropsy.fuzz.recipes import DTYPES
from necropsy.fuzz.recorded_calls import recipe_of, recorded
from necropsy.fuzz.target import recorder
from necropsy.fuzz.target.argument_data import data_of

BINDINGS = """
import numpy as np


def decode(text: bytes, width: int, taps: list[float], values: np.ndarray, scale: float = 1.0) -> int:
    if width == 13:
        import os
        os.abort()
    return len(text)
"""

PARAMETERS = [
    {"name": name, "kind": kind, "by_name": True, "needed": name != "scale"}
    for name, kind in (
        ("text", "bytes"),
        ("width", "int"),
        ("taps", "list(float)"),
        ("values", "ndarray"),
        ("scale", "float"),
    )
]
DECODE = python_function({"name": "decode", "parameters": PARAMETERS, "numpy": True})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bindings.py").write_text(BINDINGS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_program(program: str, folder: Path, *, module: str | None = None, **options: Any) -> tuple[list[str], list[str]]:
    """The recorded calls of ``decode`` as texts, and the gaps."""
    wanted = {"module": module or str(folder / "bindings.py"), "function": "decode"}
    found = recorded([sys.executable, "-c", program], wanted, [DECODE], **options)
    return [one.call[1] for one in found.calls.get("decode", ())], [f"{one.part}: {one.why}" for one in found.gaps]


PROGRAM = """
from bindings import decode
import numpy as np
for _ in range(3):
    decode(b"ab\\0", 3, [1, 0.5], values=np.arange(6, dtype=np.int16).reshape(2, 3))
"""


@pytest.mark.parametrize("module", [None, "bindings"], ids=["by file", "by name"])
def test_calls_of_a_function(folder: Path, module: str | None) -> None:
    calls, gaps = of_program(PROGRAM, folder, module=module)
    values = "np.array([0, 1, 2, 3, 4, 5], np.int16).reshape([2, 3])"
    assert calls == [f"values={values}, text=b'ab\\x00', width=3, taps=[1.0, 0.5]"]
    assert gaps == []


def test_the_call_that_kills_the_program_is_recorded(folder: Path) -> None:
    calls, gaps = of_program("import bindings, numpy\nbindings.decode(b'', 13, [], numpy.zeros(100))", folder)
    assert calls == ["values=np.full([100], 0.0, np.float64), text=b'', width=13, taps=[]"]
    assert len(gaps) == 1
    assert f"it was killed by {signal.SIGABRT.name}" in gaps[0]


def test_a_module_that_is_imported_before_the_program_begins() -> None:
    dumps = python_function(
        {
            "name": "dumps",
            "parameters": [{"name": "obj", "kind": "list(int)", "by_name": True, "needed": True}],
            "numpy": True,
        }
    )
    program = "import json; json.dumps([1, 2])"
    found = recorded([sys.executable, "-c", program], {"module": "json", "function": "dumps"}, [dumps])
    assert "obj=[1, 2]" in [one.call[1] for one in found.calls["dumps"]]


def test_the_number_of_calls_is_bounded(folder: Path) -> None:
    program = "import bindings, numpy\nfor at in range(500): bindings.decode(b'', at + 20, [], numpy.zeros({}))"
    assert len(of_program(program.format("1"), folder)[0]) == recorder.MOST_ALIKE
    assert len(of_program(program.format("at"), folder)[0]) == recorder.MOST_CALLS


def test_a_program_that_does_not_call_it(folder: Path) -> None:
    calls, gaps = of_program("raise SystemExit(3)", folder)
    assert calls == []
    assert any("it ended with exit code 3" in one for one in gaps)
    assert any("made no call of it that could be recorded" in one for one in gaps)


def test_a_program_that_takes_too_long(folder: Path) -> None:
    calls, gaps = of_program(PROGRAM + "import time; time.sleep(600)", folder, limit_s=2.0)
    assert len(calls) <= 1
    assert any("it was ended after 2 s" in one for one in gaps)


def test_calls_that_recipes_cannot_make_are_a_gap(folder: Path) -> None:
    calls, gaps = of_program("import bindings\nbindings.decode(b'', 1, [], object())", folder)
    assert calls == []
    assert gaps[0] == "decode: 1 call of the command left out: an input is no tensor"


def test_a_program_that_does_not_exist() -> None:
    with pytest.raises(NecropsyError, match="cannot run nowhere: there is no such program"):
        recorded(["nowhere"], {}, [])


def test_the_programs_own_sitecustomize_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "sitecustomize.py").write_text("import sys; sys.own = 1")
    monkeypatch.setenv("PYTHONPATH", str(folder / "own"))
    calls, gaps = of_program("import sys; sys.own\n" + PROGRAM, folder)
    assert len(calls) == 1
    assert gaps == []


# ------------------------------------------------------------ arguments as data


@given(
    arrays.arrays(
        dtype=st.sampled_from(["int8", "uint64", "int64", "float16", "float32", "float64", "bool"]),
        shape=arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_a_small_array_is_kept_as_it_is(array: Any) -> None:
    data = data_of(array)
    assert data is not None
    one = data["tensor"]
    made = tensor_of(one["dtype"], one["shape"], one["kind"], one["items"])
    with np.errstate(all="ignore"):
        again = eval(made.array(), {"np": np})
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert np.array_equal(again, array, equal_nan=array.dtype.kind == "f")


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.arange(5, 1005, dtype=np.int32), "(np.arange(1000) + 5).astype(np.int32)"),
        (np.full((1000, 3), 7, np.uint8), "np.full([1000, 3], 7, np.uint8)"),
        (np.arange(1000) % 90, "np.random.RandomState(1).randint(0, 90, [1000]).astype(np.int64)"),
        (np.array(["a", "bé"]), "np.array([b'a', b'b\\xc3\\xa9'], object)"),
    ],
    ids=["ramp", "same", "random", "text"],
)
def test_arrays(array: Any, text: str) -> None:
    data = data_of(array)
    assert data is not None
    one = data["tensor"]
    assert tensor_of(one["dtype"], one["shape"], one["kind"], one["items"]).array() == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(sorted(DTYPES)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["tensor", "plain", "list"]), inner),
    max_leaves=8,
)
CAST = definition(
    {
        "name": "Cast",
        "inputArg": [{"name": "x", "typeAttr": "T"}, {"name": "n", "type": "DT_INT32"}],
        "attr": [{"name": "T", "type": "type"}, {"name": "axes", "type": "list(int)"}],
        "kernels": [{"op": "Cast", "deviceType": "CPU"}],
    }
)
TENSORS = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(sorted(DTYPES)),
        "shape": st.lists(st.integers(-1, 4), max_size=3),
        "kind": st.sampled_from(["same", "cycle", "ramp", "random", "unknown"]),
        "items": st.lists(JSON, max_size=3),
    }
).map(lambda one: {"tensor": one})


@given(inputs=st.lists(TENSORS | JSON, min_size=1, max_size=3), attributes=st.dictionaries(st.just("axes"), JSON))
def test_what_comes_from_outside_is_a_legal_call_or_refused(inputs: Any, attributes: Any) -> None:
    try:
        recipe = recipe_of({"op": "Cast", "inputs": inputs, "attributes": attributes}, CAST)
    except (UnfitRecipeError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return
    compile(recipe.python, "call", "eval")
    assert set(recipe.inputs) == {"x", "n"}


# ------------------------------------------------------------ ops

OPS = """
import tensorflow as tf

x = tf.constant([[0.0, 1.0], [2.0, 3.0]])
tf.gather(x, [0, 1], axis=1)


@tf.function
def graph(v):
    return tf.gather(v, tf.constant([1, 0, 1]))


graph(x)
tf.concat([x, x], 0)
try:
    tf.gather([1.5], 7)  # refused by the op
except tf.errors.InvalidArgumentError:
    pass
"""


def op(name: str, inputs: list[dict[str, str]], attributes: list[dict[str, Any]]) -> OpDefinition:
    kernels = [{"op": name, "deviceType": "CPU"}]
    return definition({"name": name, "inputArg": inputs, "attr": attributes, "kernels": kernels})


@pytest.mark.tensorflow
@needs.package("tensorflow")
def test_calls_of_ops_eager_and_in_a_graph(tmp_path: Path) -> None:
    gather = op(
        "GatherV2",
        [
            {"name": "params", "typeAttr": "Tparams"},
            {"name": "indices", "typeAttr": "Tindices"},
            {"name": "axis", "typeAttr": "Taxis"},
        ],
        [{"name": name, "type": "type"} for name in ("Tparams", "Tindices", "Taxis")]
        + [{"name": "batch_dims", "type": "int", "defaultValue": {"i": "0"}}],
    )
    concat = op(
        "ConcatV2",
        [{"name": "values", "typeAttr": "T", "numberAttr": "N"}, {"name": "axis", "typeAttr": "Tidx"}],
        [{"name": "T", "type": "type"}, {"name": "Tidx", "type": "type"}, {"name": "N", "type": "int"}],
    )
    found = recorded([sys.executable, "-c", OPS], {"pattern": "*V2"}, [gather, concat])
    assert found.gaps == []
    eager, graph, refused = (one.call[1] for one in found.calls["GatherV2"])
    x = "tf.constant(np.array([0.0, 1.0, 2.0, 3.0], np.float32).reshape([2, 2]))"
    assert eager.startswith(f"params={x}, indices=tf.constant(np.array([0, 1], np.int32)), axis=")
    assert "params=tf.constant(np.full([2, 2], 1.0, np.float32)), indices=tf.constant(np.array([1, 0, 1]" in graph
    assert "params=tf.constant(np.full([1], 1.5, np.float32)), indices=tf.constant(np.full([], 7, np.int32))" in refused
    (joined,) = (one.call[1] for one in found.calls["ConcatV2"])
    assert joined == f"values=[{x}, {x}], axis=tf.constant(np.full([], 0, np.int32))"
