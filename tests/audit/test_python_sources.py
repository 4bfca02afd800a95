"""Python sources: each place that is found has a neighbour that is in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.audit import python_sources
from necropsy.errors import InputError, NoInputError
from necropsy.examine import examine
from necropsy.model import Environment
from necropsy.rules import audit_rules

STACK = 8 << 20
RULES = [rule for rule in audit_rules() if "uses" in rule.needs]


def told(source: str, folder: Path) -> list[tuple[str, int]]:
    """Rule and line of each finding."""
    file = folder / "train.py"
    file.write_text(source)
    answers = examine(Environment(uses=python_sources.look(str(file), STACK)), RULES)
    assert not answers.failed
    return sorted((one.rule.removeprefix("op-python-"), one.locations[0].line or 0) for one in answers.findings)


FOUND = {
    "limit": ("import sys\nsys.setrecursionlimit(10**6)\n", "recursion-limit", 2),
    "limit, imported": ("from sys import setrecursionlimit as deep\ndeep(100_000)\n", "recursion-limit", 2),
    "stack": ("import threading, numpy\nthreading.stack_size(64 * 1024)\n", "thread-stack", 2),
    "pointer": (
        "import ctypes\nlib = ctypes.CDLL('libx.so')\nhandle = lib.open_it()\nctypes.cast(handle, ctypes.c_char_p)\n",
        "ctypes",
        3,
    ),
    "pointer, at once": (
        "from ctypes import CDLL, string_at\nlib = CDLL('libx.so')\nprint(string_at(lib.name()))\n",
        "ctypes",
        3,
    ),
    "callback": (
        "import ctypes\nCALLBACK = ctypes.CFUNCTYPE(None)\nlib = ctypes.CDLL('libx.so')\nlib.set_handler(CALLBACK(print))\n",
        "ctypes",
        4,
    ),
    "fork": ("import os\nimport tensorflow as tf\nx = tf.ones(3)\nos.fork()\n", "fork", 4),
    "pool": (
        "import multiprocessing as mp\nimport tensorflow as tf\ndef main():\n    tf.ones(3)\n    with mp.Pool(4):\n        pass\n",
        "fork",
        5,
    ),
    "session": ("import tensorflow as tf\nwith tf.Session() as session:\n    pass\n", "tf1-session", 2),
    "shared state": (
        "import tensorflow as tf\ndef parse(x):\n    global seen\n    seen += x\ntf.py_function(parse, [1], tf.float32)\n",
        "py-function",
        2,
    ),
    "recursive function": (
        "import tensorflow as tf\ndef walk(x):\n    return walk(x[1:])\ntf.numpy_function(func=walk, inp=[1], Tout=1)\n",
        "py-function",
        2,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_place_is_found(name: str, tmp_path: Path) -> None:
    source, rule, line = FOUND[name]
    assert told(source, tmp_path) == [(rule, line)]


IN_ORDER = {
    "a limit that fits": "import sys\nsys.setrecursionlimit(5000)\n",
    "a limit with a thread's stack that fits": "import sys, threading\nthreading.stack_size(1 << 30)\nsys.setrecursionlimit(10**6)\n",
    "a limit that is not known": "import sys\nsys.setrecursionlimit(int(sys.argv[1]))\n",
    "a large stack": "import threading, numpy\nthreading.stack_size(64 << 20)\n",
    "a small stack of nothing native": "import threading\nthreading.stack_size(64 * 1024)\n",
    "a pointer with its type": "import ctypes\nlib = ctypes.CDLL('libx.so')\nlib.open_it.restype = ctypes.c_void_p\n"
    "ctypes.cast(lib.open_it(), ctypes.c_char_p)\n",
    "a number that is no pointer": "import ctypes\nlib = ctypes.CDLL('libx.so')\nprint(lib.count())\n",
    "a callback that is kept": "import ctypes\nCALLBACK = ctypes.CFUNCTYPE(None)\nlib = ctypes.CDLL('libx.so')\n"
    "kept = CALLBACK(print)\nlib.set_handler(kept)\n",
    "a callback for the time of the call": "import ctypes\nCOMPARE = ctypes.CFUNCTYPE(ctypes.c_int)\n"
    "lib = ctypes.CDLL('libc.so.6')\nlib.qsort(None, 0, 0, COMPARE(print))\n",
    "a fork before TensorFlow": "import os\nos.fork()\nimport tensorflow as tf\ntf.ones(3)\n",
    "spawn": "import multiprocessing as mp\nimport tensorflow as tf\ntf.ones(3)\nmp.get_context('spawn').Pool(2)\n",
    "spawn for all": "import multiprocessing as mp\nimport tensorflow as tf\nmp.set_start_method('spawn')\ntf.ones(3)\nmp.Pool(2)\n",
    "the old interface by its name": "import tensorflow.compat.v1 as tf\ntf.Session()\n",
    "it asks which one it has": "import tensorflow as tf\nif hasattr(tf, 'Session'):\n    tf.Session()\n",
    "it tries": "import tensorflow as tf\ntry:\n    tf.Session()\nexcept AttributeError:\n    pass\n",
    "another package's session": "import requests\nrequests.Session()\n",
    "a lock": "import tensorflow as tf\nimport threading\nlock = threading.Lock()\nseen = 0\ndef parse(x):\n    global seen\n"
    "    with lock:\n        seen += 1\n    return x\ntf.py_function(parse, [1], tf.float32)\n",
    "ignored": "import sys\nsys.setrecursionlimit(10**6)  # necropsy: ignore[op-python-recursion-limit] runs on a thread\n",
    "ignored above": "import sys\n# necropsy: ignore[op-python-recursion-limit]\nsys.setrecursionlimit(10**6)\n",
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_its_neighbour_is_in_order(name: str, tmp_path: Path) -> None:
    assert told(IN_ORDER[name], tmp_path) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"def broken(:\n", "is not Python, line 1"),
        (b"\x00\x01\x02", "is not Python"),
        (b"(" * 5000 + b")" * 5000, "not"),
        (b"# coding: no-such\n", "is not Python"),
    ],
)
def test_what_is_no_source_is_told_in_a_line(content: bytes, text: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_bytes(content)
    with pytest.raises(InputError) as error:
        python_sources.look(str(file), STACK)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NoInputError):
        python_sources.look(str(tmp_path / "nowhere.py"), STACK)


LINES = [line for source, _, _ in FOUND.values() for line in source.splitlines()]


@given(given_lines=st.lists(st.sampled_from(LINES), max_size=12))
def test_any_mixture_of_lines_is_read_or_refused(
    given_lines: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "mixture.py"
    file.write_text("\n".join(given_lines))
    try:
        found = python_sources.look(str(file), STACK)
    except InputError:
        return
    assert all(1 <= one.line <= len(given_lines) for one in found)
