"""Gradients that are wrong, right, and meant to differ: functions with TensorFlow, in one process for all tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from necropsy.fuzz import contract_tests
from necropsy.fuzz import test_writer as writer
from necropsy.fuzz.recipes import Recipe, Tensor

pytestmark = needs.package("tensorflow")

FUNCTIONS = """
import tensorflow as tf


def with_gradient(result, gradient):
    return tf.custom_gradient(lambda x: (result(x), lambda up: gradient(x, up)))


def sign(x): return with_gradient(lambda x: x * x, lambda x, up: -2 * x * up)(x)
def factor(x): return with_gradient(lambda x: x ** 3, lambda x, up: 2 * x * x * up)(x)
def without_up(x): return with_gradient(lambda x: x * x, lambda x, up: 2 * x)(x)
def other(x, y): return with_gradient(lambda x: x * y, lambda x, up: up * x)(x) + y
def double(x): return with_gradient(tf.exp, lambda x, up: 2 * tf.exp(x) * up)(x)
def right(x): return with_gradient(lambda x: x ** 3, lambda x, up: 3 * x * x * up)(x)
def several(x, y): return [tf.matmul(x, y), tf.reduce_sum(x), tf.argmax(y)]
def corner(x): return tf.nn.relu(x - 0.5) + tf.abs(x - 0.4)
def stairs(x): return with_gradient(lambda x: tf.round(x * 8) / 8, lambda x, up: up)(x)
def stopped(x): return tf.stop_gradient(x) * 2 + 0 * x
def none(x): return tf.cast(tf.argmax(x), tf.float32)
def noise(x): return with_gradient(lambda x: x * tf.random.uniform([]), lambda x, up: up)(x)
def large(x): return with_gradient(lambda x: x + 1e6, lambda x, up: 0.5 * up)(x)
def refusing(x): raise ValueError("no")
"""
PROGRAM = """
import json, runpy, sys
import numpy as np
import tensorflow as tf
sys.path.insert(0, "SOURCE")
from necropsy.fuzz.target.gradients import wrong_gradient

functions = runpy.run_path("functions.py")
found = {}
for name in json.loads(sys.argv[1]):
    dtype = np.float64 if name == "double" else np.float32
    given = {"x": tf.constant(np.ones((3, 3), dtype))}
    if name in {"other", "several"}:
        given["y"] = tf.constant(np.ones((3, 3), dtype))
    found[name] = wrong_gradient(tf, np, functions[name], given)
for name in ("sign", "right", "refusing"):
    try:
        runpy.run_path("test_%s.py" % name)["test_%s" % name]()
        found["test of " + name] = "passes"
    except AssertionError as error:
        found["test of " + name] = str(error)
print(json.dumps(found))
"""
WRONG = {"sign": "x", "factor": "x", "without_up": "x", "other": "x", "double": "x"}
RIGHT = ("right", "several", "corner", "stairs", "stopped", "none", "noise", "large", "refusing")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("gradients")
    (folder / "functions.py").write_text(FUNCTIONS)
    source = Path(contract_tests.__file__).parents[2]
    (folder / "program.py").write_text(PROGRAM.replace("SOURCE", str(source)))
    recipe = Recipe("target", {"x": Tensor("float32", (3,))}, arrays=True, libraries={"x": "tensorflow"})
    for name in ("sign", "right", "refusing"):
        place = folder / f"test_{name}.py"
        module = writer.Source(module=str(folder / "functions.py"), function=name)
        text = contract_tests.text_of(
            "op-gradient-wrong", name, recipe, headline="x", source=module, place=place, names=["x"]
        )
        place.write_text(text)
    words = [sys.executable, "program.py", json.dumps([*WRONG, *RIGHT])]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_gradient(found: dict[str, list[str]], name: str) -> None:
    assert found[name][:1] == [WRONG[name]]
    gradient, difference = map(float, found[name][1:])
    assert abs(gradient - difference) > 0.1 * max(abs(gradient), abs(difference))


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_of_a_gradient_that_is_right_or_cannot_be_judged(
    found: dict[str, list[str]], name: str
) -> None:
    assert found[name] == []


def test_the_written_test_fails_until_the_gradient_is_right(found: dict[str, str]) -> None:
    assert found["test of sign"].startswith("op-gradient-wrong: the gradient gives ")
    assert (found["test of right"], found["test of refusing"]) == ("passes", "passes")
