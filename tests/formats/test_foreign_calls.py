"""Calls through ctypes of functions whose argument types are not set, from Python sources."""

from __future__ import annotations

import pytest

from necropsy.formats.foreign_calls import LARGEST, undeclared
from necropsy.model import ForeignCall

SOURCE = b"""
import ctypes
from pathlib import Path
lib = ctypes.CDLL(str(Path(__file__).parent / "build" / "libcam.so.2"))
libc = ctypes.cdll.LoadLibrary(None)
lib.declared.argtypes = [ctypes.c_void_p]
class Camera:
    def __init__(self):
        self.driver = ctypes.PyDLL("driver.so")
    def read(self, frame):
        lib.declared(frame)
        lib.set_gain(3, -1.5)
        other.read_frame(frame)
        return lib.read_frame(frame, 64), self.driver.poll(b"x" * 3)
libc.memset(frame, 0, 8)
"""


def test_calls_that_are_declared_nowhere() -> None:
    assert undeclared(SOURCE, "camera.py") == (
        ForeignCall(function="lib.read_frame", library="libcam.so.2", source="camera.py", line=14),
        ForeignCall(function="self.driver.poll", library="driver.so", source="camera.py", line=14),
        ForeignCall(function="libc.memset", source="camera.py", line=15),
    )


@pytest.mark.parametrize(
    "source",
    [b"", b"import ctypes\nx = (", b"import ctypes\n\0", SOURCE + b"#" * LARGEST, b"import ctypes\nx = " + b"(" * 5000],
    ids=["empty", "syntax", "null", "large", "deep"],
)
def test_what_is_not_read(source: bytes) -> None:
    assert undeclared(source, "camera.py") == ()
