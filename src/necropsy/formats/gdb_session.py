"""One session of gdb, line by line, as a crash: which thread stands where, and which of them died of what."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from necropsy.formats import backtrace, exit_status
from necropsy.formats.disassembly import instruction
from necropsy.formats.gdb_frames import Printed, parsed
from necropsy.formats.log import scan
from necropsy.formats.siginfo import SENT, WITH_ADDRESS, code_name
from necropsy.model import Address, Crash, Exit, Fault, Frame, Instruction, Message, Module, Stack, Thread

NEAR_NULL = 64 * 1024
"""Bytes at the beginning of an address space in which no code can lie."""
_STATUS_FROM = 0x40000000
_STOPPED = {"SIGINT", "SIGSTOP", "SIGTSTP", "SIGCONT"}
"""Signals with which a debugger's user looks into a process that lives."""
_RAISES = re.compile(r"(?:__GI_|__libc_|__)?(?:raise|gsignal|pthread_kill\w*|tgkill|kill|abort)$|__pthread_kill_\w+$")
_ABORTS = re.compile(r"(?:__GI_|__libc_)?abort$")
_HANDLED = ("signum", "signo", "sig", "signal", "signal_number", "sig_num")
_SIGNALS = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
_USER_SPACE = range(0x7E0000000000, 0x800000000000)
"""Where Linux puts the stacks of x86-64."""


@dataclass
class _Stack:
    number: int | None = None
    tid: int | None = None
    name: str | None = None
    frames: list[Printed] = field(default_factory=list)
    shorter: list[Printed] = field(default_factory=list)
    python: list[Frame] = field(default_factory=list)
    cut: bool = False

    def add(self, printed: Printed) -> None:
        """Add a frame; a number not greater than the last one begins the thread's backtrace anew."""
        if self.frames and printed.frame.index <= self.frames[-1].frame.index:
            if len(self.frames) > len(self.shorter):
                self.shorter = self.frames
            self.frames = []
        self.frames.append(printed)

    @property
    def best(self) -> list[Printed]:
        return self.frames if len(self.frames) >= len(self.shorter) else self.shorter


@dataclass
class Session:
    """What has been read so far."""

    signal: str | None = None
    ended_by: str | None = None
    exit_code: int | None = None
    stacks: list[_Stack] = field(default_factory=list)
    now: _Stack | None = None
    stopped: _Stack | None = None
    registers: dict[str, int] = field(default_factory=dict)
    instruction: tuple[int, str] | None = None
    objects: list[tuple[int, int, str]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    si_code: int | None = None
    si_addr: int | None = None
    si_pid: int | None = None
    first_lwp: int | None = None
    asked: str | None = None
    in_python: bool = False
    wants_place: bool = False
    abort_message: str | None = None
    is_sure: bool = False
    place_line: Printed | None = None

    # ------------------------------------------------------------ lines

    def is_over(self, text: str) -> bool:
        """Another death begins: a signal is reported although the stack of the one before was seen already."""
        return bool(self.signal and " received signal SIG" in text and self.stopped and self.stopped.frames)

    @property
    def has_substance(self) -> bool:
        """Something of a death, or of a stack, was read."""
        return self.is_sure or self.signal is not None or self.exit_code is not None

    def received(self, signal: str, number: str | None, name: str | None) -> None:
        """``Thread 2 "python" received signal SIGSEGV``."""
        self.signal = signal if signal != "?" else None
        self.now = self.stopped = self._stack(int(number) if number else None)
        self.now.name = name or self.now.name
        self.wants_place, self.in_python = True, False

    def terminated(self, signal: str) -> None:
        """``Program terminated with signal SIGSEGV``: of a core, or after the program was continued."""
        self.ended_by = signal
        if self.signal is None:
            self.signal = signal
            self.now = self.stopped = self._stack(None)
            self.wants_place = True

    def exited(self, code: int) -> None:
        """``[Inferior 1 (process 5) exited with code 01]``."""
        self.exit_code = code

    def header(self, number: int, tid: int | None, name: str | None) -> None:
        """``Thread 2 (Thread 0x7ffff67ff6c0 (LWP 15834) "python"):``."""
        self.now = self._stack(number)
        self.now.tid = tid if tid is not None else self.now.tid
        self.now.name = name or self.now.name
        self.in_python = False

    def current(self, number: str | None, lwp: str | None) -> None:
        """``[Switching to Thread 0x7f.. (LWP 15598)]``, ``[Current thread is 1 (...)]``, or the table's star."""
        if self.now is None or (number is not None and self.now.number not in {None, int(number)}):
            self.now = self._stack(int(number) if number else None)
        self.now.number = int(number) if number else self.now.number
        self.now.tid = int(lwp) if lwp else self.now.tid
        if self.stopped is None:
            self.stopped = self.now

    def frame(self, printed: Printed, line: int) -> None:
        """One frame of the thread that is spoken of."""
        if self.now is None:
            self.now = self._stack(None)
        self.in_python = self.wants_place = False
        self.now.add(printed)
        self.is_sure = self.is_sure or printed.sure
        if printed.python is not None:
            self.now.python.append(printed.python)
        self._heard(printed, line)

    def place(self, text: str, line: int, at: int) -> int:
        """``0x00007ffff75d88a8 in null_write (p=0x0, v=3) at op.cc:21``: where it stopped, without a number."""
        address, _, rest = text.partition(" in ") if text.startswith("0x") else (None, "", text)
        self.wants_place = False
        self.place_line = parsed(0, address, rest, at)
        if self.place_line is not None:
            self._heard(self.place_line, line)
        return at

    def python(self, function: str, file: str, line: int) -> None:
        """One line of ``py-bt``, innermost first."""
        if self.now is None:
            self.now = self._stack(None)
        self.is_sure = True
        python = self.now.python
        python.append(backtrace.python(len(python), function, file, line))

    def told(self, value: int) -> None:
        """The answer to ``p $rsp`` or ``p $_siginfo...si_addr``."""
        if self.asked == "si_addr":
            self.si_addr = value
        elif self.asked:
            self.registers[{"pc": "rip", "sp": "rsp"}.get(self.asked, self.asked)] = value
        self.asked = None

    def cut(self) -> None:
        """The backtrace ends before the thread's first frame."""
        if self.now is not None:
            self.now.cut = True

    def _stack(self, number: int | None) -> _Stack:
        for one in self.stacks:
            if one.number == number or (number is not None and one.number is None and one is self.stopped):
                one.number = number
                return one
        self.stacks.append(_Stack(number))
        return self.stacks[-1]

    def _heard(self, printed: Printed, line: int) -> None:
        """Keep the argument of a function that reports a failure."""
        texts, function = printed.texts or {}, printed.frame.function or ""
        said: str | None = None
        if "assertion" in texts and "__assert_fail" in function:
            place = f"{texts.get('file', '?')}:{(printed.numbers or {}).get('line', 0)}"
            said = f"{place}: {texts.get('function', '?')}: Assertion `{texts['assertion']}' failed."
        elif function.endswith("malloc_printerr"):
            said = texts.get("str")
        elif function.endswith("__fortify_fail") and "msg" in texts:
            said = f"*** {texts['msg']} ***: terminated"
        elif function.endswith(("fatal_error", "_Py_FatalErrorFunc", "Py_FatalError")) and "msg" in texts:
            name = texts.get("prefix") or texts.get("func")
            said = f"Fatal Python error: {name + ': ' if name else ''}{texts['msg']}"
        if said is None or any(message.text == said for message in self.messages):
            return
        self.abort_message = self.abort_message or said
        where = f"frame {printed.frame.index} of the backtrace"
        self.messages += [msgspec.structs.replace(message, line=line) for message in scan(said, where)]

    # ------------------------------------------------------------ the crash

    def crash(self, _line: int) -> Crash | None:
        """All of it; None where gdb said nothing."""
        stacks = [one for one in self.stacks if one.best or one.python or one is self.stopped]
        if self.place_line is not None and self.stopped is not None and not self.stopped.best:
            self.stopped.frames = [self.place_line]
        if not self.has_substance:
            return None
        died = self._died(stacks)
        frames = died.best if died is not None else []
        handler = max((at for at, one in enumerate(frames) if one.handler), default=None)
        threads = tuple(
            self._thread(one, one is died, handler if one is died else None) for one in stacks if one.best or one.python
        )
        crashed = next((one for one in threads if one.crashed), None)
        fault = self._fault(frames, handler)
        at_fault = self._instruction(frames) if handler is None else None
        if (
            fault is not None
            and fault.address is not None
            and at_fault is not None
            and fault.address == at_fault.address
            and fault.signal in {"SIGSEGV", "SIGBUS"}
        ):
            fault = msgspec.structs.replace(fault, access="exec")
        return Crash(
            exit=self._exit(self.is_looked_at(stacks)),
            fault=fault,
            threads=threads or None,
            registers={name: Address(value) for name, value in self.registers.items()} or None,
            instruction=at_fault,
            modules=tuple(
                Module(path=path, low=Address(low), high=Address(high))
                for low, high, path in self.objects
                if low < high
            )
            or None,
            messages=tuple(self.messages) or None,
            abort_message=self.abort_message,
            gaps=backtrace.gaps(crashed) if crashed is not None else (),
        )

    def _died(self, stacks: list[_Stack]) -> _Stack | None:
        if self.signal in _STOPPED:
            return None
        if self.signal is not None and self.stopped is not None:
            # A core: the thread that gdb shows first is the one that died; its number comes with its backtrace.
            if not self.stopped.best and self.stopped.number is None:
                return next((one for one in stacks if one.number == 1), stacks[0] if len(stacks) == 1 else self.stopped)
            return self.stopped
        if self.is_looked_at(stacks):
            return None
        if len(stacks) == 1:
            return stacks[0]
        caught = [one for one in stacks if any(printed.handler for printed in one.best)]
        raised = [one for one in stacks if any(_is(_ABORTS, printed) for printed in one.best[:8])]
        found = caught or raised
        return found[0] if len(found) == 1 else None

    def is_looked_at(self, stacks: list[_Stack]) -> bool:
        """Nobody spoke of a signal, and no thread is in a handler or in abort: gdb was attached to a living process."""
        if self.signal in _STOPPED:
            return True
        if self.signal is not None or self.ended_by is not None or self.exit_code is not None or not stacks:
            return False
        if any(printed.handler or _is(_ABORTS, printed) for one in stacks for printed in one.best[:16]):
            return False
        waiting = [one for one in stacks if backtrace.waits([printed.frame for printed in one.best]) is not None]
        return bool(waiting) and (len(waiting) == len(stacks) or 2 < len(stacks) < len(waiting) * 2)

    def _thread(self, one: _Stack, crashed: bool, handler: int | None) -> Thread:
        printed = one.best[handler + 1 :] if handler is not None else one.best
        skipped = printed[0].frame.index if printed and handler is not None else 0
        frames = [
            self._placed(msgspec.structs.replace(frame.frame, index=frame.frame.index - skipped)) for frame in printed
        ]
        stack: Stack | None = None
        if crashed and handler is None:
            stack = backtrace.by_stack(self.registers, self._address())
            gone = printed[0].unreadable if printed else None
            if gone is not None and gone in _USER_SPACE and (stack is None or stack.guard_hit is None):
                # gdb computes a local variable's address from the stack pointer: there is no stack any more.
                stack = Stack(guard_hit=True, pointer=stack.pointer if stack else None)
        tid = one.tid if one.tid is not None else (self.first_lwp if crashed and one.number in {None, 1} else None)
        return backtrace.thread(
            frames,
            tid=tid,
            name=one.name,
            crashed=crashed,
            python=tuple(one.python) or None,
            cut=one.cut,
            stack=stack,
        )

    def _placed(self, frame: Frame) -> Frame:
        if frame.module is not None or frame.address is None:
            return frame
        module = next((path for low, high, path in self.objects if low <= frame.address < high), None)
        return frame if module is None else msgspec.structs.replace(frame, module=module)

    def _address(self) -> int | None:
        return self.si_addr if self.signal in WITH_ADDRESS else None

    def _fault(self, frames: list[Printed], handler: int | None) -> Fault | None:
        if handler is not None:
            given = next(
                (
                    one.numbers[name]
                    for one in frames[:handler]
                    for name in _HANDLED
                    if one.numbers and name in one.numbers
                ),
                None,
            )
            signal = _SIGNALS.get(given or 0, self.signal)
            return Fault(signal=signal, handled_first=True) if signal else None
        raised = bool(frames) and _is(_RAISES, frames[0])
        signal = self.signal
        if signal is None and raised and any(_is(_ABORTS, one) for one in frames[:8]):
            signal = "SIGABRT"
        if signal is None or signal in _STOPPED:
            return None
        code = None if self.si_code is None else code_name(signal, self.si_code)
        at = self._instruction(frames)
        address = self._address()
        if code in SENT or code == "SI_KERNEL" or (at is not None and _is_wild(at)):
            # Where the kernel knows no address, si_addr reads 0.
            address = None
        elif address is None and at is not None and at.text is None:
            address = at.address
        sender = self.si_pid if code in SENT else None
        return Fault(
            signal=signal,
            code=code,
            address=None if address is None else Address(address),
            sender=sender,
            sent_by_itself=True if raised or code == "SI_TKILL" else None,
        )

    def _instruction(self, frames: list[Printed]) -> Instruction | None:
        if self.instruction is not None:
            address, text = self.instruction
            if not text or text.startswith("Cannot access memory"):
                return Instruction(address=Address(address))
            return instruction(address, text, self.registers)
        counter = frames[0].frame.address if frames else None
        if counter is None or frames[0].frame.function is not None or frames[0].frame.module is not None:
            return None
        return Instruction(address=counter) if counter < NEAR_NULL or not _canonical(counter) else None

    def _exit(self, looked_at: bool) -> Exit | None:
        if self.ended_by is not None:
            return Exit(kind="signaled", signal=self.ended_by, text=f"Program terminated with signal {self.ended_by}")
        if looked_at:
            return Exit(kind="running", text=f"stopped by {self.signal or 'a debugger'}")
        if self.exit_code is None:
            return None
        if self.exit_code >= _STATUS_FROM:
            status = exit_status.nt_status(self.exit_code)
            return Exit(kind="exited", code=status.signed, ntstatus=status)
        return Exit(kind="exited", code=self.exit_code)


def _is(pattern: re.Pattern[str], printed: Printed) -> bool:
    return bool(printed.frame.function and pattern.match(printed.frame.function))


def _canonical(address: int) -> bool:
    return address >> 47 in {0, 0x1FFFF}


def _is_wild(one: Instruction) -> bool:
    return any(operand.address is not None and not _canonical(operand.address) for operand in one.operands)
