"""Programs that die in what XLA compiles, without it: functions are told not to ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from confirming import confirmed, script, verdict
from necropsy.rules.xla import AT_START

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")

COMPILER = """
namespace xla {
__attribute__((noinline)) int Compile(int *volatile module) { return *module; }
}
extern "C" int compile() { return xla::Compile(0) + 1; }
"""
# The class of TensorFlow's functions, as far as `jit_compile` is concerned.
FUNCTION = """
import ctypes, os
class Function:
    def __init__(self, python_function, jit_compile=None):
        self._python_function, self._jit_compile = python_function, jit_compile
    def __call__(self):
        if self._jit_compile:
            ctypes.CDLL(os.environ["COMPILER"]).compile()
        return self._python_function()
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="this builds what crashes")
def test_a_function_that_asks_for_it_lives_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "xla.cc").write_text(COMPILER)
    library = tmp_path / "compiler.so"
    subprocess.run(["g++", "-g", "-O1", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "xla.cc")], check=True)
    folder = tmp_path / "tensorflow/python/eager/polymorphic_function"
    folder.mkdir(parents=True)
    for package in (folder, *folder.parents[:3]):
        (package / "__init__.py").touch()  # it comes before one that is installed
    (folder / "polymorphic_function.py").write_text(FUNCTION)
    source = script(
        tmp_path,
        "from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function\n"
        "print(Function(lambda: 7, jit_compile=True)())\n",
    )
    monkeypatch.setenv("COMPILER", str(library))
    document, text = confirmed(tmp_path, sys.executable, source)
    found = verdict(document)
    (row,) = [one for one in found.experiments if one.name == "no-xla"]
    assert (row.crashed, row.conclusive) == (0, True)
    (fix,) = [one for one in found.fixes if one.verified]
    assert "TF_XLA_FLAGS" in (fix.command or "")
    assert "nothing is compiled by XLA" in " ".join(text.split())


def test_what_does_not_touch_it_is_not_run_without_it(tmp_path: Path) -> None:
    document, _ = confirmed(tmp_path, sys.executable, "-c", "import ctypes; ctypes.string_at(0)")
    assert "no-xla" not in {one.name for one in verdict(document).experiments}


@pytest.mark.tensorflow
@needs.package("tensorflow")
def test_tensorflow_is_reached(tmp_path: Path) -> None:
    """XLA cannot compile a call of Python: with it such a function fails, and without it it works."""
    source = script(
        tmp_path,
        "import tensorflow as tf\n"
        "f = tf.function(lambda: tf.py_function(lambda: 7, [], tf.int32), jit_compile=True)\n"
        "print('got', int(f()))\n",
    )
    place = Path(__file__).parents[2] / "src/necropsy/confirm/preload/python"
    hook = {"PYTHONPATH": str(place), "NECROPSY_AT_START": AT_START}
    done = [
        subprocess.run(
            [sys.executable, str(source)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"} | more,
        )
        for more in ({}, hook)
    ]
    assert [one.returncode for one in done] == [1, 0], done[1].stderr[-800:]
    assert "got 7" in done[1].stdout
