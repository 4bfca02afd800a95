"""A process of Windows that stands still becomes a ``Crash``: every part guarded, whatever fails becomes a ``Gap``."""

from __future__ import annotations

import time

import msgspec

from necropsy.capture.linux import instruction
from necropsy.capture.linux.gaps import Gaps
from necropsy.capture.linux.registers import Registers
from necropsy.capture.windows import regions, stacks
from necropsy.capture.windows.stopped import Stopped
from necropsy.formats import arm64_context, x64_context
from necropsy.formats.minidump_records import ExceptionRecord, ModuleRecord, ThreadRecord
from necropsy.formats.windows_deaths import (
    ACCESS_VIOLATION,
    FAST_FAIL,
    STACK_OVERFLOW,
    end_of,
    fault_of,
    is_status,
    python_version,
)
from necropsy.model import Address, Crash, Environment, Exit, Fault, Instruction, Module, Thread

_NO_WALK = {"x86": "32-bit x86", "ARM64": "ARM64", "ARM": "ARM"}


def crash_of(stopped: Stopped) -> Crash:
    """What the process shows of its death, or of where it stands. Never raises: what could not be read is a gap."""
    gaps = Gaps(stopped.gaps)
    crash = gaps.part("process", lambda: _Reader(stopped, gaps).crash())
    return crash if crash is not None else Crash(pid=stopped.pid, at=stopped.at, gaps=tuple(gaps.list))


class _Reader:
    """One process being read; holds what several parts need."""

    def __init__(self, stopped: Stopped, gaps: Gaps) -> None:
        self.stopped, self.gaps = stopped, gaps
        self.deadline = time.monotonic() + stopped.budget_s
        self.architecture = (stopped.system.architecture if stopped.system else None) or "x64"
        self.crashed = stopped.crashed()
        self.registers = self._registers()

    def crash(self) -> Crash:
        stopped, exception = self.stopped, self.stopped.exception
        read = self.gaps.part("instruction", self._instruction)
        threads = self.gaps.part("threads", self._threads)
        return Crash(
            pid=stopped.pid,
            at=stopped.at,
            exit=self._exit(exception),
            fault=self.gaps.part("fault", self._fault),
            threads=threads,
            registers={name: Address(value) for name, value in self.registers.items()} if self.registers else None,
            instruction=read,
            modules=tuple(map(_module, stopped.modules)) if stopped.modules else None,
            log_tail=stopped.log_tail,
            messages=stopped.messages or None,
            environment=self._environment(),
            gaps=tuple(self.gaps.list),
        )

    # ------------------------------------------------------------ how it ended

    def _exit(self, exception: ExceptionRecord | None) -> Exit:
        if exception is None or not is_status(exception.code):
            return Exit(kind="running", text="written while it ran")
        code = exception.code
        module = self.stopped.module_at(exception.address)
        where = f" in {module.name}+{exception.address - module.base:#x}" if module else f" at {exception.address:#x}"
        subcode = exception.parameters[0] if code == FAST_FAIL and exception.parameters else None
        return end_of(code, f"exception code 0x{code:08X}{where}", subcode)

    def _fault(self) -> Fault | None:
        exception = self.stopped.exception
        if exception is None:
            self.gaps.add("fault", "it was read while it lived: there is no fault")
            return None
        fault = fault_of(exception.code, exception.parameters)
        if fault is not None and exception.code == STACK_OVERFLOW and len(exception.parameters) == 2:
            touched = fault_of(ACCESS_VIOLATION, exception.parameters)
            fault = touched if touched is not None and touched.address is not None else fault
        return regions.complete(self.stopped, fault) if fault is not None else None

    # ------------------------------------------------------------ registers

    def _registers(self) -> dict[str, int] | None:
        if self.crashed is None:
            return None
        exception = self.stopped.exception
        context = (exception.context if exception is not None else b"") or self.crashed.context
        found = self.of_context(context)
        if found is None:
            self.gaps.add("registers", "the registers of the thread that crashed are not in the dump")
        return found

    def of_context(self, context: bytes) -> dict[str, int] | None:
        """The registers of a thread, as its processor calls them."""
        readers = {
            "x64": x64_context.registers,
            "x86": x64_context.registers_of_x86,
            "ARM64": arm64_context.registers,
        }
        reader = readers.get(self.architecture)
        return reader(context) if reader is not None and context else None

    def _instruction(self) -> Instruction | None:
        values = self.registers
        if values is None or self.architecture != "x64":
            return None
        teb = self.crashed.teb if self.crashed is not None else 0
        code = self.stopped.memory.some(values["rip"], 15)
        if not code and self.stopped.module_at(values["rip"]) is not None:
            self.gaps.add("instruction", "the code at the exception is not in the dump")
            return None
        found = instruction.decode(code, Registers({**values, "fs_base": 0, "gs_base": teb}))
        return msgspec.structs.replace(found, cpu_has_feature=None)

    # ------------------------------------------------------------ threads

    def _threads(self) -> tuple[Thread, ...] | None:
        crashed = self.crashed
        others = [one for one in self.stopped.threads if crashed is None or one.tid != crashed.tid]
        order = ([crashed] if crashed is not None else []) + others
        if self.architecture in _NO_WALK:
            self.gaps.add("frames", f"stacks of {_NO_WALK[self.architecture]} are not walked yet")
        return tuple(self._thread(one, is_crashed=one is crashed) for one in order) if order else None

    def _thread(self, one: ThreadRecord, *, is_crashed: bool) -> Thread:
        values = self.registers if is_crashed else self.of_context(one.context)
        pointer = (
            None if values is None else next((values[name] for name in ("rsp", "esp", "sp") if name in values), None)
        )
        part = "stack" if is_crashed else f"stack of thread {one.tid}"
        stack = self.gaps.part(part, lambda: stacks.of_thread(self.stopped, one, pointer))
        exception = self.stopped.exception
        dies = is_crashed and exception is not None and is_status(exception.code)
        if stack is not None and dies and exception is not None:
            address = exception.parameters[1] if len(exception.parameters) > 1 else None
            stack = stacks.judged(stack, exception.code, address)
        return Thread(tid=one.tid, name=one.name, crashed=dies, stack=stack)

    # ------------------------------------------------------------ surroundings

    def _environment(self) -> Environment:
        stopped = self.stopped
        program = stopped.executable
        return Environment(
            platform=_platform(stopped),
            python=_python(stopped.modules),
            executable=program.path if program is not None else None,
            variables=stopped.variables,
        )


def _platform(stopped: Stopped) -> str | None:
    system = stopped.system
    if system is None:
        return None
    version = ".".join(map(str, system.version)) if any(system.version) else ""
    return " ".join(part for part in (system.platform, version) if part) or None


def _python(modules: tuple[ModuleRecord, ...]) -> str | None:
    found = (python_version(one.name, one.version) for one in modules if one.version is not None)
    return next((one for one in found if one is not None), None)


def _module(one: ModuleRecord) -> Module:
    return Module(
        path=one.path,
        low=Address(one.base),
        high=Address(one.base + one.size),
        build_id=one.codeview.identity.lower() if one.codeview is not None else None,
        version=one.version,
    )
