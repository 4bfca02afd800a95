"""What is read: a stopped process here, a core in ``core_target``. The readers ask it and need not know which it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from necropsy.capture.linux.inspect import (
    environment,
    fault_mappings,
    memory_map,
    modules,
    registers,
    resource_limits,
    waits,
)
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.unwind import py_spy, stack_bounds
from necropsy.capture.process import python_stacks
from necropsy.capture.process.memory import Memory, Registers
from necropsy.model import Environment, Fault, Limit, Wait

if TYPE_CHECKING:
    from necropsy.capture.linux.inspect.source_lines import Sources


class Target(Protocol):
    """One process at one moment."""

    pid: int
    maps: memory_map.MemoryMap
    stack_limit: int | None
    """The soft RLIMIT_STACK in bytes, -1 for unlimited, None where it is not known."""

    @property
    def memory(self) -> Memory:
        """All of it."""

    def registers(self, tid: int) -> Registers:
        """Of one thread. Raises OSError where they cannot be read."""

    def name_of(self, tid: int) -> str | None:
        """A thread's name."""

    def files(self) -> MappedFiles:
        """The mapped ELF files."""

    def environment(self, files: MappedFiles) -> Environment:
        """Where the process lived."""

    def limits(self) -> tuple[Limit, ...] | None:
        """The limits that were set, and what was in use; None where nobody knows."""

    def complete(self, fault: Fault) -> Fault:
        """The fault with what lies around its address."""

    def wait(self, now: Registers, functions: Iterable[str | None]) -> Wait | None:
        """What a thread with these registers and innermost functions waits for."""

    def sources(self) -> Sources | None:
        """Its Python files; None where those that lie here need not be the ones that it ran."""

    def dump(self, *, with_locals: bool) -> python_stacks.PythonStacks:
        """Start reading the Python stacks. Raises PythonStackError where that is not possible."""


class StoppedProcess:
    """A process whose threads are ptrace-stopped by this one."""

    def __init__(self, pid: int, memory: Memory) -> None:
        """Read its mappings and limits. Raises OSError where the process is gone or may not be read."""
        self.pid, self.memory = pid, memory
        self.maps = memory_map.read(pid)
        self.stack_limit = stack_bounds.soft_limit(pid)

    def registers(self, tid: int) -> Registers:
        """As ``Target.registers``."""
        return registers.read(tid)

    def name_of(self, tid: int) -> str | None:
        """As ``Target.name_of``."""
        try:
            return Path(f"/proc/{self.pid}/task/{tid}/comm").read_text(errors="replace").rstrip("\n") or None
        except OSError:
            return None

    def files(self) -> MappedFiles:
        """As ``Target.files``."""
        return modules.find(self.pid, self.maps, self.memory)

    def environment(self, files: MappedFiles) -> Environment:
        """As ``Target.environment``."""
        return environment.read(self.pid, self.memory, files)

    def limits(self) -> tuple[Limit, ...]:
        """As ``Target.limits``."""
        return resource_limits.in_use(self.pid)

    def complete(self, fault: Fault) -> Fault:
        """As ``Target.complete``."""
        return fault_mappings.complete(fault, self.pid, self.maps)

    def wait(self, now: Registers, functions: Iterable[str | None]) -> Wait | None:
        """As ``Target.wait``."""
        return waits.of(self.pid, now, self.memory, functions)

    def sources(self) -> Sources:
        """As ``Target.sources``."""
        from necropsy.capture.linux.inspect.source_lines import Sources

        return Sources(self.pid)

    def dump(self, *, with_locals: bool) -> python_stacks.PythonStacks:
        """As ``Target.dump``; where py-spy does not start, the answer will say so."""
        try:
            return py_spy.Dump(self.pid, with_locals=with_locals)
        except python_stacks.PythonStackError as error:
            return python_stacks.Unreadable(str(error))
