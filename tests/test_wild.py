"""Crashes that the tool was not built for: ops given odd shapes and huge sizes, other interpreters, other frameworks.

What killed each was worked out by hand from the sources and the plain run. docs/explanation/tried-on.md tells of many
more, on versions that are not installed here.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from necropsy.capture.linux.unwind import py_spy

SECONDS = 1800
"""Ends what hangs, and decides nothing else: TensorFlow dies eleven times in one run."""
MOST_MEMORY = 12 << 30
"""Bytes of address space: an op that is given a huge size must fail at once, and not fill the machine."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")


def limits() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def document(command: list[str], folder: Path) -> dict[str, Any]:
    report = folder / "report.json"
    necropsy = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", str(report), "--"]
    subprocess.run(
        [*necropsy, *command], cwd=folder, check=False, capture_output=True, timeout=SECONDS, preexec_fn=limits
    )
    read: dict[str, Any] = json.loads(report.read_text())
    return read


# ---------------------------------------------------------------- TensorFlow


@dataclass(frozen=True)
class Op:
    """Lines of Python that kill TensorFlow; the last one is to be named.

    ``rules``: the verdicts that are right; ``op``: the operation; ``says``: what the summary must hold.
    """

    name: str
    code: str
    rules: tuple[str, ...]
    op: str | None
    says: str = ""
    culprit: str | None = None


OPS = [
    Op(
        "dimension-overflows",
        "raw.SparseConcat(indices=[tf.zeros([1, 1], tf.int64)] * 2, values=[[1.0]] * 2,"
        " shapes=[tf.constant([2**62], tf.int64)] * 2, concat_dim=0)",
        ("check-failed",),
        "SparseConcat",
        "size >= 0",
        "set_dim",
    ),
    Op(
        "wrong-type",
        "raw.RaggedGather(params_nested_splits=[tf.constant([0, 0, 0], tf.int64)], params_dense_values=tf.zeros([0]),"
        " indices=tf.constant(0, tf.int64), OUTPUT_RAGGED_RANK=1)",
        ("check-failed",),
        "RaggedGather",
        "dtype() == expected_dtype",
        "CheckTypeAndIsAligned",
    ),
    Op(
        "scalar-for-a-matrix",
        "z = tf.zeros([]); raw.LSTMBlockCell(x=tf.zeros([1, 1]), cs_prev=z, h_prev=z, w=z, wci=z, wcf=z, wco=z, b=z)",
        ("check-failed",),
        "LSTMBlockCell",
        "d < dims()",
        "dim_size",
    ),
    Op("empty-image", "tf.io.encode_png(tf.zeros([0, 1, 1], tf.uint8))", ("check-failed",), "EncodePng", "Must be non"),
    Op(
        "too-many-dimensions",
        "x = tf.zeros([1])\nfor _ in range(300): x = tf.expand_dims(x, 0)",
        ("check-failed",),
        "ExpandDims",
        "Too many dimensions",
    ),
    Op(
        "list-of-two-billion",
        "raw.TensorListReserve(element_shape=[1], num_elements=2**31 - 1, element_dtype=tf.float32)",
        ("python-without-gil",),
        "TensorListReserve",
        "std::bad_alloc",
    ),
    Op(
        "padded-to-two-billion",
        "raw.NonMaxSuppressionV4(boxes=tf.zeros([1, 4]), scores=tf.zeros([1]), max_output_size=2**31 - 1,"
        " iou_threshold=0.5, score_threshold=0.5, pad_to_max_output_size=True)",
        ("python-without-gil",),
        "NonMaxSuppressionV4",
        "std::bad_alloc",
    ),
    Op(
        "huge-shuffle-buffer",
        "list(tf.data.Dataset.range(10).shuffle(2**62))",
        ("python-without-gil",),
        "MakeIterator",
        "std::length_error",
    ),
    Op(
        "null-in-a-py-function",
        "list(tf.data.Dataset.range(1).map(lambda x: tf.py_function(lambda v: ctypes.string_at(8), [x], tf.string)))",
        ("null-dereference",),
        "EagerPyFunc",
        "string_at",
        "string_at",
    ),
    Op(
        "null-in-a-generator",
        "def numbers(): yield ctypes.string_at(0)\n"
        "list(tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.string)))",
        ("null-dereference",),
        "PyFunc",
        "string_at",
        "string_at",
    ),
    Op("deep-nest", "tf.constant(nested(200_000))", ("check-failed", "stack-overflow-recursion"), None),
]

HEAD = """
import ctypes, os, sys
import tensorflow as tf
raw = tf.raw_ops
sys.setrecursionlimit(10**6)
def nested(depth):
    inner = []
    for _ in range(depth): inner = [inner]
    return inner
"""
ONE = """
def case_{index}():
{body}
"""
TAIL = """
for case in [value for name, value in sorted(globals().items()) if name.startswith("case_")]:
    child = os.fork()
    if child == 0:
        case()
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, dict[str, Any]]]:
    """Case -> its report. TensorFlow is imported once: every case dies in a fork of that process."""
    folder = tmp_path_factory.mktemp("wild")
    script = folder / "odd_shapes.py"
    bodies = ["".join(f"    {line}\n" for line in op.code.splitlines()) for op in OPS]
    script.write_text(HEAD + "".join(ONE.format(index=f"{i:02}", body=body) for i, body in enumerate(bodies)) + TAIL)
    found: dict[int, dict[str, Any]] = {}
    for report in document([sys.executable, str(script)], folder)["reports"]:
        for thread in report["crash"]["threads"] or ():
            for frame in thread["python"] or ():
                if (frame["function"] or "").startswith("case_"):
                    found[int(frame["function"].split(".")[0].removeprefix("case_"))] = report
    return script, found


@pytest.mark.tensorflow
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.parametrize("index", range(len(OPS)), ids=[op.name for op in OPS])
def test_op_given_what_it_did_not_expect(index: int, deaths: tuple[Path, dict[int, dict[str, Any]]]) -> None:
    op, (script, found) = OPS[index], deaths
    assert index in found, "it did not die, or no line of Python was read"
    verdict = found[index]["verdict"]
    assert verdict is not None
    told = f"{verdict['rule']}: {verdict['summary']}"
    assert verdict["rule"] in op.rules, told
    assert op.says in verdict["summary"], told
    culprit = verdict["culprit"]
    assert culprit["op"] == op.op, told
    if op.culprit is not None:
        assert op.culprit in culprit["function"], told
    line = script.read_text().splitlines()[culprit["python"]["line"] - 1]
    assert culprit["python"]["file"] == str(script)
    assert line.strip() in op.code, told


# ---------------------------------------------------------------- other interpreters

PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
THREAD = """
import ctypes, threading
def inner(address):
    ctypes.string_at(address)
thread = threading.Thread(target=inner, args=(0,))
thread.start()
thread.join()
"""


@pytest.mark.skipif(not PYTHONS, reason="no other interpreters are installed")
@pytest.mark.parametrize("python", PYTHONS, ids=[path.parts[-3] for path in PYTHONS])
def test_python_frames_of_other_versions(python: Path, tmp_path: Path) -> None:
    """Before 3.11 an interpreter does not know its threads by the system's numbers."""
    script = tmp_path / "dies.py"
    script.write_text(THREAD)
    verdict = document([str(python), str(script)], tmp_path)["reports"][0]["verdict"]
    assert verdict["rule"] == "null-dereference"
    assert (verdict["culprit"]["python"]["function"], verdict["culprit"]["python"]["line"]) == ("inner", 4)


def test_a_thread_without_a_number_is_known_by_its_pointer() -> None:
    """As py-spy 0.4 prints CPython 3.10."""
    frame = {"name": "inner", "filename": "dies.py", "line": 4, "locals": None, "is_entry": True}
    threads = [
        {"thread_id": 139651948766912, "os_thread_id": None, "owns_gil": True, "frames": [frame]},
        {"thread_id": 139651948000000, "os_thread_id": None, "owns_gil": False, "frames": [frame]},
    ]
    said = json.dumps(threads).encode()
    stacks, holder = py_spy.parse(said, {139651948766912: 4711})
    assert [frame.line for frame in stacks[4711]] == [4]
    assert list(stacks) == [4711]
    assert holder == 4711
    assert py_spy.parse(said) == ({}, None)
