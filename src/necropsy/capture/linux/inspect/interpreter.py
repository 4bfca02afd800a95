"""The Python interpreter of a process on Linux: its stacks, and what it said last."""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.capture.linux.inspect import memory_map, modules
from necropsy.capture.linux.inspect.library_versions import python_version
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.inspect.source_lines import Sources
from necropsy.capture.process.cpython_exceptions import InterpreterAddresses, Objects, traceback_of
from necropsy.capture.process.cpython_frames import FrameReader
from necropsy.capture.process.cpython_offsets import READABLE, Layout, layout_of
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.capture.run_options import Said


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


@dataclass
class InterpreterState:
    """The interpreter of a running process: found once, then read without stopping it, until ``close``."""

    pid: int
    memory: ProcessMemory
    objects: Objects

    @classmethod
    def find(cls, pid: int) -> InterpreterState | None:
        """A process's interpreter, or None. Raises OSError where the process is gone or may not be read."""
        mapped = memory_map.MemoryMap(
            one for one in memory_map.read(pid) if one.path is not None and "python" in one.path
        )
        if not len(mapped):
            return None
        memory = ProcessMemory(pid)
        try:
            files = modules.find(pid, mapped, memory)
            frames = LinuxFrameReader(memory, files)
            runtime, layout = frames.located()
            version = python_version(memory, files) or ""
            return cls(pid, memory, Objects(memory, frames, runtime, layout, int(version.split(".")[1])))
        except (PythonStackError, ValueError, LookupError):
            memory.close()
            return None

    def has_raised(self) -> bool:
        """There may be an exception to be read; quickly, and it may be wrong."""
        try:
            return self.objects.has_raised()
        except (PythonStackError, ArithmeticError, ValueError, LookupError, OSError):
            return True

    def said(self, before: Said | None) -> Said | None:
        """What the process is known to have said last. An exception that nobody caught is the last word."""
        try:
            state = self.objects.state()
        except (PythonStackError, ArithmeticError, ValueError, LookupError, OSError):
            state = InterpreterAddresses()
        raised = state.raised
        if raised is not None:
            text = traceback_of(raised, Sources(self.pid).line) if state.uncaught else traceback_of(raised)
            printed = state.written if raised.text is None else None
            if printed is not None and printed.startswith(f"{raised.type}: "):
                text += printed[len(raised.type) :]
            return Said("uncaught" if state.uncaught else "handled", text, state.frames)
        if before is not None and before.kind == "uncaught":
            return before
        return Said("written", state.written or "", state.frames) if state.written or state.frames else None

    def close(self) -> None:
        """It is not looked into any more."""
        self.memory.close()
