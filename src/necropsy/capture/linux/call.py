"""The call that was made: of the operation that ran, else into a package, by the memory of the Python frames."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from necropsy.capture.linux.interpreter import LinuxFrameReader
from necropsy.capture.linux.modules import MappedFiles
from necropsy.capture.linux.operation import snake_case
from necropsy.capture.process import autograph, foreign_call
from necropsy.capture.process.arguments import MOST_FRAMES, CallReader
from necropsy.capture.process.memory import Memory
from necropsy.model import Call, Crash, Thread


def with_origins(
    threads: tuple[Thread, ...], memory: Memory, files: MappedFiles, pointers: Mapping[int, int], deadline: float
) -> tuple[Thread, ...]:
    """The threads, with the user's lines in the place of those that autograph generated, where they can be told.

    ``deadline``: monotonic, in seconds.

    Raises:
        PythonStackError: the interpreter's objects cannot be read.

    """
    reader = LinuxFrameReader(memory, files)
    told: list[Thread] = []
    for thread in threads:
        generated = any(autograph.GENERATED in (one.source or "") for one in thread.python or ())
        if thread.python is not None and thread.tid is not None and generated and time.monotonic() <= deadline:
            standing = reader.standing(thread.tid, pointers, MOST_FRAMES)
            python = autograph.with_origins(memory, standing, thread.python, deadline)
            thread = msgspec.structs.replace(thread, python=python)  # noqa: PLW2901 - the same thread, told better
        told.append(thread)
    return tuple(told)


def of(crash: Crash, memory: Memory, files: MappedFiles, pointers: Mapping[int, int]) -> Call | None:
    """The call into a library that ``crash`` died in; None where none was seen.

    Args:
        crash: with its threads and its operation.
        memory: of the process, or of its core.
        files: what is mapped in it.
        pointers: thread pointer -> id of the thread.

    Raises:
        PythonStackError: the interpreter's objects cannot be read.

    """
    thread = crash.crashed_thread
    if thread is None or thread.tid is None:
        return None
    op = crash.operation.op if crash.operation and crash.operation.framework == "tensorflow" else None
    tid = thread.tid
    if not thread.python:
        # Work on a pool's thread was asked for by a Python thread that waits, mostly the main one.
        if op is None or crash.pid is None:
            return None
        tid = crash.pid
    frames = LinuxFrameReader(memory, files).standing(tid, pointers, MOST_FRAMES)
    reader = CallReader(memory, frames)
    if op is not None:
        return reader.of_op(op, snake_case(op))
    package = reader.into_package()
    if package is not None:
        return package
    foreign = foreign_call.function_called(thread.frames or ())
    return reader.through_ctypes(foreign) if foreign is not None else None
