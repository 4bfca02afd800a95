"""The values of the user's own frame: numbers, dtypes and shapes; no contents, no text, no secrets."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
from pathlib import Path

from harness import dying
from test_pyframes import each_python, minor_of

from necropsy.capture import open_core
from necropsy.capture.linux.inspect import crash_builder
from necropsy.model import Argument, Crash, Frame
from necropsy.reports import user_line

FUNCTION = """
import ctypes
class Model:
    def fit(self, rate, name="hunter2", password=4711, data=b"hunter2"):
        flag, nothing, items, large = True, None, [1, 2], 2**70
        token, text, address = 17, "hunter2", 16
        held = [ctypes.string_at(each, 5) for each in [address]] if flag is False else ctypes.string_at(address, 5)
Model().fit(0.5)
"""
MODULE = """
import ctypes
unused, size, secret_key, text = 5, 16, 7, "hunter2"
ctypes.string_at(size, secret_key or text)
"""


def own(crash: Crash) -> Frame:
    thread = crash.crashed_thread
    frames = [one for one in (thread.python if thread else None) or () if one.values is not None]
    assert len(frames) == 1
    return frames[0]


@each_python
def test_of_a_function_and_of_a_module(python: Path, tmp_path: Path) -> None:
    for name, program in (("function.py", FUNCTION), ("module.py", MODULE)):
        (tmp_path / name).write_text(program)
        os.utime(tmp_path / name, (1, 1))  # long before the process started, so its lines are read
    packed = io.BytesIO()
    with dying([str(python), str(tmp_path / "function.py")]) as death:
        frame = own(crash_builder.capture(dataclasses.replace(death, core=packed, full_memory=True)))
    assert (frame.source, frame.line) == (str(tmp_path / "function.py"), 7)
    # The variables that the line names come first.
    assert frame.values == (
        Argument(name="address", type="int", value="16"),
        Argument(name="flag", type="bool", value="True"),
        Argument(name="rate", type="float", value="0.5"),
        Argument(name="nothing", type="None", value="None"),
        Argument(name="large", type="int", value=str(2**70), unusual=("huge",)),
    )
    assert user_line.spelled(frame) == "address = 16, flag = True"
    part = slice(*frame.columns) if frame.columns is not None else None
    called = (frame.code or "")[part] if part is not None else None
    # Before 3.11 the compiler keeps no columns.
    assert called == ("ctypes.string_at(address, 5)" if minor_of(python) >= 11 else None)
    (tmp_path / "full.core").write_bytes(gzip.decompress(packed.getvalue()))
    of_core = own(open_core.read(tmp_path / "full.core")).values
    assert of_core is not None
    assert sorted(of_core, key=lambda one: one.name) == sorted(frame.values, key=lambda one: one.name)

    # The whole line ran: nothing in it stands out.
    with dying([str(python), str(tmp_path / "module.py")]) as death:
        assert own(crash_builder.capture(death)).values == (Argument(name="size", type="int", value="16"),)
    with dying([str(python), "-c", MODULE]) as death:
        values = own(crash_builder.capture(death)).values
    assert values == (Argument(name="size", type="int", value="16"), Argument(name="unused", type="int", value="5"))


def test_in_a_line() -> None:
    values = (
        Argument(name="n", type="int", value="0"),
        Argument(name="batch", type="numpy.ndarray", dtype="float32", shape=(512, 3)),
        Argument(name="scale", type="EagerTensor", dtype="qint8", shape=(0,), unusual=("empty",)),
        Argument(name="part", type="torch.Tensor", dtype="bool", shape=(4, 4), unusual=("not-contiguous",)),
        *(Argument(name=f"more{at}", type="int", value=str(at)) for at in range(9)),
    )
    frame = Frame(index=0, kind="python", values=values)
    assert user_line.spelled(frame) == (
        "n = 0, batch: float32 [512, 3], scale: qint8 [0] (empty), part: bool [4, 4] (not contiguous), "
        "more0 = 0, more1 = 1"
    )
    named = Frame(index=0, kind="python", values=values, code="model(batch[n])")
    assert user_line.spelled(named) == "n = 0, batch: float32 [512, 3], scale: qint8 [0] (empty)"
    assert user_line.spelled(Frame(index=0, kind="python")) is None
