"""Builds the ``Crash`` of a stopped, dying process; a part that fails becomes a ``Gap``.

What only some deaths need (Python's objects, a framework's kernels, last words) is imported where it is used.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec

from necropsy.capture.linux.core import small_core
from necropsy.capture.linux.inspect import fault_mappings, library_versions, modules, registers
from necropsy.capture.linux.inspect.last_words import LastWordsReader
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.inspect.target import StoppedProcess, Target
from necropsy.capture.linux.inspect.threads import Crashed, ThreadReader
from necropsy.capture.linux.supervise import minimal_crash
from necropsy.capture.linux.supervise.crash_context import CrashContext, FirstChance
from necropsy.capture.linux.unwind.unwinder import Unwinder
from necropsy.capture.process import fault_instruction, python_stacks
from necropsy.capture.process.guarded import Gaps
from necropsy.capture.process.memory import RecordingMemory, Registers
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.formats import siginfo
from necropsy.formats.processors import AARCH64, X86_64
from necropsy.formats.siginfo import SI_KERNEL, SigInfo
from necropsy.model import (
    Address,
    Call,
    Crash,
    Fault,
    Instruction,
    Operation,
    Thread,
)

_HANDLERS_STACK = 128 << 10
"""No handler of a fatal signal digs deeper than this before it ends the process."""
_LOWEST = 1 << 16
"""Nothing is mapped below it, so nothing was unmapped."""
_FRAMEWORK = re.compile(r"OpKernelContext\*|\b(?:at::_ops|tflite::ops)::")
"""Functions that name an op of TensorFlow, PyTorch or TensorFlow Lite."""


def capture(death: CrashContext) -> Crash:
    """Read the stopped process. Never raises: what could not be read is a gap."""
    gaps = Gaps(death.gaps)
    return _guarded(death, gaps, lambda: _capture(death, gaps))


def read(death: CrashContext, target: Target) -> Crash:
    """Read what ``target`` stands for, a core mostly. Never raises: what could not be read is a gap."""
    gaps = Gaps(death.gaps)
    return _guarded(death, gaps, lambda: _read(death, gaps, target))


def _guarded(death: CrashContext, gaps: Gaps, reading: Callable[[], Crash]) -> Crash:
    crash = gaps.part("process", reading)
    if crash is not None:
        return crash
    # Not even its mappings can be read, as of a process that forbids it (PR_SET_DUMPABLE): the signal is known still.
    whole = gaps.list[-1].why
    for part in ("threads", "modules", "instruction"):
        gaps.add(part, whole)
    known = minimal_crash.minimal(death, *(gap for gap in gaps.list if gap not in death.gaps))
    try:
        return msgspec.structs.replace(known, registers=registers.read(death.tid).as_noun())
    except OSError:
        return known


def _capture(death: CrashContext, gaps: Gaps) -> Crash:
    with ProcessMemory(death.pid, death.memory) as memory:
        return _read(death, gaps, StoppedProcess(death.pid, memory))


def _read(death: CrashContext, gaps: Gaps, target: Target) -> Crash:
    deadline = time.monotonic() + death.budget_s
    # py-spy is a process of its own: it reads while we unwind.
    dump = gaps.part("python", lambda: target.dump(with_locals=death.python_locals))
    try:
        return _Reader(death, gaps, target, dump, deadline).crash()
    finally:
        if dump is not None:
            dump.stop()


def _runs_python(crash: Crash) -> bool:
    return any(thread.python for thread in crash.threads or ())


class _Reader:
    def __init__(
        self, death: CrashContext, gaps: Gaps, target: Target, dump: python_stacks.PythonStacks | None, deadline: float
    ) -> None:
        self.death, self.gaps, self.target, self.dump, self.deadline = death, gaps, target, dump, deadline
        self.maps, self.memory = target.maps, target.memory
        self.seen = RecordingMemory(target.memory)
        """For searches for evidence: a capsule keeps the pages."""
        self.tid = death.tid
        self.kernel_call: Call | None = None
        """The inputs of a framework's kernel, by its own memory."""
        self.info, self.registers, self.handled_first = self._choose()

    def _choose(self) -> tuple[SigInfo | None, Registers | None, bool]:
        """The signal and the registers to read from: those of the first chance where a handler raised it again."""
        death, first = self.death, self.death.first_chance
        raw = death.siginfo
        info = None if raw is None else self.gaps.part("fault", lambda: siginfo.decode(raw))
        if info is not None and info.address is not None and self.memory.processor.machine == AARCH64.machine:
            info = replace(info, address=fault_instruction.untagged(info.address))
        if raw is None:
            alive = "it was read while it lived: there is no fault"
            self.gaps.add("fault", "the kernel gives no details for this signal" if death.signo else alive)
        now = self.gaps.part("registers", lambda: self.target.registers(death.tid))
        if first is None:
            return info, now, False
        before, then = siginfo.decode(first.siginfo), self._then(first, now)
        if first.is_why:
            self.tid = first.tid
            return before, then, True
        raised = info is None or (info.code_number <= 0 and info.sender in {None, death.pid})
        at_same_place = now is not None and now.pc == then.pc
        kernel = info is not None and info.code_number == SI_KERNEL
        again = before.number == death.signo and (raised or at_same_place or kernel)
        # A handler that aborts: the kernel's record of the interrupted registers still lies on its stack.
        inside = first.tid == death.tid and now is not None and self._handling(now, then)
        if again or (inside and death.signo != before.number and info is not None and info.sender == death.pid):
            self.tid = first.tid
            return before, then, True
        return info, now, False

    def _then(self, first: FirstChance, now: Registers | None) -> Registers:
        """The registers at the first chance; those that the kernel keeps beside NT_PRSTATUS may be in it or not."""
        then = registers.parse(first.registers, self.memory.processor)
        missing = {} if now is None or first.tid != self.death.tid else now.values
        return Registers({**missing, **then.values}, then.processor)

    def _handling(self, now: Registers, then: Registers) -> bool:
        """Whether the handler that was started at ``then`` is still running: rsp and rip side by side (ucontext)."""
        record = struct.pack("<QQ", then.sp, then.pc)
        return record in self.memory.some(now.sp, _HANDLERS_STACK)

    def _look_behind_a_handler(self) -> None:
        """Where a handler may have sent the signal, take the fault that it was started for."""
        info, now = self.info, self.registers
        if self.death.first_chance is not None or info is None or now is None:
            return
        if info.code_number > 0 or info.sender != self.death.pid or now.processor is not X86_64:
            return
        from necropsy.capture.linux.inspect import handled_fault

        unwinder = Unwinder(self.maps, self.memory, self.files)
        found = self.gaps.part(
            "fault",
            lambda: handled_fault.find(
                self.target, now, info, self.tid, lambda then, until: unwinder.unwind(then, None, until)
            ),
        )
        unwinder.close()
        if found is not None:
            self.death = replace(self.death, first_chance=found)
            self.info, self.registers, self.handled_first = self._choose()

    def crash(self) -> Crash:
        files = self.gaps.part("modules", self.target.files)
        self.files = files or modules.MappedFiles(())
        self._look_behind_a_handler()
        death = self.death
        read = self.gaps.part("instruction", self._instruction)
        crashed = Crashed(self.tid, self.registers, self.info)
        self.threads = ThreadReader(
            death, self.gaps, self.target, self.files, crashed=crashed, dump=self.dump, deadline=self.deadline
        )
        threads = self.gaps.part("threads", self.threads.read)
        fault = self.gaps.part("fault", lambda: self._fault(read))
        words = LastWordsReader(death, self.gaps, self.target, self.seen, self.files, crashed, self.threads)
        last_words = self.gaps.part("abort_message", words.abort_message)
        left = None
        if last_words is None:
            left = self.gaps.part("last_words", lambda: words.left_behind(threads or (), read))
        crash = Crash(
            pid=death.pid,
            fault=fault,
            threads=threads,
            registers=self.registers.as_noun() if self.registers else None,
            instruction=read,
            modules=None if files is None else tuple(map(library_versions.module_of, self.files.files)),
            heaps=tuple(one.as_noun() for one in fault_mappings.heaps(self.maps)),
            libraries=self.gaps.part("libraries", lambda: library_versions.versions(self.files)),
            log_tail=death.log_tail,
            messages=self.gaps.part("messages", lambda: words.messages(last_words, left)),
            abort_message=last_words,
            last_words=left,
            cpp_exception=self.gaps.part("cpp_exception", words.cpp_exception),
            operation=self.gaps.part("operation", lambda: self._operation(threads or ())),
            environment=self.gaps.part("environment", lambda: self.target.environment(self.files)),
            limits=self.gaps.part("limits", self.target.limits),
        )
        crash = self._extra(crash, lambda it: msgspec.structs.replace(it, threads=self._with_origins(it)))
        crash = self._extra(crash, lambda it: msgspec.structs.replace(it, call=self._call(it)))
        crash = self._extra(crash, self._with_source_lines)
        crash = self._extra(crash, self._with_objects)
        crash = self._extra(crash, lambda it: library_versions.added(it, self.files))
        crash = self._extra(crash, lambda it: msgspec.structs.replace(it, operation=self._with_lines(it)))
        crash = self._extra(crash, self._with_former)
        variables = (crash.environment.variables if crash.environment is not None else None) or {}
        preloaded = variables.get("LD_PRELOAD", "")
        if "/_guard-" in preloaded or any("/_guard-" in file.path for file in self.files.files):
            crash = self.gaps.part("guard", lambda: self._with_guarded_block(crash)) or crash
        if death.core is not None:
            left_out = self.gaps.part("core", lambda: self._keep(read))
            if left_out is not None:
                self.gaps.add("core", left_out)
        unread = self.files.left_out()
        if unread is not None:
            self.gaps.add("modules", unread)
        return msgspec.structs.replace(crash, gaps=tuple(self.gaps.list))

    def _keep(self, read: Instruction | None) -> str | None:
        """Write the core; what had to be left out of it."""
        order = (self.tid, *(tid for tid in self.death.threads if tid != self.tid))
        threads = {tid: now for tid in order if (now := self._known_registers(tid)) is not None}
        operands = [one.address for one in read.operands if one.address is not None] if read else []
        kept = small_core.Kept(
            registers=threads,
            stacks=self.threads.stacks,
            pages=tuple(self.seen.pages),
            addresses=(*operands, *([self.registers.pc] if self.registers else [])),
            siginfo=self._siginfo(),
            signal=self.info.number if self.info else self.death.signo,
            left_at=self.threads.unwound.left_at() if self.threads.unwound is not None else (),
        )
        return small_core.write(self.death, self.target, self.files, kept)

    def _siginfo(self) -> bytes:
        first = self.death.first_chance
        raw = first.siginfo if self.handled_first and first is not None else self.death.siginfo
        return raw or b""

    def _known_registers(self, tid: int) -> Registers | None:
        try:
            return self.threads.registers_of(tid)
        except OSError:
            return None

    def _operation(self, threads: tuple[Thread, ...]) -> Operation | None:
        own = [thread.python for thread in threads if thread.crashed and thread.python]
        # Work on a pool thread was asked for by the Python thread that waits in the framework, mostly the main one.
        asking = [thread.python for thread in threads if thread.tid == self.death.pid and thread.python]
        unwound = self.threads.unwound
        functions = (place.function or "" for place in unwound.distinct()) if unwound is not None else ()
        if not own and not asking and not any(map(_FRAMEWORK.search, functions)):
            return None
        from necropsy.capture.linux.inspect import framework_op

        finder = framework_op.Finder(self.seen, self.maps, self.files)
        found = finder.find(unwound, self.threads.kernels, own or asking, own=bool(own))
        self.kernel_call = finder.call
        return found

    @staticmethod
    def _extra(crash: Crash, step: Callable[[Crash], Crash]) -> Crash:
        """What ``step`` makes of the crash; unchanged where Python's objects are not as expected."""
        try:
            return step(crash)
        except (PythonStackError, ArithmeticError, ValueError, LookupError, struct.error, OSError):
            return crash

    def _with_source_lines(self, crash: Crash) -> Crash:
        sources = self.target.sources() if _runs_python(crash) else None
        if sources is None or crash.threads is None:
            return crash
        from necropsy.capture.linux.inspect import source_lines

        threads = source_lines.added(crash.threads, sources)
        if sources.changed:
            self.gaps.add("source lines", f"changed since the process started: {', '.join(sources.changed[:5])}")
        foreign = source_lines.undeclared_calls(threads, sources)
        return msgspec.structs.replace(crash, threads=threads, foreign_calls=foreign)

    def _with_objects(self, crash: Crash) -> Crash:
        if not _runs_python(crash):
            return crash
        from necropsy.capture.linux.inspect import python_objects

        sources = self.target.sources()
        return python_objects.added(crash, self.memory, self.files, self.threads.pointers, sources)

    def _with_origins(self, crash: Crash) -> tuple[Thread, ...] | None:
        threads = crash.threads
        if threads is None or not _runs_python(crash):
            return threads
        from necropsy.capture.linux.inspect import library_call

        return library_call.with_origins(threads, self.memory, self.files, self.threads.pointers, self.deadline)

    def _with_lines(self, crash: Crash) -> Operation | None:
        if crash.operation is None:
            return None
        from necropsy.capture.linux.inspect import library_call, source_lines

        found = library_call.with_lines(crash, self.memory, self.maps, self.files, self.threads.pointers)
        sources = self.target.sources() if found is not None and found.python else None
        if found is None or sources is None:
            return found
        return msgspec.structs.replace(found, python=source_lines.of_nodes(found.python or (), sources))

    def _with_former(self, crash: Crash) -> Crash:
        if crash.fault is None or crash.fault.code != "SEGV_MAPERR" or (crash.fault.address or 0) < _LOWEST:
            return crash
        from necropsy.capture.linux.inspect import unmapped_memory

        return unmapped_memory.added(crash, self.memory, self.maps, self.files, self.threads.pointers)

    def _with_guarded_block(self, crash: Crash) -> Crash:
        from necropsy.capture.linux.inspect import guard_records

        found, gap = guard_records.added(crash, self.seen, self.maps, self.files)
        if gap is not None:
            self.gaps.add(gap.part, gap.why)
        return found

    def _call(self, crash: Crash) -> Call | None:
        if crash.operation is None and not _runs_python(crash):
            return self.kernel_call
        from necropsy.capture.linux.inspect import library_call

        return library_call.of(crash, self.memory, self.files, self.threads.pointers, self.kernel_call)

    # ------------------------------------------------------------ fault and instruction

    def _instruction(self) -> Instruction | None:
        if self.registers is None:
            return None
        code = self.memory.some(self.registers.pc, 15)
        read = fault_instruction.decode(code, self.registers)
        if self.registers.processor is not X86_64:
            return read
        before = self.memory.exactly(self.registers.pc - fault_instruction.BEFORE, fault_instruction.BEFORE)
        return fault_instruction.with_literals(read, before) if before is not None else read

    def _fault(self, read: Instruction | None) -> Fault | None:
        info = self.info
        if info is None and not self.death.signo:
            return None
        if info is None:
            return Fault(signal=siginfo.name_of(self.death.signo))
        rip = self.registers.pc if self.registers else -1
        hit = self.maps.at(info.address) if info.address is not None else None
        memory_fault = info.signal in {"SIGSEGV", "SIGBUS"} and info.code_number > 0
        fault = Fault(
            signal=info.signal,
            code=info.code,
            address=None if info.address is None else Address(info.address),
            access=fault_instruction.access(read, info.address, rip) if memory_fault else None,
            mapping=hit.as_noun() if hit else None,
            sender=info.sender,
            sender_command=self.death.sender_command if not self.handled_first else None,
            sent_by_itself=None if info.sender is None else info.sender == self.death.pid,
            handled_first=self.handled_first,
        )
        return self.target.complete(fault)
