"""The arguments of the call that a process died in, read from memory, held against what the program passed."""

from __future__ import annotations

import dataclasses
import gzip
import io
import sys
from pathlib import Path

import pytest
from harness import dying
from test_pyframes import each_python

import needs
from necropsy.capture import open_core
from necropsy.capture.linux.inspect import crash_builder
from necropsy.capture.process import ctypes_call
from necropsy.model import Argument, Call, Crash, Frame

PACKAGE = """
import ctypes
def work(count, axis, rate, items, words, text, layout, nothing, flag, pointer, large, *rest, width, _hidden=5, **more):
    held = lambda: width
    ctypes.string_at(8)
"""
PROGRAM = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import somepackage
somepackage.work(
    3, -2, float("nan"), [1, 0, -7], ["secret"], "secret", "NHWC", None, True, ctypes.c_void_p(), 2**40, "secret",
    width=ctypes.c_int(4),
)
"""
FOREIGN = """
import ctypes
library = ctypes.CDLL(None)
def copy(size):
    len([abs(-1), min(3, abs(size))])
    return 1 + library.memcpy(None, b"secret", size, ctypes.c_double(0.5))
copy(7)
"""
TENSORFLOW = """
import os
os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
import numpy as np
import tensorflow as tf

@tf.function
def step(x):
    if x > 0:
        x = x + 1
    with tf.init_scope():
        tf.raw_ops.Unbatch(
            batched_tensor=tf.zeros([70000, 0], tf.float16),
            batch_index=np.full((), 5, np.int64),
            id=tf.constant([[1, -2]], tf.int64),
            timeout_micros=1,
        )  # the call
    return x

step(3)
"""


def arguments(call: Call | None) -> dict[str, Argument]:
    assert call is not None
    return {one.name: one for one in call.arguments}


def at_death(command: list[str], tmp_path: Path) -> tuple[Crash, Crash]:
    """The crash as it was read from the process, and from a core with its whole memory."""
    packed = io.BytesIO()
    with dying(command) as death:
        alive = crash_builder.capture(dataclasses.replace(death, core=packed, full_memory=True))
    path = tmp_path / "full.core"
    path.write_bytes(gzip.decompress(packed.getvalue()))
    return alive, open_core.read(path)


@each_python
def test_a_call_into_a_package(python: Path, tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "somepackage"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PACKAGE)
    (tmp_path / "program.py").write_text(PROGRAM)
    alive, dead = at_death([str(python), str(tmp_path / "program.py"), str(package.parent)], tmp_path)
    assert alive.call is not None
    assert (alive.call.function, alive.call.library) == ("work", "somepackage")
    assert dead.call == alive.call
    # Before 3.11 a parameter that an inner function uses is no local variable.
    is_cell = alive.environment is not None and (alive.environment.python or "").startswith(("3.8", "3.9", "3.10"))
    assert alive.call.arguments == (
        Argument(name="count", type="int", value="3"),
        Argument(name="axis", type="int", value="-2", unusual=("negative",)),
        Argument(name="rate", type="float", value="nan", unusual=("nan",)),
        Argument(name="items", type="list", dtype="int", shape=(3,), value="[1, 0, -7]", unusual=("negative",)),
        Argument(name="words", type="list", dtype="str", shape=(1,)),
        Argument(name="text", type="str"),
        Argument(name="layout", type="str", value="NHWC"),
        Argument(name="nothing", type="None", value="None"),
        Argument(name="flag", type="bool", value="True"),
        Argument(name="pointer", type="c_void_p", value="NULL", unusual=("null",)),
        Argument(name="large", type="int", value=str(2**40), unusual=("huge",)),
        *([] if is_cell else [Argument(name="width", type="c_int", value="4")]),
    )


@each_python
def test_a_c_function_that_was_called_through_ctypes(python: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FOREIGN)
    with dying([str(python), str(tmp_path / "program.py")]) as death:
        crash = crash_builder.capture(death)
    version = crash.environment.python if crash.environment else None
    assert version is not None
    if version.startswith(("3.8", "3.9", "3.10")):
        assert crash.call is None  # the values of the frame are not kept where they can be found
        return
    assert crash.call is not None, (crash.operation, crash.crashed_thread)
    assert crash.call.library == "ctypes"
    assert crash.call.where == "the evaluation stack of copy, line 6"
    assert crash.call.arguments == (
        Argument(name="argument 1", type="None", value="NULL", unusual=("null",)),
        Argument(name="argument 2", type="bytes"),
        Argument(name="argument 3", type="int", value="7"),
        Argument(name="argument 4", type="c_double", value="0.5"),
    )


BUILTIN = """
import faulthandler
def die(number):
    for turn in range(40):
        print(1, len("secret"), faulthandler._sigsegv(turn > 30) if turn > 30 else min(turn, abs(-2)))
die(3)
"""


@each_python
def test_a_builtin_that_a_line_of_python_calls(python: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BUILTIN)
    with dying([str(python), str(tmp_path / "program.py")]) as death:
        crash = crash_builder.capture(death)
    version = crash.environment.python if crash.environment else None
    assert version is not None
    if version.startswith(("3.8", "3.9", "3.10")):
        assert crash.call is None
        return
    assert crash.call == Call(
        function="_sigsegv",
        library="python",
        module="faulthandler",
        arguments=(Argument(name="argument 1", type="bool", value="True"),),
        where="the evaluation stack of die, line 5",
    )


FRAMES = ("strlen@libc.so.6", "ffi_call@libffi.so.8", "PyCFuncPtr_call@_ctypes.so", "_PyObject_MakeTpCall@python3.11")


@pytest.mark.parametrize(
    ("between", "name"),
    [
        ((), "strlen"),
        (("PyObject_Vectorcall@python3.11",), "strlen"),
        (("map_next@python3.11",), None),
        (("partial_vectorcall@_functools.so",), None),
    ],
)
def test_only_a_function_that_the_evaluator_itself_called(between: tuple[str, ...], name: str | None) -> None:
    named = (one.split("@") for one in (*FRAMES, *between, "_PyEval_EvalFrameDefault@python3.11"))
    frames = [
        Frame(index=at, kind="native", function=function, module=module, found_by="cfi")
        for at, (function, module) in enumerate(named)
    ]
    assert ctypes_call.function_called(frames) == name
    # f(*arguments) makes no tuple: the one that it was given is passed on.
    assert ctypes_call.function_called([frames[0], frames[2], frames[-1]]) is None


@pytest.mark.tensorflow
@needs.package("tensorflow")
def test_a_call_of_an_op_from_a_line_that_autograph_generated(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TENSORFLOW)
    with dying([sys.executable, str(script)]) as death:
        crash = crash_builder.capture(dataclasses.replace(death, budget_s=60))
    assert crash.call is not None, (crash.operation, crash.crashed_thread)
    assert (crash.call.function, crash.call.library) == ("Unbatch", "tensorflow")
    seen = arguments(crash.call)
    assert seen["batched_tensor"] == Argument(
        name="batched_tensor", type="EagerTensor", dtype="float16", shape=(70000, 0), unusual=("empty",)
    )
    assert seen["batch_index"] == Argument(name="batch_index", type="numpy.ndarray", dtype="int64", shape=(), value="5")
    assert seen["id"] == Argument(name="id", type="EagerTensor", dtype="int64", shape=(1, 2), unusual=("negative",))
    assert seen["timeout_micros"] == Argument(name="timeout_micros", type="int", value="1")
    # Any line of the call may be the one that the interpreter has for it.
    first = next(number for number, line in enumerate(TENSORFLOW.splitlines(), 1) if "tf.raw_ops" in line)
    thread = crash.crashed_thread
    own = [one for one in (thread.python if thread else None) or () if one.source == str(script)]
    assert [one.function for one in own] == ["step", "<module>"]
    assert own[0].line is not None
    assert first <= own[0].line <= first + 5


GRAPH = """
import os
os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
import numpy as np
import tensorflow as tf

def prepare(number):
    if number > -1:
        number = number + 1
    ids = tf.stack([[number, -number]])
    return tf.raw_ops.Unbatch(batched_tensor=tf.zeros([70000, 0]), batch_index=np.int64(5), id=ids, timeout_micros=7)

list(tf.data.Dataset.range(3).map(lambda x: x + 1).map(prepare, num_parallel_calls=2).batch(2))
"""


@pytest.mark.tensorflow
@needs.package("tensorflow")
def test_an_op_inside_a_graph_on_a_thread_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(GRAPH)
    with dying([sys.executable, str(script)]) as death:
        crash = crash_builder.capture(dataclasses.replace(death, budget_s=60))
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.tid != crash.pid
    assert crash.operation is not None
    assert (crash.operation.op, crash.operation.kernel) == ("Unbatch", "tensorflow::UnbatchKernel")
    lines = crash.operation.python
    assert lines is not None
    assert [(one.function, one.source) for one in lines] == [("prepare", str(script)), ("<module>", str(script))]
    made = next(number for number, line in enumerate(GRAPH.splitlines(), 1) if "raw_ops" in line)
    assert [one.line for one in lines] == [made, made + 2]
    seen = arguments(crash.call)
    assert seen["batched_tensor"].shape == (70000, 0)
    assert seen["batched_tensor"].unusual == ("empty",)
    assert seen["batch_index"] == Argument(name="batch_index", type="Tensor", dtype="int64", shape=(), value="5")
    assert (seen["id"].dtype, seen["id"].shape) == ("int64", (1, 2))
    assert seen["timeout_micros"] == Argument(name="timeout_micros", type="int", value="7")
