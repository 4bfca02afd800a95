"""Callbacks that native code calls through libffi: the code that leads to Python's function lies in memory that ctypes or cffi own."""

from __future__ import annotations

import re

from necropsy.frame_filter import file_name, is_interpreter, is_loop, noise, outside_of_python
from necropsy.model import Crash, Evidence, Frame
from necropsy.predicates import bare_name, frames_of
from necropsy.rule import NOTHING, Found

_FFI = re.compile(r"_ctypes\.|_cffi_backend\.|libffi")
_CONVERTS = re.compile(r"\w{1,2}_get|Py(?:Bytes|Unicode|ByteArray)_\w+")
"""Code that converts a callback's arguments to Python objects: there the argument is wrong, not the callback."""
_NEAR = 6


def inside_callback(crash: Crash) -> tuple[Found, Frame | None]:
    """Evidence that it died between native code calling a callback and the callback's Python code; and the caller.

    A live callback leads straight to Python, so anything else there has replaced a freed one.
    """
    frames = outside_of_python(frames_of(crash))
    first = next((at for at, frame in enumerate(frames[:_NEAR]) if _is_ffi(frame)), None)
    if first is None or any(is_loop(frame) for frame in frames[: first + 1]):
        return NOTHING, None
    before = frames[:first]
    if any(not is_interpreter(frame) or _CONVERTS.fullmatch(bare_name(frame.function or "")) for frame in before):
        return NOTHING, None
    after = next((frame for frame in frames[first:] if not _is_ffi(frame)), None)
    if after is None or is_interpreter(after):
        return NOTHING, None
    caller = next(
        (frame for frame in frames[first:] if not _is_ffi(frame) and frame.function and not is_loop(frame)), after
    )
    inner = frames[first]
    name = inner.function or f"{file_name(inner.module or '?')}"
    seen = f"{name}, called from {caller.function or file_name(caller.module or '?')}"
    claim = "native code called a callback, and the data there led to no Python function"
    found = (Evidence(claim=claim, seen=seen, where=f"frame {inner.index}"),)
    return found, caller if noise(caller) != "start" else None


def _is_ffi(frame: Frame) -> bool:
    return frame.module is not None and _FFI.match(file_name(frame.module)) is not None
