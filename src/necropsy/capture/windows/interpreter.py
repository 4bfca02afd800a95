"""Python stacks of a process on Windows, by our own reading of the interpreter's objects.

The layouts are Linux', except for ``long``, which has 4 bytes: a thread's ids are such. ``_PyRuntime`` is exported by
python3X.dll (``Include/internal/pycore_runtime.h``), whose export table must be available: in its file, or in a dump
with all memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from necropsy.capture.process.cpython_frames import FrameReader
from necropsy.capture.process.cpython_offsets import READABLE, Layout, layout_of
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.capture.windows.modules import LoadedModule, ModuleImages

_DLL = re.compile(r"python3\d{1,2}(?:_d)?\.dll", re.IGNORECASE)


class WindowsFrameReader(FrameReader):
    """Reads the Python stacks of one process; stands where a ``PythonStacks`` stands."""

    def __init__(self, memory: Memory, images: ModuleImages, version: str | None) -> None:
        """``version``: that of the interpreter, where it is known."""
        super().__init__(memory)
        self._images, self._version = images, version

    @staticmethod
    def interpreter(images: ModuleImages) -> LoadedModule | None:
        """The library that holds the interpreter."""
        return next((one for one in images.modules if _DLL.fullmatch(one.name)), None)

    def _find(self) -> tuple[int, Layout]:
        library = self.interpreter(self._images)
        if library is None:
            raise PythonStackError("no Python interpreter is loaded")
        image = library.image
        if image is None:
            raise PythonStackError(
                f"{library.name} is not at hand (--images DIR), so the interpreter's state was not found"
            )
        rva = image.exported("_PyRuntime")
        if rva is None:
            raise PythonStackError(f"{library.name} does not say where its state is")
        version = self._version or "3." + library.name[len("python3") :].split(".")[0].split("_")[0]
        runtime = library.low + rva
        if self._memory.u64(runtime) is None:
            raise PythonStackError(
                "the interpreter's objects are not in the dump; one of all memory has them (procdump -ma)"
            )
        layout = layout_of(version, self._memory, runtime)
        if layout is None:
            raise PythonStackError(f"Python stacks are read of CPython {READABLE} only, this is {version}")
        return runtime, layout

    def _id_of(self, thread: int, pointers: Mapping[int, int]) -> int | None:  # noqa: ARG002 - as ``FrameReader``
        """What Windows calls its thread pointer, is the thread's id: ``GetCurrentThreadId()`` (Python/thread_nt.h)."""
        data = self._memory.exactly(thread + self._layout.thread_pointer, 4)
        return None if data is None else int.from_bytes(data, "little") or None
