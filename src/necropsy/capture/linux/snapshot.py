"""A stopped, dying process becomes a ``Crash``: every part guarded, whatever fails becomes a ``Gap``."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import msgspec

from necropsy.capture.linux import (
    bounds,
    capsule,
    dying,
    fallback,
    libraries,
    modules,
    operation,
    other_stacks,
    registers,
    siginfo,
    surroundings,
)
from necropsy.capture.linux.abort_message import abort_message
from necropsy.capture.linux.death import Death
from necropsy.capture.linux.fallback import AnyUnwinder
from necropsy.capture.linux.interpreter import LinuxFrameReader
from necropsy.capture.linux.process_memory import ProcessMemory
from necropsy.capture.linux.siginfo import SigInfo
from necropsy.capture.linux.stack_use import peak_rss, stack_use
from necropsy.capture.linux.target import StoppedProcess, Target
from necropsy.capture.process import cpp, instruction, pystack, recursion, symbols, words
from necropsy.capture.process.gaps import Gaps
from necropsy.capture.process.memory import RecordingMemory
from necropsy.capture.process.registers import Registers
from necropsy.capture.process.unwound import Unwound
from necropsy.formats import log
from necropsy.formats.signal_codes import SI_KERNEL
from necropsy.model import (
    Address,
    CppException,
    Crash,
    Fault,
    Frame,
    Instruction,
    Message,
    Operation,
    Stack,
    Thread,
    Wait,
)

__all__ = ["capture", "peak_rss", "preload", "read", "stack_use"]

SHARE_OF_CRASHED = 0.6
"""Of the budget of time, for the stack of the thread that crashed; the others get what is left."""
_LEAST_S = 1.0
"""For that stack, whatever was used up before: without its innermost frames a report is worth little."""
LONGEST_LOCALS_S = 5.0
_HANDLERS_STACK = 128 << 10
"""No handler of a fatal signal digs deeper than this before it ends the process."""
_CHECKS = {"check-failed", "non-ok-status"}
_REPORTING_FRAMES = 40
"""A CHECK or an exception that nobody caught is reported within so many frames of the abort."""


def capture(death: Death) -> Crash:
    """Read the stopped process. Never raises: what could not be read is a gap."""
    gaps = Gaps(death.gaps)
    return _guarded(death, gaps, lambda: _capture(death, gaps))


def read(death: Death, target: Target) -> Crash:
    """Read what ``target`` stands for, a core mostly. Never raises: what could not be read is a gap."""
    gaps = Gaps(death.gaps)
    return _guarded(death, gaps, lambda: _read(death, gaps, target))


def _guarded(death: Death, gaps: Gaps, reading: Callable[[], Crash]) -> Crash:
    crash = gaps.part("process", reading)
    if crash is not None:
        return crash
    # Not even its mappings can be read, as of a process that forbids it (PR_SET_DUMPABLE): the signal is known still.
    whole = gaps.list[-1].why
    for part in ("threads", "modules", "instruction"):
        gaps.add(part, whole)
    known = dying.minimal(death, *(gap for gap in gaps.list if gap not in death.gaps))
    try:
        return msgspec.structs.replace(known, registers=registers.read(death.tid).as_noun())
    except OSError:
        return known


def preload() -> None:
    """Import what ``capture`` will need, so that a death need not wait for it. Never raises."""
    for _ in dying.loading():
        pass
    symbols.demangle("_Z1fv")


def _capture(death: Death, gaps: Gaps) -> Crash:
    with ProcessMemory(death.pid) as memory:
        return _read(death, gaps, StoppedProcess(death.pid, memory))


def _read(death: Death, gaps: Gaps, target: Target) -> Crash:
    deadline = time.monotonic() + death.budget_s
    # py-spy is a process of its own: it reads while we unwind.
    dump = gaps.part("python", lambda: target.dump(with_locals=death.python_locals))
    try:
        return _Reader(death, gaps, target, dump, deadline).crash()
    finally:
        if dump is not None:
            dump.stop()


class _Reader:
    """One death being read; holds what several parts need."""

    def __init__(
        self, death: Death, gaps: Gaps, target: Target, dump: pystack.PythonStacks | None, deadline: float
    ) -> None:
        self.death, self.gaps, self.target, self.dump, self.deadline = death, gaps, target, dump, deadline
        self.maps, self.memory = target.maps, target.memory
        self.seen = RecordingMemory(target.memory)
        """For what searches for evidence: a capsule keeps the pages."""
        self.tid = death.tid
        self.info, self.registers, self.handled_first = self._choose()
        self.unwound: dict[int, Unwound] = {}
        self.no_python = False
        self.stacks: dict[int, Stack] = {}
        self.pointers: dict[int, int] = {}
        """Thread pointer -> id of the thread."""

    def _choose(self) -> tuple[SigInfo | None, Registers | None, bool]:
        """The signal and the registers to read from: those of the first chance where a handler raised it again."""
        death, first = self.death, self.death.first_chance
        raw = death.siginfo
        info = None if raw is None else self.gaps.part("fault", lambda: siginfo.decode(raw))
        if raw is None:
            alive = "it was read while it lived: there is no fault"
            self.gaps.add("fault", "the kernel gives no details of this signal" if death.signo else alive)
        now = self.gaps.part("registers", lambda: self.target.registers(death.tid))
        if first is None:
            return info, now, False
        before, then = siginfo.decode(first.siginfo), registers.parse(first.registers)
        raised = info is None or (info.code_number <= 0 and info.sender in {None, death.pid})
        at_same_place = now is not None and now.rip == then.rip
        kernel = info is not None and info.code_number == SI_KERNEL
        again = before.number == death.signo and (raised or at_same_place or kernel)
        # A handler that aborts: the kernel's record of the interrupted registers still lies on its stack.
        inside = first.tid == death.tid and now is not None and self._handling(now, then)
        if again or (inside and death.signo != before.number and info is not None and info.sender == death.pid):
            self.tid = first.tid
            return before, then, True
        return info, now, False

    def _handling(self, now: Registers, then: Registers) -> bool:
        """Whether the handler that was started at ``then`` is still running: rsp and rip side by side (ucontext)."""
        record = struct.pack("<QQ", then.rsp, then.rip)
        return record in self.memory.some(now.rsp, _HANDLERS_STACK)

    def crash(self) -> Crash:
        death = self.death
        files = self.gaps.part("modules", self.target.files)
        self.files = files or modules.MappedFiles(())
        read = self.gaps.part("instruction", self._instruction)
        threads = self.gaps.part("threads", self._threads)
        fault = self.gaps.part("fault", lambda: self._fault(read))
        last_words = self.gaps.part("abort_message", lambda: abort_message(self.seen, self.files))
        crash = Crash(
            pid=death.pid,
            fault=fault,
            threads=threads,
            registers=self.registers.as_noun() if self.registers else None,
            instruction=read,
            modules=None
            if files is None
            else tuple(file.as_noun(libraries.version_of(file)) for file in self.files.files),
            heaps=tuple(one.as_noun() for one in surroundings.heaps(self.maps)),
            libraries=self.gaps.part("libraries", lambda: libraries.versions(self.files)),
            log_tail=death.log_tail,
            messages=self.gaps.part("messages", lambda: self._messages(last_words)),
            abort_message=last_words,
            cpp_exception=self.gaps.part("cpp_exception", self._cpp_exception),
            operation=self.gaps.part("operation", lambda: self._operation(threads or ())),
            environment=self.gaps.part("environment", lambda: self.target.environment(self.files)),
        )
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
        kept = capsule.Kept(
            registers=threads,
            stacks=self.stacks,
            pages=tuple(self.seen.pages),
            addresses=(*operands, *([self.registers.rip] if self.registers else [])),
            siginfo=self._siginfo(),
            signal=self.info.number if self.info else self.death.signo,
            left_at=self.unwound[self.tid].left_at() if self.tid in self.unwound else (),
        )
        return capsule.write(self.death, self.target, self.files, kept)

    def _siginfo(self) -> bytes:
        first = self.death.first_chance
        raw = first.siginfo if self.handled_first and first is not None else self.death.siginfo
        return raw or b""

    def _known_registers(self, tid: int) -> Registers | None:
        try:
            return self._registers_of(tid)
        except OSError:
            return None

    # ------------------------------------------------------------ last words

    def _innermost(self, count: int) -> list[str | None]:
        unwound = self.unwound.get(self.tid)
        return [place.function for place in unwound.places.first(count)] if unwound else []

    def _messages(self, abort_message: str | None) -> tuple[Message, ...] | None:
        """What the log says, and what only memory says; None where neither could be seen."""
        said = self._said(log.scan(self.death.log_tail) if self.death.log_tail else ())
        kinds = {message.kind for message in said}
        left = log.scan(abort_message, where="__abort_msg") if abort_message else ()
        said = (*said, *(message for message in left if message.kind not in kinds))
        if said or abort_message or self.death.log_tail is not None:
            return said
        self.gaps.add("messages", "what the process wrote was not seen, and it left no message in memory")
        return None

    def _said(self, said: tuple[Message, ...]) -> tuple[Message, ...]:
        stack = self.stacks.get(self.tid)
        aborted = self.info is not None and self.info.signal in {"SIGABRT", "SIGILL", "SIGTRAP"}
        if stack is None or not aborted or any(message.kind in _CHECKS for message in said):
            return said
        if not words.reports_a_check(self._innermost(_REPORTING_FRAMES)):
            return said
        text = words.check_text(self.seen, self.maps, stack)
        found = log.scan(text, where=f"memory of thread {self.tid}") if text else ()
        return (*said, *(message for message in found if message.kind in _CHECKS))

    def _cpp_exception(self) -> CppException | None:
        stack = self.stacks.get(self.tid)
        innermost = self._innermost(_REPORTING_FRAMES)
        if stack is None or not (cpp.is_terminating(iter(innermost)) or cpp.is_translating(iter(innermost[:16]))):
            return None
        return cpp.Reader(self.seen, self.maps, self.files).in_flight(stack)

    def _operation(self, threads: tuple[Thread, ...]) -> Operation | None:
        others = [
            one for tid, unwound in self.unwound.items() if tid != self.tid and (one := operation.kernel_frame(unwound))
        ]
        own = [thread.python for thread in threads if thread.crashed and thread.python]
        # Work on a pool thread was asked for by the Python thread that waits in the framework, mostly the main one.
        asking = [thread.python for thread in threads if thread.tid == self.death.pid and thread.python]
        finder = operation.Finder(self.seen, self.maps, self.files)
        return finder.find(self.unwound.get(self.tid), others, own or asking)

    # ------------------------------------------------------------ fault and instruction

    def _instruction(self) -> Instruction | None:
        if self.registers is None:
            return None
        code = self.memory.some(self.registers.rip, 15)
        return instruction.decode(code, self.registers)

    def _fault(self, read: Instruction | None) -> Fault | None:
        info = self.info
        if info is None and not self.death.signo:
            return None
        if info is None:
            return Fault(signal=siginfo.name_of(self.death.signo))
        rip = self.registers.rip if self.registers else -1
        hit = self.maps.at(info.address) if info.address is not None else None
        memory_fault = info.signal in {"SIGSEGV", "SIGBUS"} and info.code_number > 0
        fault = Fault(
            signal=info.signal,
            code=info.code,
            address=None if info.address is None else Address(info.address),
            access=instruction.access(read, info.address, rip) if memory_fault else None,
            mapping=hit.as_noun() if hit else None,
            sender=info.sender,
            sent_by_itself=None if info.sender is None else info.sender == self.death.pid,
            handled_first=self.handled_first,
        )
        return self.target.complete(fault)

    # ------------------------------------------------------------ threads

    def _registers_of(self, tid: int) -> Registers:
        return self.registers if tid == self.tid and self.registers is not None else self.target.registers(tid)

    def _threads(self) -> tuple[Thread, ...]:
        unwinder = self.gaps.part("frames", lambda: fallback.unwinder(self.maps, self.memory, self.files, self.gaps))
        order = (self.tid, *(tid for tid in self.death.threads if tid != self.tid))
        try:
            natives = [(tid, self._native(tid, unwinder)) for tid in order]
        finally:
            if unwinder is not None:
                unwinder.close()
        empty = [one for tid, (_, one) in natives if one is not None and not len(one) and tid != self.tid]
        if empty:
            self.gaps.add("frames", f"threads whose frames were not read: {len(empty):,}, because {empty[0].why}")
        if unwinder is not None and unwinder.unreadable:
            self.gaps.add("frames", "could not open " + ", ".join(sorted(set(unwinder.unreadable))[:5]))
        python = self._python()
        return tuple(self._thread(tid, stack, unwound, python) for tid, (stack, unwound) in natives)

    def _native(self, tid: int, unwinder: AnyUnwinder | None) -> tuple[Stack | None, Unwound | None]:
        crashed = tid == self.tid
        now = self._registers_of(tid) if crashed else self.gaps.part("threads", lambda: self.target.registers(tid))
        if now is None:
            return None, None
        self.pointers[now["fs_base"]] = tid
        part = "stack" if crashed else f"stack of thread {tid}"
        stack = self.gaps.part(
            part,
            lambda: bounds.of_thread(
                self.maps, self.memory, now, is_main=tid == self.death.pid, limit=self.target.stack_limit
            ),
        )
        if unwinder is None:
            return self._with_end(tid, stack), None
        left = self.deadline - time.monotonic()
        until = time.monotonic() + (max(left * SHARE_OF_CRASHED, _LEAST_S) if crashed else left / 2)
        part = "frames" if crashed else f"frames of thread {tid}"
        unwound = self.gaps.part(part, lambda: unwinder.unwind(now, stack, until))
        if unwound is not None:
            self.unwound[tid] = unwound
            if stack is not None:
                stack = other_stacks.ran_on(self.maps, self.memory, stack, unwound)
        stack = self._with_end(tid, stack)
        if unwound is not None and not unwound.complete and unwound.why and (crashed or len(unwound)):
            self.gaps.add(part, _left_out(unwound))
        return stack, unwound

    def _with_end(self, tid: int, stack: Stack | None) -> Stack | None:
        """``stack``, with the answer whether the thread that crashed has used it up."""
        if stack is None:
            return None
        if tid == self.tid and self.info is not None and self.info.signal in {"SIGSEGV", "SIGBUS"}:
            stack = msgspec.structs.replace(stack, guard_hit=bounds.exhausted(stack, self.info.address))
        self.stacks[tid] = stack
        return stack

    def _python(self) -> dict[int, tuple[Frame, ...]]:
        dump = self.dump
        if dump is None:
            return {}
        left = max(self.deadline - time.monotonic(), 0.2)
        try:
            return dump.collect(min(left, LONGEST_LOCALS_S), self.pointers)
        except pystack.PythonStackError as error:
            if not self.files.may_define("Py_GetVersion"):
                self.no_python = True
                return {}
            if self.death.python_locals:
                self.gaps.add("locals", str(error))
            try:
                # It is missing, it was refused, or more than 4,096 frames are on one stack (its stack_trace.rs).
                return LinuxFrameReader(self.memory, self.files).collect(left, self.pointers)
            except pystack.PythonStackError as other:
                self.gaps.add("python", f"{error}; {other}" if str(error) != str(other) else str(error))
            return {}

    def _thread(
        self, tid: int, stack: Stack | None, unwound: Unwound | None, python: dict[int, tuple[Frame, ...]]
    ) -> Thread:
        frames = python.get(tid)
        gil = self.dump.holds_gil if self.dump is not None else None
        if frames is not None:
            evaluators = recursion.evaluators(unwound) if unwound else []
            frames = pystack.join(frames, evaluators)
        elif python or self.no_python:
            frames = ()
        return Thread(
            tid=tid,
            name=self.target.name_of(tid),
            crashed=tid == self.tid and self.death.signo != 0,
            python=frames,
            frames=surroundings.with_mappings(unwound.kept(), self.maps) if unwound else None,
            frames_total=unwound.told() if unwound else None,
            frames_estimate=unwound.estimate if unwound else None,
            complete=unwound.complete if unwound else None,
            folds=recursion.folds(unwound, frames) if unwound else (),
            largest=unwound.largest() if unwound and tid == self.tid else (),
            stack=stack,
            waits=self.gaps.part(f"waits of thread {tid}", lambda: self._waits(tid, unwound)),
            holds_gil=tid == gil if gil is not None else None,
        )

    def _waits(self, tid: int, unwound: Unwound | None) -> Wait | None:
        innermost = [place.function for place in unwound.places.first(8)] if unwound else []
        return self.target.wait(self._registers_of(tid), innermost)


def _left_out(unwound: Unwound) -> str:
    """What was not read of a stack, and why."""
    said = f"{len(unwound):,} frames read, then {unwound.why}"
    if unwound.estimate is not None:
        said += f"; it has about {unwound.estimate:,} frames"
    if unwound.outer is not None:
        said += f", of which the outermost {len(unwound.outer):,} were read as well"
    return said
