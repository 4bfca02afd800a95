"""Threads of a stopped process: native and Python stacks, and what each waits for.

There may be thousands, most of them alike. Each is read in turn, the crashed one first, and only what will be reported
is kept.

Of a pool's idle threads only one is unwound: they have the same return addresses at the same places of their stacks.
Where the stack pointer alone leads to the callers, these words decide all of it, and of the others they are compared.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, replace

import msgspec

from necropsy.capture.linux.inspect import fault_mappings
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.inspect.target import Target
from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.capture.linux.unwind import stack_bounds
from necropsy.capture.linux.unwind.unwinder import LATE, Unwinder, ran_on, with_names
from necropsy.capture.process import python_stacks, recursion_skip, thread_report
from necropsy.capture.process.guarded import Gaps
from necropsy.capture.process.memory import Memory, Registers
from necropsy.capture.process.native_stack import KernelFrame, NativeStack
from necropsy.capture.process.thread_report import ThreadReport
from necropsy.formats.siginfo import SigInfo
from necropsy.model import Frame, Stack, Thread, Wait

_MOST = 32
"""Different stacks that end at the same instruction."""
_LARGEST = 64 << 10
"""Bytes of a stack that is compared."""
_MOST_FRAMES = 256


@dataclass(frozen=True, slots=True)
class IdenticalStacks:
    """One stack that others may be like: ``words`` are return addresses by their index above the stack pointer.

    ``size`` is where the last one ends, in bytes. ``kernel``: a framework's, as ``framework_op.kernel_frame`` has it.
    """

    pointer: int
    size: int
    words: tuple[tuple[int, int], ...]
    told: ThreadReport
    kernel: KernelFrame | None


class KnownStack:
    """The stacks of one process that were unwound so far."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._at: dict[int, list[IdenticalStacks]] = {}
        self._told: dict[tuple[tuple[int, ...], tuple[int, ...]], ThreadReport] = {}

    def find(self, now: Registers) -> tuple[ThreadReport, KernelFrame | None] | None:
        """The stack of a thread with these registers, if one that was unwound before has the same."""
        known = self._at.get(now.pc)
        if not known:
            return None
        data = self._memory.some(now.sp, max(one.size for one in known))
        words = array("Q", data[: len(data) & ~7])
        for index, one in enumerate(known):
            if one.size <= len(data) and all(words[at] == value for at, value in one.words):
                if index:
                    known.insert(0, known.pop(index))  # the next one is most likely of the same pool
                moved = now.sp - one.pointer
                kernel = one.kernel
                return one.told, kernel and KernelFrame(kernel.kernel, kernel.low + moved, kernel.high + moved)
        return None

    def add(self, now: Registers, unwound: NativeStack, told: ThreadReport, kernel: KernelFrame | None) -> ThreadReport:
        """Remember a stack that was unwound. Returns ``told``, or an equal one that another thread has already."""
        if len(unwound) > _MOST_FRAMES or not unwound.complete:
            return told
        places, pointers = unwound.places.first(_MOST_FRAMES), unwound.pointers.first(_MOST_FRAMES)
        chain = tuple(place.pc for place in places), tuple(pointer - now.sp for pointer in pointers)
        told = self._told.setdefault(chain, told)
        known = self._at.setdefault(now.pc, [])
        size = pointers[-1] - now.sp
        plain = unwound.plain and not unwound.guesses
        if plain and len(known) < _MOST and 0 <= size <= _LARGEST and not size & 7:
            returns = {pointer - 8 - now.sp >> 3: place.pc for place, pointer in zip(places, pointers, strict=True)}
            words = tuple((at, value) for at, value in returns.items() if at >= 0)
            known.append(IdenticalStacks(now.sp, size, words, told, kernel))
        return told


SHARE_OF_CRASHED = 0.6
"""Of the budget of time, for the stack of the thread that crashed; the others get what is left."""
_LEAST_S = 1.0
"""For that stack, whatever was used up before: without its innermost frames a report is worth little."""
LONGEST_LOCALS_S = 5.0


def _kernel_frame(unwound: NativeStack) -> KernelFrame | None:
    if not any("OpKernelContext*" in (place.function or "") for place in unwound.distinct()):
        return None
    from necropsy.capture.linux.inspect import framework_op

    return framework_op.kernel_frame(unwound)


@dataclass(frozen=True)
class Crashed:
    """The thread that crashed: its id, its registers at the fault, and the signal."""

    tid: int
    registers: Registers | None
    info: SigInfo | None


@dataclass(frozen=True, slots=True)
class _Native:
    tid: int
    stack: Stack | None
    told: ThreadReport | None
    wait: Wait | None


class ThreadReader:
    """Reads the threads of one process."""

    def __init__(
        self,
        death: CrashContext,
        gaps: Gaps,
        target: Target,
        files: MappedFiles,
        *,
        crashed: Crashed,
        dump: python_stacks.PythonStacks | None,
        deadline: float,
    ) -> None:
        """``deadline``: monotonic, in seconds."""
        self._death, self._gaps, self._target, self._files = death, gaps, target, files
        self._crashed, self._dump, self._deadline = crashed, dump, deadline
        self._maps, self._memory = target.maps, target.memory
        self._known = KnownStack(target.memory)
        self.pointers: dict[int, int] = {}
        """Thread pointer -> id of the thread."""
        self._no_python = False
        self.unwound: NativeStack | None = None
        """The stack of the thread that crashed."""
        self.stacks: dict[int, Stack] = {}
        self.kernels: list[KernelFrame] = []
        """A framework's kernels on the stacks of the other threads."""

    @property
    def _order(self) -> tuple[int, ...]:
        crashed = self._crashed.tid
        return (crashed, *(tid for tid in self._death.threads if tid != crashed))

    def registers_of(self, tid: int) -> Registers:
        """Those to read from. Raises OSError where they cannot be read."""
        crashed = self._crashed
        if tid == crashed.tid and crashed.registers is not None:
            return crashed.registers
        return self._target.registers(tid)

    def read(self) -> tuple[Thread, ...]:
        """All threads, the one that crashed first."""
        maps, memory, files, gaps = self._maps, self._memory, self._files, self._gaps
        unwinder = gaps.part("frames", lambda: with_names(maps, memory, files, gaps))
        try:
            natives = [self._native(tid, unwinder) for tid in self._order]
        finally:
            if unwinder is not None:
                unwinder.close()
        empty = [
            one.told for one in natives if one.told is not None and not one.told.total and one.tid != self._crashed.tid
        ]
        if empty:
            why = (empty[0].why or "").removeprefix("0 frames read, then ")
            gaps.add("frames", f"threads whose frames were not read: {len(empty):,}, because {why}")
        partly = sum(
            one.told is not None and one.told.total > 0 and _ran_late(one.told) and one.tid != self._crashed.tid
            for one in natives
        )
        if partly:
            gaps.add("frames", f"threads whose frames were read in part: {partly:,}, because {LATE}")
        if unwinder is not None and unwinder.unreadable:
            gaps.add("frames", "could not open " + ", ".join(sorted(set(unwinder.unreadable))[:5]))
        python = self._python()
        joined: dict[tuple[int, int], tuple[Frame, ...]] = {}
        return tuple(self._thread(one, python, joined) for one in natives)

    # ------------------------------------------------------------ native

    def _native(self, tid: int, unwinder: Unwinder | None) -> _Native:
        crashed = tid == self._crashed.tid
        now = self.registers_of(tid) if crashed else self._gaps.part("threads", lambda: self.registers_of(tid))
        if now is None:
            return _Native(tid, None, None, None)
        self.pointers[now.thread_pointer] = tid
        is_main, limit = tid == self._death.pid, self._target.stack_limit
        stack = self._gaps.part(
            "stack" if crashed else f"stack of thread {tid}",
            lambda: stack_bounds.of_thread(self._maps, self._memory, now, is_main=is_main, limit=limit),
        )
        said = None
        if unwinder is not None:
            alike = None if crashed or (stack is not None and stack.is_alternate) else self._known.find(now)
            if alike is not None:
                said, kernel = alike
                self.kernels += [kernel] if kernel is not None else []
            else:
                stack, said = self._unwind(tid, now, stack, unwinder)
        stack = self._with_end(tid, stack)
        if crashed and said is not None and unwinder is not None:
            said = self._with_recursion(stack, said, unwinder)
        innermost = said.innermost[:8] if said is not None else ()
        wait = self._gaps.part(f"waits of thread {tid}", lambda: self._target.wait(now, innermost))
        if wait is not None and wait.ended and crashed and self._death.signo:
            wait = None  # it was just about to die
        return _Native(tid, stack, said, wait)

    def _unwind(
        self, tid: int, now: Registers, stack: Stack | None, unwinder: Unwinder
    ) -> tuple[Stack | None, ThreadReport | None]:
        """The stack on which the thread ran, and its report."""
        crashed = tid == self._crashed.tid
        left = self._deadline - time.monotonic()
        until = time.monotonic() + (max(left * SHARE_OF_CRASHED, _LEAST_S) if crashed else left / 2)
        part = "frames" if crashed else f"frames of thread {tid}"
        unwound = self._gaps.part(part, lambda: unwinder.unwind(now, stack, until))
        if unwound is None:
            return stack, None
        if stack is not None:
            stack = ran_on(self._maps, self._memory, stack, unwound)
        frames = fault_mappings.with_mappings(unwound.kept(), self._maps)
        said = thread_report.of(unwound, frames, with_largest=crashed)
        if said.why is not None and (crashed or (said.total and not _ran_late(said))):
            self._gaps.add(part, said.why)
        if crashed:
            self.unwound = unwound
            return stack, said
        kernel = _kernel_frame(unwound)
        self.kernels += [kernel] if kernel is not None else []
        return stack, self._known.add(now, unwound, said, kernel)

    def _with_recursion(self, stack: Stack | None, said: ThreadReport, unwinder: Unwinder) -> ThreadReport:
        """The report of a stack that is full, and of whose frames only a few were found."""
        if stack is None or not stack.guard_hit or said.complete or said.total >= recursion_skip.FEWEST:
            return said
        found = self._gaps.part(
            "frames",
            lambda: recursion_skip.recursion_in(self._memory, stack, unwinder.is_return_address, unwinder.place_of),
        )
        return replace(said, folded=found) if found else said

    def _with_end(self, tid: int, stack: Stack | None) -> Stack | None:
        """``stack``, with the answer whether the thread that crashed has used it up."""
        if stack is None:
            return None
        info = self._crashed.info
        if tid == self._crashed.tid and info is not None and info.signal in {"SIGSEGV", "SIGBUS"}:
            if info.code == "SEGV_MAPERR":
                stack = stack_bounds.as_at_the_fault(stack, info.address, self._memory.page)
            stack = msgspec.structs.replace(stack, guard_hit=stack_bounds.exhausted(stack, info.address))
        self.stacks[tid] = stack
        return stack

    # ------------------------------------------------------------ Python

    def _python(self) -> dict[int, tuple[Frame, ...]]:
        dump = self._dump
        if dump is None:
            return {}
        left = max(self._deadline - time.monotonic(), 0.2)
        try:
            return dump.collect(min(left, LONGEST_LOCALS_S), self.pointers)
        except python_stacks.PythonStackError as error:
            if not self._files.may_define("Py_GetVersion"):
                self._no_python = True
                return {}
            if self._death.python_locals:
                self._gaps.add("locals", str(error))
            try:
                # It is missing, it was refused, or more than 4,096 frames are on one stack (its stack_trace.rs).
                from necropsy.capture.linux.inspect.interpreter import LinuxFrameReader

                return LinuxFrameReader(self._memory, self._files).collect(left, self.pointers)
            except python_stacks.PythonStackError as other:
                self._gaps.add("python", f"{error}; {other}" if str(error) != str(other) else str(error))
            return {}

    # ------------------------------------------------------------ both

    def _thread(
        self, one: _Native, python: dict[int, tuple[Frame, ...]], joined: dict[tuple[int, int], tuple[Frame, ...]]
    ) -> Thread:
        said = one.told
        frames = python.get(one.tid)
        gil = self._dump.holds_gil if self._dump is not None else None
        if frames is not None:
            # Threads that stand alike share both.
            key = id(frames), id(said)
            if key not in joined:
                joined[key] = python_stacks.join(frames, said.evaluators if said is not None else ())
            frames = joined[key]
        elif python or self._no_python:
            frames = ()
        return Thread(
            tid=one.tid,
            name=self._target.name_of(one.tid),
            crashed=one.tid == self._crashed.tid and self._death.signo != 0,
            python=frames,
            frames=said.frames if said is not None else None,
            frames_total=said.total if said is not None else None,
            frames_estimate=said.estimate if said is not None else None,
            complete=said.complete if said is not None else None,
            folds=thread_report.with_python(said.folded, frames) if said is not None else (),
            largest=said.largest if said is not None else (),
            stack=one.stack,
            waits=one.wait,
            holds_gil=one.tid == gil if gil is not None else None,
        )


def _ran_late(told: ThreadReport) -> bool:
    return told.why is not None and LATE in told.why  # an estimate of what is left may follow
