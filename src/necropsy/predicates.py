"""Questions that rules ask a crash. Each returns the evidence, and an empty answer means *not seen*.

Questions never guess: if the part was not captured, the answer is empty too, and the rule's ``needs`` report that.
"""

from __future__ import annotations

import re
from functools import lru_cache

from necropsy.model import Access, Address, Crash, Evidence, Frame, MemoryOperand, Message, Thread
from necropsy.rule import NOTHING, Found

NEAR_NULL = 64 * 1024
"""Bytes. Linux maps nothing below 64 KiB (``vm.mmap_min_addr`` is 65536), Windows neither."""

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
"""Linux numbers, x86-64 and AArch64 (signal(7))."""


# ---------------------------------------------------------------- how it ended


def signal_of(crash: Crash) -> str | None:
    """The signal that ended the process: from the kernel, or from an exit code of 128 + N as shells give it."""
    if crash.fault is not None:
        return crash.fault.signal
    if crash.exit is None:
        return None
    if crash.exit.kind == "signaled":
        return crash.exit.signal
    if crash.exit.kind == "exited" and crash.exit.code is not None:
        return SIGNALS.get(crash.exit.code - 128)
    return None


def on_windows(crash: Crash) -> bool:
    """It died on Windows: its end is a status of Windows, or its environment says so."""
    if crash.exit is not None and crash.exit.ntstatus is not None:
        return True
    return crash.environment is not None and (crash.environment.platform or "").lower().startswith("win")


_EXCEPTIONS = {
    0x80000001: "a touch of a guard page",
    0x80000002: "an address that is not aligned",
    0x80000003: "a breakpoint instruction",
    0xC0000005: "an access violation",
    0xC0000006: "a page of memory that could not be read from its file",
    0xC000001D: "an instruction that the processor does not know",
    0xC0000094: "a division of an integer by zero",
    0xC0000095: "a division whose result does not fit",
    0xC0000096: "an instruction that only the kernel may execute",
    0xC00000FD: "a full stack",
}
"""Exceptions of the processor in words (winnt.h); the model has Linux' names of signals for them."""


def _died_on_windows(crash: Crash) -> Found:
    status, fault = crash.exit.ntstatus if crash.exit is not None else None, crash.fault
    if status is None or fault is None:
        return NOTHING
    seen = status.value + (f" {status.name}" if status.name else "")
    if fault.address is not None:
        did = {"read": "read of", "write": "write to", "exec": "jump to"}.get(fault.access or "", "at")
        seen += f", {did} address {fault.address}"
    elif fault.code == "SI_KERNEL":
        seen += ", at an address that Windows does not report"
    words = _EXCEPTIONS.get(int(status.value, 16), "an exception of the processor")
    return (Evidence(claim=f"the process died by {words}", seen=seen, where=place_of(crash)),)


def died_by(crash: Crash, *signals: str) -> Found:
    """The process died by one of ``signals``."""
    signal = signal_of(crash)
    if signal not in signals:
        return NOTHING
    fault = crash.fault
    if found := _died_on_windows(crash):
        return found
    if fault is None:
        text = crash.exit.text.strip() if crash.exit and crash.exit.text else ""
        if " " in text:
            return (Evidence(claim=f"the process ended by {signal}", seen=text, where="text"),)
        code = crash.exit.code if crash.exit and crash.exit.kind == "exited" else None
        seen = f"exit code {code} = 128 + {code - 128}" if code is not None else f"ended by {signal}"
        return (Evidence(claim=f"the process ended by {signal}", seen=seen, where="exit status"),)
    parts = [signal, fault.code, f"address {fault.address}" if fault.address is not None else None]
    if fault.handled_first:
        end = crash.in_handler
        caught = "first caught by a handler of the program"
        if end is not None and end.code is not None:
            caught = f"caught by a handler of the program, which then ended it with exit code {end.code}"
        elif end is not None:
            caught = "caught by a handler of the program, which did not come to an end"
        parts.append(caught)
    return (
        Evidence(
            claim=f"the process {'died by' if crash.in_handler is None else 'got'} {signal}",
            seen=", ".join(part for part in parts if part),
            where=place_of(crash),
        ),
    )


def place_of(crash: Crash) -> str:
    """Where the fatal signal was taken, in words; on Windows it is an exception, with a record."""
    thread, windows = crash.crashed_thread, on_windows(crash)
    source = "exception record" if windows else "signal information"
    if thread is None or (windows and thread.tid is None and not thread.frames):
        return "exit status" if windows and crash.registers is None else source
    return f"{source} of {name_of(thread, crash)}"


def name_of(thread: Thread, crash: Crash) -> str:
    """A thread, in words: ``the main thread``, ``thread 4711 (tf_Compute)``."""
    if is_main(thread, crash):
        return "the main thread"
    if thread.tid is None:
        unnamed = f"the thread that {'crashed' if thread.crashed else 'is shown'}"
        return f"thread {thread.known_as}" if thread.known_as else unnamed
    return f"thread {thread.tid}" + (f" ({thread.known_as})" if thread.known_as else "")


def is_main(thread: Thread, crash: Crash) -> bool:
    """The process's first thread: its id is the process's."""
    return bool(thread.stack and thread.stack.is_main) or (thread.tid is not None and thread.tid == crash.pid)


def sent_by_another(crash: Crash) -> Found:
    """Somebody else sent the fatal signal (``kill``): the program itself did nothing wrong."""
    fault = crash.fault
    if fault is None or fault.sent_by_itself is not False:
        return NOTHING
    sender = sender_of(crash) or "a process that cannot be seen from here, or the kernel"
    return (Evidence(claim="another process sent the signal", seen=f"sender: {sender}", where=place_of(crash)),)


def sender_of(crash: Crash) -> str | None:
    """Another process that sent the fatal signal, in words: ``process 4711 (timeout 5 python x.py)``."""
    fault = crash.fault
    if fault is None or not fault.sender or fault.sent_by_itself is not False:
        return None
    return process_in_words(fault.sender, fault.sender_command)


def process_in_words(pid: int, command: tuple[str, ...] | None) -> str:
    """``process 4711 (timeout 5 python x.py)``."""
    text = " ".join(" ".join(command or ()).split())
    shown = text if len(text) <= _COMMAND_SHOWN else text[:_COMMAND_SHOWN] + " ..."
    return f"process {pid}" + (f" ({shown})" if shown else "")


_COMMAND_SHOWN = 80


def sent_itself_abort(crash: Crash) -> bool:
    """It sent itself SIGABRT by ``kill``. abort() of glibc and musl sends it to its own thread, with another code."""
    fault = crash.fault
    return fault is not None and fault.signal == "SIGABRT" and fault.code == "SI_USER" and fault.sent_by_itself is True


def real_fault(crash: Crash) -> bool:
    """The processor raised it: no process sent this signal."""
    fault = crash.fault
    return fault is not None and fault.sender is None and fault.sent_by_itself is None


# ---------------------------------------------------------------- where it faulted


def faulted_at(crash: Crash, low: int, high: int, claim: str) -> Found:
    """The fault address lies in ``[low, high)``. An address that the kernel did not know is no address."""
    fault = crash.fault
    if fault is None or fault.address is None or fault.code == "SI_KERNEL" or not low <= fault.address < high:
        return NOTHING
    return (Evidence(claim=claim, seen=f"address {fault.address}", where=place_of(crash)),)


def access_of(crash: Crash) -> Access | None:
    """``read``, ``write`` or ``exec``: from the kernel, else from the instruction's only memory operand."""
    if crash.fault is not None and crash.fault.access is not None:
        return crash.fault.access
    operand = faulting_operand(crash)
    return operand.access if operand else None


def faulting_operand(crash: Crash) -> MemoryOperand | None:
    """The memory operand that faulted: the one at the fault address, else the only one."""
    if crash.instruction is None or crash.fault is None:
        return None
    operands = crash.instruction.operands
    address = crash.fault.address
    if address is not None and crash.fault.code != "SI_KERNEL":
        for operand in operands:
            # A wide access may fault on its second page.
            if operand.address is not None and 0 <= address - operand.address < (operand.size or 1):
                return operand
        return operands[0] if len(operands) == 1 else None
    # The kernel names no address: one that cannot exist is the one that it means.
    wild = [operand for operand in operands if operand.address is not None and not is_canonical(operand.address, crash)]
    return wild[0] if wild else (operands[0] if len(operands) == 1 else None)


def is_canonical(address: int, crash: Crash | None = None) -> bool:
    """Whether the processor takes it for an address at all, whatever lies there.

    x86-64 with four-level page tables demands that bits 47 to 63 are equal. AArch64 (of ``crash``) ignores the highest
    byte, and bits 48 to 55 tell the program's addresses from the kernel's.
    """
    if crash is not None and on_aarch64(crash):
        return address >> 48 & 0xFF in {0, 0xFF}
    return address >> 47 in {0, 0x1FFFF}


def on_aarch64(crash: Crash) -> bool:
    """By the names of its registers."""
    return "x0" in (crash.registers or {})


def instruction_at_fault(crash: Crash) -> Found:
    """The faulting instruction with the values that it worked on."""
    instruction = crash.instruction
    if instruction is None or instruction.text is None:
        return NOTHING
    values = dict(instruction.registers)
    for operand in instruction.operands:
        values.update(operand.registers)
    seen = instruction.text + (
        " with " + ", ".join(f"{name} = {value}" for name, value in values.items()) if values else ""
    )
    return (Evidence(claim="the instruction that faulted", seen=seen, where=f"code at {instruction.address}"),)


def jumped_to(crash: Crash) -> Address | None:
    """The address that the program counter was sent to, where no code can be executed."""
    fault, instruction = crash.fault, crash.instruction
    if fault is None or fault.signal not in {"SIGSEGV", "SIGBUS"}:
        return None
    if fault.access == "exec":
        return fault.address if fault.address is not None else (instruction.address if instruction else None)
    registers = crash.registers or {}
    counter = next((registers[name] for name in ("rip", "eip", "pc") if name in registers), None)
    counter = instruction.address if counter is None and instruction is not None else counter
    if counter is None:
        return None
    if fault.address is not None and fault.code != "SI_KERNEL" and fault.address == counter:
        return counter
    return (
        counter if instruction is not None and instruction.text is None and not is_canonical(counter, crash) else None
    )


def left_for_nowhere(crash: Crash) -> str | None:
    """The jump, call or return with a non-canonical target, which the processor refuses in place (SI_KERNEL).

    Its operand is readable memory or a register, so only the target it holds can have been refused.
    """
    fault, instruction = crash.fault, crash.instruction
    if fault is None or fault.code != "SI_KERNEL" or instruction is None or instruction.mnemonic is None:
        return None
    if fault.signal not in {"SIGSEGV", "SIGBUS"}:
        return None  # the kernel sends the signals of limits and timers with the same code, wherever the program stands
    if not re.fullmatch(r"(?:bnd )?(?:ret|retf|retq|jmp|call)", instruction.mnemonic):
        return None
    if any(operand.address is None or not is_canonical(operand.address, crash) for operand in instruction.operands):
        return None
    return instruction.text


# ---------------------------------------------------------------- what was written and called


def messages(crash: Crash, *kinds: str) -> tuple[Message, ...]:
    """The messages of these kinds, in the order in which they were written."""
    return tuple(message for message in crash.messages or () if message.kind in kinds)


def says(crash: Crash, *kinds: str, claim: str) -> Found:
    """The program left such a message; the last one counts, because the first may have been survived."""
    found = messages(crash, *kinds)
    if not found:
        return NOTHING
    return (quote(found[-1], claim),)


def quote(message: Message, claim: str) -> Evidence:
    """A message as evidence, cut to what one can read."""
    text = message.text
    return Evidence(claim=claim, seen=text if len(text) <= 400 else text[:400] + " ...", where=message.where)


def frames_of(crash: Crash) -> tuple[Frame, ...]:
    """Native frames of the crashed thread, innermost first; empty where there are none."""
    thread = crash.crashed_thread
    return (thread.frames or ()) if thread else ()


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def calls(crash: Crash, pattern: str, *, first: int = 64, claim: str) -> Found:
    """A function whose bare name matches ``pattern`` fully stands among the ``first`` frames of the crashed thread."""
    for frame in frames_of(crash)[:first]:
        if frame.function and _compiled(pattern).fullmatch(bare_name(frame.function)):
            return (Evidence(claim=claim, seen=f"{frame.function}", where=f"frame {frame.index}"),)
    return NOTHING


_HIDE = {ord("<"): "\1", ord(">"): "\2"}
_SHOW = {1: "<", 2: ">"}


def bare_name(function: str) -> str:
    """A demangled name without return type, template arguments, parameters and clone suffix.

    ``void a::B<int>::f<x>(std::string const&) const [clone .isra.0]`` -> ``a::B::f``; ``(anonymous namespace)`` stays.
    """
    if function.startswith(("-[", "+[")):
        return function  # Objective-C
    text = function.replace("(anonymous namespace)", "{anonymous}").replace("operator()", "operator{call}")
    # The angles of operator<< and operator-> are no brackets: hidden here, restored at the end.
    text = re.sub(r"operator[-<=>*]{1,3}", lambda match: match[0].translate(_HIDE), text)
    text = re.sub(r"\{lambda\([^{}]*\)#\d+\}", "{lambda}", text)
    kept: list[str] = []
    depth = 0
    for character in text:
        if character == "<":
            depth += 1
        elif character == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            if character in "([" and kept:
                break
            kept.append(character)
    name = "".join(kept).strip()
    if "operator" not in name:
        name = name.rsplit(" ", 1)[-1]
    name = name.translate(_SHOW).replace("{anonymous}", "(anonymous namespace)").replace("operator{call}", "operator()")
    return re.split(r"\.(?:isra|part|constprop|cold|lto_priv|llvm)\b|@", name, maxsplit=1)[0] or function


# ---------------------------------------------------------------- the stack


def _told_full(crash: Crash) -> str:
    """The source of the report that the stack is full, if neither the address nor the stack pointer is known."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    if status is not None and status.name is not None:
        return f"{status.value}, {status.name}"
    return crash.exit.text if crash.exit is not None and crash.exit.text else "the system says so"


def stack_exhausted(crash: Crash) -> Found:
    """The crashed thread's stack was full: it faulted below the lowest address of its own stack."""
    thread = crash.crashed_thread
    stack = thread.stack if thread else None
    if thread is None or stack is None or crash.fault is None or crash.fault.signal not in {"SIGSEGV", "SIGBUS"}:
        return NOTHING
    if stack.guard_hit is not True:
        return NOTHING
    if crash.fault.address is not None:
        seen = f"fault address {crash.fault.address}"
    elif stack.pointer is not None:
        seen = f"stack pointer {stack.pointer}"
    else:
        seen = _told_full(crash)
    if stack.low is not None:
        seen += f", the stack may reach down to {stack.low}"
    return (Evidence(claim=f"the stack of {name_of(thread, crash)} is used up", seen=seen, where=place_of(crash)),)
