"""The interpreter of a process that runs: found once, then looked into without stopping it."""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.capture.linux.inspect import memory_map, modules
from necropsy.capture.linux.inspect.interpreter import LinuxFrameReader
from necropsy.capture.linux.inspect.library_versions import python_version
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.inspect.source_lines import Sources
from necropsy.capture.process.cpython_exceptions import InterpreterAddresses, Objects, traceback_of
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.capture.run_options import Said


@dataclass
class InterpreterState:
    """One process's; ``close`` is owed to it."""

    pid: int
    memory: ProcessMemory
    objects: Objects

    @classmethod
    def find(cls, pid: int) -> InterpreterState | None:
        """The interpreter of a process; None where it has none, or one that cannot be read.

        Raises:
            OSError: the process is gone or may not be read.

        """
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
