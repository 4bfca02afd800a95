"""A process of Windows that stands still becomes a ``Crash``: every part guarded, whatever fails becomes a ``Gap``."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from necropsy.capture.process import arm64_instruction, fault_instruction, python_stacks, thread_report
from necropsy.capture.process.guarded import Gaps
from necropsy.capture.process.memory import Registers
from necropsy.capture.windows import (
    cpp_exception,
    exception_records,
    fatal_exceptions,
    fault_consistency,
    library_versions,
    memory_map,
    memory_messages,
    process_parameters,
    stack_bounds,
    x86_instruction,
)
from necropsy.capture.windows.interpreter import WindowsFrameReader
from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.symbolizer import Symbolizer
from necropsy.capture.windows.target import ProcessSnapshot
from necropsy.capture.windows.unwinder import WalkedStack
from necropsy.capture.windows.unwinders import Unwinders, counter_of, pointer_of, registers_of
from necropsy.formats.minidump_records import ExceptionRecord, ThreadRecord
from necropsy.formats.windows_exits import ACCESS_VIOLATION, FAST_FAIL, STACK_OVERFLOW, end_of, fault_of
from necropsy.model import (
    Address,
    CppException,
    Crash,
    Environment,
    Exit,
    Fault,
    Frame,
    Instruction,
    Message,
    Stack,
    Thread,
)
from necropsy.secrets.names import is_harmless

SHARE_OF_CRASHED = 0.6
"""Of the budget of time, for the stack of the thread that crashed; the others get what is left."""
_REPORTING_FRAMES = 40
"""How many frames above abort() are searched for a failed CHECK or an uncaught exception."""
_32_BITS = (1 << 32) - 1
_OF_32_BITS = frozenset({"x86", "ARM"})
_EXECUTE = 8
"""First parameter of an access violation: the code itself may not be executed."""


def crash_of(stopped: ProcessSnapshot) -> Crash:
    """What the process shows of its death, or of where it stands. Never raises: what could not be read is a gap."""
    gaps = Gaps(stopped.gaps)
    images = ModuleImages(stopped.modules, stopped.memory, stopped.folders)
    try:
        crash = gaps.part("process", lambda: _Reader(stopped, gaps, images).crash())
    finally:
        images.close()
    return crash if crash is not None else Crash(pid=stopped.pid, at=stopped.at, gaps=tuple(gaps.list))


class _Reader:
    def __init__(self, stopped: ProcessSnapshot, gaps: Gaps, images: ModuleImages) -> None:
        self.stopped, self.gaps, self.images = stopped, gaps, images
        self.memory = images.memory
        self.names = Symbolizer(images, stopped.folders, stopped.symbols)
        self.deadline = time.monotonic() + stopped.budget_s
        self.architecture = (stopped.system.architecture if stopped.system else None) or "x64"
        self.on_windows = stopped.system is None or stopped.system.is_windows
        self.crashed = stopped.crashed()
        self.registers = self._registers()
        self.walkers = Unwinders(stopped, images, self.names, on_windows=self.on_windows)
        self.has_python = WindowsFrameReader.interpreter(images) is not None
        self.walked: WalkedStack | None = None
        self.stack: Stack | None = None
        """Both are those of the thread that crashed."""

    def crash(self) -> Crash:
        stopped = self.stopped
        read = self.gaps.part("instruction", self._instruction)
        fault = self.gaps.part("fault", lambda: self._fault(read))
        if fault_consistency.is_strange(fault, read):
            self.gaps.add("instruction", "the one at the program counter touches no memory: it is not what faulted")
            read = None
        threads = self.gaps.part("threads", self._threads)
        crash = Crash(
            pid=stopped.pid,
            at=stopped.at,
            exit=stopped.ended if stopped.ended is not None else self._exit(stopped.exception),
            fault=fault,
            threads=threads,
            registers={name: Address(value) for name, value in self.registers.items()} if self.registers else None,
            instruction=read,
            modules=tuple(map(library_versions.module_of, stopped.modules)) if stopped.modules else None,
            log_tail=stopped.log_tail,
            messages=self.gaps.part("messages", self._messages),
            cpp_exception=self.gaps.part("cpp_exception", self._cpp_exception),
            environment=self.gaps.part("environment", self._environment),
            stack_reserve=self.gaps.part("stack_reserve", self._stack_reserve),
        )
        found = self.gaps.part("libraries", lambda: library_versions.packages(self.images)) or {}
        libraries = library_versions.libraries(stopped.modules, found)
        if crash.environment is not None and found:
            crash = msgspec.structs.replace(
                crash, environment=msgspec.structs.replace(crash.environment, packages=found)
            )
        gaps = [*self.gaps.list, *self.images.gaps(self.architecture if self.on_windows else None), *self.names.gaps()]
        return msgspec.structs.replace(crash, libraries=libraries or None, gaps=tuple(dict.fromkeys(gaps)))

    # ------------------------------------------------------------ how it ended

    @property
    def code(self) -> int:
        """The code of the exception that it died of; 0 where it lives."""
        exception = self.stopped.exception
        return exception.code if exception is not None and self._kills(exception) else 0

    @property
    def parameters(self) -> tuple[int, ...]:
        """Of the exception; addresses of a 32-bit process without sign extension."""
        exception = self.stopped.exception
        found = exception.parameters if exception is not None else ()
        return tuple(one & _32_BITS for one in found) if self.architecture in _OF_32_BITS else found

    def _kills(self, exception: ExceptionRecord) -> bool:
        if self.stopped.ended is not None:
            return self.stopped.ended.kind != "running"
        stopped = self.stopped
        # DbgBreakPoint is a breakpoint and a return: where it goes back to lies at the stack pointer.
        pointer, registers = pointer_of(self.registers), self.registers or {}
        read = self.memory.u64 if "rsp" in registers else self.memory.u32
        back = read(pointer) if pointer is not None and "sp" not in registers else None
        asked_by = stopped.module_at(back) if back else None
        return fatal_exceptions.kills(exception.code, stopped.module_at(exception.address), asked_by=asked_by)

    def _exit(self, exception: ExceptionRecord | None) -> Exit:
        if exception is None or not self._kills(exception):
            return Exit(kind="running", text="written while it ran")
        code = exception.code
        subcode = exception.parameters[0] if code == FAST_FAIL and exception.parameters else None
        if code == FAST_FAIL and subcode is None and (counter := counter_of(self.registers)) is not None:
            subcode = x86_instruction.subcode(self.memory.some(counter, 4), self.registers or {})
        return end_of(code, fatal_exceptions.told(exception, self.stopped.module_at(exception.address)), subcode)

    def _fault(self, read: Instruction | None) -> Fault | None:
        exception = self.stopped.exception
        if self.stopped.fault is not None:
            # Only x86-64 refuses an address without saying which.
            return fault_consistency.fault_told(self.stopped.fault, read if "rip" in (self.registers or {}) else None)
        if exception is None or not self.code or not self.on_windows:
            if not self.code:
                lost = self.stopped.ended is not None and self.stopped.ended.kind == "unknown"
                why = "the record of the exception is not there" if lost else "it was read while it lived"
                self.gaps.add("fault", why)
            return None
        parameters = self.parameters
        fault = fault_of(exception.code, parameters)
        if fault is not None and exception.code == STACK_OVERFLOW and len(parameters) == 2:
            touched = fault_of(ACCESS_VIOLATION, parameters)
            fault = touched if touched is not None and touched.address is not None else fault
        return memory_map.complete(self.stopped, self.images, fault) if fault is not None else None

    # ------------------------------------------------------------ registers

    def _registers(self) -> dict[str, int] | None:
        if self.crashed is None:
            return None
        exception = self.stopped.exception
        context = (exception.context if exception is not None else b"") or self.crashed.context
        found = registers_of(self.architecture, context)
        if found is None:
            self.gaps.add("registers", f"those of thread {self.crashed.tid}, which crashed, are not there")
        return found

    def _instruction(self) -> Instruction | None:
        values, counter = self.registers, counter_of(self.registers)
        if values is None or counter is None:
            return None
        exception = self.stopped.exception
        executes = exception is not None and exception.code == ACCESS_VIOLATION and self.on_windows
        if executes and exception is not None and exception.parameters[:1] == (_EXECUTE,):
            return Instruction(address=Address(counter))  # whatever lies there, it may not be executed
        code = self.memory.some(counter, 15)
        if not code and self.stopped.module_at(counter) is not None:
            self.gaps.add("instruction", "the code at the exception is not at hand")
            return None
        teb = self.crashed.teb if self.crashed is not None else 0
        if "eip" in values:
            found = x86_instruction.of_x86(code, values, teb)
        elif "pc" in values:
            found = arm64_instruction.of_arm64(code, values)
        else:
            found = fault_instruction.decode(code, Registers({**values, "fs_base": 0, "gs_base": teb}))
        return found if self.stopped.here else msgspec.structs.replace(found, cpu_has_feature=None)

    # ------------------------------------------------------------ threads

    def _threads(self) -> tuple[Thread, ...] | None:
        crashed = self.crashed
        order = [*self._in_order(crashed)]
        if not order:
            self.gaps.add("threads", "there is no list of threads")
            return None
        if not any(self._values_of(one, is_crashed=one is crashed) for one in order[:1]):
            kind = self.architecture + (f" {self.stopped.system.platform}" if self.stopped.system else "")
            self.gaps.add("frames", f"no registers of the first thread could be read ({kind}), so nothing was walked")
        python = self.gaps.part("python", self._python) or {}
        return tuple(self._thread(one, python, is_crashed=one is crashed) for one in order)

    def _in_order(self, crashed: ThreadRecord | None) -> Iterator[ThreadRecord]:
        if crashed is not None:
            yield crashed
        yield from (one for one in self.stopped.threads if crashed is None or one.tid != crashed.tid)

    def _values_of(self, one: ThreadRecord, *, is_crashed: bool) -> dict[str, int] | None:
        return self.registers if is_crashed else registers_of(self.architecture, one.context)

    def _stack(self, one: ThreadRecord, values: dict[str, int] | None, *, is_crashed: bool) -> Stack | None:
        narrow = "esp" in (values or {})
        stack = stack_bounds.of_thread(self.stopped, one, pointer_of(values), narrow=narrow)
        exception = self.stopped.exception
        if stack is not None and is_crashed and self.code and exception is not None:
            address = self.parameters[1] if len(self.parameters) > 1 else None
            stack = stack_bounds.by_header(
                stack_bounds.judged(stack, self.code, address), self._stack_reserve(), address
            )
        elif stack is None and is_crashed and self.code == STACK_OVERFLOW:
            stack = Stack(guard_hit=True)
        return stack

    def _walk(self, values: dict[str, int] | None, stack: Stack | None, *, is_crashed: bool) -> WalkedStack | None:
        walker = self.walkers.of(values) if values is not None else None
        if walker is None or values is None:
            return None
        now = time.monotonic()
        left = max(self.deadline - now, 0.0)
        walked = walker.walk(values, stack, now + left * (SHARE_OF_CRASHED if is_crashed else 0.5))
        if not walked.complete and walked.why and is_crashed:
            self.gaps.add("frames", f"{len(walked):,} frames read, then {walked.why}")
        return walked

    def _thread(
        self,
        one: ThreadRecord,
        python: dict[int, tuple[Frame, ...]],
        *,
        is_crashed: bool,
    ) -> Thread:
        part = "" if is_crashed else f" of thread {one.tid}"
        values = self._values_of(one, is_crashed=is_crashed)
        stack = self.gaps.part(f"stack{part}", lambda: self._stack(one, values, is_crashed=is_crashed))
        walked = self.gaps.part(f"frames{part}", lambda: self._walk(values, stack, is_crashed=is_crashed))
        if is_crashed:
            # Of the others a walked stack is not kept: there may be thousands, and each may be deep.
            self.stack, self.walked = stack, walked
        frames = python.get(one.tid)
        if frames is not None:
            frames = python_stacks.join(frames, walked.evaluators() if walked is not None else [])
        elif python or not self.has_python:
            frames = ()
        return Thread(
            tid=one.tid,
            name=one.name,
            crashed=is_crashed and bool(self.code),
            python=frames,
            frames=walked.kept() if walked is not None else None,
            frames_total=len(walked) if walked is not None else None,
            complete=walked.complete if walked is not None else None,
            folds=thread_report.with_python(thread_report.folded(walked), frames) if walked is not None else (),
            largest=walked.largest() if walked is not None and is_crashed else (),
            stack=stack,
        )

    def _python(self) -> dict[int, tuple[Frame, ...]]:
        left = max(self.deadline - time.monotonic(), 0.2)
        if self.stopped.python is not None:
            return self.stopped.python(left)
        if not self.has_python or self.architecture != "x64":
            return {}
        reader = WindowsFrameReader(self.memory, self.images, library_versions.python_of(self.stopped.modules))
        return reader.collect(left)

    # ------------------------------------------------------------ last words

    def _innermost(self) -> list[str | None]:
        return (
            [place.function for place in self.walked.places.first(_REPORTING_FRAMES)] if self.walked is not None else []
        )

    def _messages(self) -> tuple[Message, ...] | None:
        """Messages seen, and those only in memory; None where neither could be read."""
        stopped, exception = self.stopped, self.stopped.exception
        found = list(stopped.messages)
        if exception is not None and self.on_windows and self.code:
            for one in exception_records.chain(exception, self.memory):
                found += exception_records.messages(one, self.memory)
        counter = counter_of(self.registers) if self.code else None
        unloaded = memory_messages.of_unloaded(stopped, counter) if counter is not None else None
        if unloaded is not None:
            found.append(unloaded)
        stack = self.stack
        if self.crashed is not None and stack is not None and memory_messages.ended_itself(self.code):
            found += memory_messages.of_checks(stopped, stack, self._innermost(), self.crashed.tid)
        if found or stopped.log_tail is not None:
            return tuple(found)
        self.gaps.add("messages", "what the process wrote was not seen, and it left no message in memory")
        return None

    def _cpp_exception(self) -> CppException | None:
        exception = self.stopped.exception
        if exception is None or not self.code or self.crashed is None or not self.on_windows:
            return None
        for one in exception_records.chain(exception, self.memory):
            thrown = cpp_exception.of_record(one.code, one.parameters, self.memory, self.images)
            if thrown is not None:
                if thrown.type is None:
                    self.gaps.add("cpp_exception", "its type is in memory or in an image that is not available")
                return thrown if thrown.type is not None else None
        if self.stack is None or not memory_messages.ended_itself(self.code):
            return None
        return cpp_exception.on_stack(self.memory, self.stack, self.images)

    # ------------------------------------------------------------ surroundings

    def _stack_reserve(self) -> int | None:
        program = self.stopped.executable
        loaded = self.images.at(program.base) if program is not None else None
        return loaded.image.stack_reserve if loaded is not None and loaded.image is not None else None

    def _environment(self) -> Environment:
        stopped = self.stopped
        program = stopped.executable
        variables = stopped.variables
        if variables is not None:
            # A process that is at hand gives all that it was started with, and half of that is somebody's own.
            variables = {name: value for name, value in sorted(variables.items()) if is_harmless(name.upper())}
        elif self.architecture == "x64" and self.on_windows:
            blocks = (process_parameters.variables(self.memory, one.teb) for one in stopped.threads[:4])
            variables = next((one for one in blocks if one is not None), None)
        return Environment(
            platform=_platform(stopped),
            python=library_versions.python_of(stopped.modules),
            executable=program.path if program is not None else None,
            variables=variables,
            cpu=stopped.cpu,
        )


def _platform(stopped: ProcessSnapshot) -> str | None:
    system = stopped.system
    if system is None:
        return None
    version = ".".join(map(str, system.version)) if any(system.version) else ""
    return " ".join(part for part in (system.platform, version) if part) or None
