"""The interpreter of a process on Linux, for the reader of its objects: in which mapped file its state lies."""

from __future__ import annotations

from necropsy.capture.linux.inspect.library_versions import python_version
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.cpython_frames import FrameReader
from necropsy.capture.process.cpython_offsets import READABLE, Layout, layout_of
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.python_stacks import PythonStackError


class LinuxFrameReader(FrameReader):
    """Reads the Python stacks of one process; stands where a ``PythonStacks`` stands."""

    def __init__(self, memory: Memory, files: MappedFiles) -> None:
        super().__init__(memory)
        self._files = files

    def _find(self) -> tuple[int, Layout]:
        """As ``FrameReader``: by the symbols of the mapped files."""
        version = python_version(self._memory, self._files)
        if version is None:
            raise PythonStackError("no Python interpreter is mapped")
        found = (file.symbol("_PyRuntime") for file in self._files.files if "python" in file.name)
        runtime = next((at for at in found if at is not None), None)
        if runtime is None:
            raise PythonStackError("the interpreter's symbols are not available")
        layout = layout_of(version, self._memory, runtime)
        if layout is None:
            raise PythonStackError(f"Python stacks are read of CPython {READABLE} only, this is {version}")
        return runtime, layout
