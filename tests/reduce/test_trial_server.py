"""The interpreter that the trials of ``necropsy reduce`` are forked from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from necropsy.reduce import trial_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reduce works on Linux only")

WAITS = "import threading\nthreading.Event().wait()\n"
ASKS = "import time\nwhile True:\n    time.sleep(0.05)\n"
LOOPS = "while True:\n    pass\n"
CHILD_LOOPS = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {LOOPS!r}], start_new_session=True)\n"
LONG = 600.0


@pytest.mark.parametrize(
    ("script", "limits", "is_ended"),
    [
        ("print(1)\n", {"idle": 1.0, "busy": LONG}, False),
        (WAITS, {"idle": 1.0, "busy": None}, True),
        (ASKS, {"idle": 1.0, "busy": None}, True),
        (LOOPS, {"idle": LONG, "busy": 0.5}, True),
        (CHILD_LOOPS, {"idle": LONG, "busy": 0.5}, True),
    ],
)
def test_what_waits_or_runs_for_too_long_is_ended(
    script: str, limits: dict[str, float | None], is_ended: bool, tmp_path: Path
) -> None:
    answer = trial(script, limits, tmp_path)
    assert answer["timed_out"] is is_ended
    assert answer["status"] == (9 if is_ended else 0)


def trial(script: str, limits: dict[str, float | None], folder: Path) -> dict[str, Any]:
    """The answer of the server about one run of the script."""
    (folder / "a.py").write_text(script)
    request: dict[str, Any] = {
        "script": "a.py",
        "module": None,
        "argv": [],
        "environment": {},
        "unset": [],
        "timeout": LONG,
        "output": str(folder / "output"),
        "observe": None,
        **limits,
    }
    first: dict[str, Any] = {"imports": []}
    done = subprocess.run(
        [sys.executable, str(Path(trial_server.__file__))],
        input="".join(json.dumps(one) + "\n" for one in (first, request)),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[1])
    return answer


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ([[1.5, 2], [3, 4]], "float32", "tf.constant([[1.5, 2.0], [3.0, 4.0]], 'float32')"),
        (5, "int64", "tf.constant(5, 'int64')"),
        ([[], []], "float16", "tf.zeros([2, 0], 'float16')"),
        ([float("nan")], "float32", None),
        ([b"text"], "object", None),
        ([0] * 5000, "int32", None),
    ],
)
def test_a_tensor_is_written_down(values: object, kind: str, text: str | None) -> None:
    class EagerTensor:
        """As much of TensorFlow's as is asked for: importing that takes seconds."""

        def numpy(self) -> object:
            return numpy.array(values, kind)

    numpy = pytest.importorskip("numpy")
    assert trial_server.literal(EagerTensor()) == text
