"""What the objects of a dead interpreter tell of its threads, beside their frames: the values of the user's frame."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from necropsy.capture.linux.interpreter import LinuxFrameReader
from necropsy.capture.linux.libraries import python_version
from necropsy.capture.linux.modules import MappedFiles
from necropsy.capture.process.arguments import MOST_FRAMES
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.pystack import PythonStackError
from necropsy.capture.process.pyvalues import Values
from necropsy.capture.process.user_values import own_frame, standing_of, values
from necropsy.model import Crash, Thread

LONGEST_S = 0.5


class ObjectsOfThreads:
    """Reads the objects of one process's interpreter."""

    def __init__(self, memory: Memory, files: MappedFiles, pointers: Mapping[int, int]) -> None:
        """``pointers``: thread pointer -> id of the thread.

        Raises:
            PythonStackError: there is no interpreter whose objects can be read.

        """
        self._memory, self._pointers = memory, pointers
        self._frames = LinuxFrameReader(memory, files)
        self._runtime, self._layout = self._frames.located()
        version = (python_version(memory, files) or "").split(".")
        if len(version) < 2 or not version[1].isdecimal():
            raise PythonStackError("the version of the interpreter is not known")
        self._values = Values(memory, self._layout, int(version[1]))

    def with_values(self, thread: Thread) -> Thread:
        """The thread, with the variables of the innermost frame of the user's own code."""
        own = own_frame(thread.python or ())
        if own is None or thread.tid is None or own.index >= MOST_FRAMES:
            return thread
        standing = standing_of(own, self._frames.standing(thread.tid, self._pointers, own.index + 1))
        found = values(self._memory, self._values, standing, own.code) if standing is not None else None
        if not found:
            return thread
        told = msgspec.structs.replace(own, values=found)
        python = tuple(told if one is own else one for one in thread.python or ())
        return msgspec.structs.replace(thread, python=python)


def added(crash: Crash, memory: Memory, files: MappedFiles, pointers: Mapping[int, int]) -> Crash:
    """The crash, with what Python's objects tell of its threads.

    Raises:
        PythonStackError: they cannot be read.

    """
    threads = crash.threads or ()
    if not any(thread.python for thread in threads):
        return crash
    objects = ObjectsOfThreads(memory, files, pointers)
    until = time.monotonic() + LONGEST_S
    # Where the thread that died runs no Python, the main thread mostly waits for it.
    first = crash.crashed_thread
    if first is None or not first.python:
        first = next((one for one in threads if one.tid == crash.pid), None)
    told = []
    for thread in threads:
        if thread is first and time.monotonic() < until:
            thread = objects.with_values(thread)  # noqa: PLW2901 - the same thread, told better
        told.append(thread)
    return msgspec.structs.replace(crash, threads=tuple(told))
