"""The kernel's own lines on a process that died of a signal: ``python[4711]: segfault at 10 ip ... error 4``.

Formats: arch/x86/mm/fault.c (``show_signal_msg``), arch/x86/kernel/traps.c (``show_signal``), mm/memory.c
(``print_vma_addr``), arch/arm64/kernel/traps.c (``arm64_show_signal``), arch/powerpc/kernel/traps.c
(``show_signal_msg``), arch/riscv/kernel/traps.c (``do_trap``), kernel/signal.c (``print_fatal_signal``),
mm/memory-failure.c, kernel/auditsc.c. The bits of a page fault's error code, which is printed in hex:
arch/x86/include/asm/trap_pf.h.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from necropsy.formats.backtrace import by_stack, hexadecimal, native
from necropsy.formats.exit_status import signal_name
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport, is_foreign
from necropsy.lazy_re import regex
from necropsy.model import Access, Address, Crash, Environment, Exit, Fault, Gap, Instruction, Stack, Thread

KIND = "kernel-log"
_AHEAD = 40
_WIDEST = 2000

_WHO = r"(?P<name>[^\[\]]{1,40})\[(?P<tid>\d{1,10})\]:? "
_AT = r"ip[: ](?P<ip>[0-9a-f]{1,16}),? r?sp[: ](?P<sp>[0-9a-f]{1,16}),? error[: ](?P<error>[0-9a-f]{1,8})"
# Copied without its beginning, as people do, it is unmistakable all the same.
_SEGFAULT = regex(rf"(?:{_WHO})?segfault at (?P<address>[0-9a-f]{{1,16}}) r?" + _AT)
_TRAP = regex(
    _WHO + r"(?:trap )?(?P<what>invalid opcode|divide error|int3|debug|general protection(?: fault)?|stack segment|"
    r"alignment check|bounds|overflow|segment not present|control protection \([\w -]{1,20}\)) r?" + _AT
)
_SHORT = regex(
    _WHO + r"(?:segfault|bus error|illegal instruction|trap|fpe|unhandled signal) "
    r"\(?(?P<signal>\d{1,2})\)? (?:at (?P<address>[0-9a-f]{1,16}) nip (?P<ip>[0-9a-f]{1,16}) lr [0-9a-f]{1,16} "
    r"code (?P<code>[0-9a-f]{1,4})|code 0x(?P<code_riscv>[0-9a-f]{1,4}) at 0x(?P<address_riscv>[0-9a-f]{1,16}))"
)
_ARM = regex(
    _WHO + r"unhandled (?:exception: (?:(?P<class>[^,]{1,40}), ESR 0x(?P<esr>[0-9a-f]{1,16}), )?(?P<what>[^,\n]{1,60}?)"
    r"|(?P<what_old>[a-z0-9 -]{1,60}) \((?P<signal>\d{1,2})\) at 0x(?P<address>[0-9a-f]{1,16}), "
    r"esr 0x(?P<esr_old>[0-9a-f]{1,16}))(?=,? in |\s*$)"
)
_UNDEFINED = regex(_WHO + r"undefined instruction: pc=(?:0x)?(?P<ip>[0-9a-f]{1,16})")
_FATAL = regex(r"potentially unexpected fatal signal (?P<signal>\d{1,2})\.")
_PID = regex(r"PID: (?P<tid>\d{1,10}) Comm: (?P<name>.{1,40}?) (?:Not tainted|Tainted|\d)")
_BROKEN = regex(
    r"(?:Sending SIGBUS to|Killing) (?P<name>[^:]{1,40}):(?P<tid>\d{1,10}) due to hardware memory corruption"
)
_AUDIT = regex(
    r"type=(?:1701|1326|ANOM_ABEND|SECCOMP)\b.{1,300}? pid=(?P<pid>\d{1,10}) comm=\"?(?P<name>[^\"\s]{1,40})\"?"
    r"(?: exe=\"(?P<exe>[^\"]{1,200})\")? sig=(?P<signal>\d{1,2})"
)
_MODULE = regex(
    r",? in (?P<module>[^\[\]]{1,255})\[(?:(?P<offset>[0-9a-f]{1,16}),)?"
    r"(?P<base>[0-9a-f]{1,16})\+(?P<size>[0-9a-f]{1,16})\]"
)
_CODE = regex(r"Code: (?P<bytes>(?:<?\(?[0-9a-f]{2,8}\)?>? ?){1,70})")
_REGISTER = regex(
    r"\b(?P<name>R[A-Z0-9]{1,2}|e?pc|lr|ra|sp|x\d{1,2}) ?: ?(?:[0-9a-f]{4}:)?(?:0x)?(?P<value>[0-9a-f]{8,16})\b"
)

_PRESENT, _WRITE, _FETCH, _KEY = 1 << 0, 1 << 1, 1 << 4, 1 << 5
_LOWER_HALF = 1 << 47
_TRAPS: dict[str, tuple[str, str | None]] = {
    "invalid opcode": ("SIGILL", "ILL_ILLOPN"),
    "divide error": ("SIGFPE", "FPE_INTDIV"),
    "int3": ("SIGTRAP", "SI_KERNEL"),
    "debug": ("SIGTRAP", "TRAP_TRACE"),
    "general protection": ("SIGSEGV", "SI_KERNEL"),
    "stack segment": ("SIGBUS", "SI_KERNEL"),
    "alignment check": ("SIGBUS", "BUS_ADRALN"),
    "bounds": ("SIGSEGV", "SI_KERNEL"),
    "overflow": ("SIGSEGV", "SI_KERNEL"),
    "segment not present": ("SIGBUS", "SI_KERNEL"),
    "control protection": ("SIGSEGV", "SEGV_CPERR"),
}
_CODES = {("SIGSEGV", 1): "SEGV_MAPERR", ("SIGSEGV", 2): "SEGV_ACCERR", ("SIGBUS", 1): "BUS_ADRALN"}
_CODES |= {("SIGILL", 1): "ILL_ILLOPC", ("SIGFPE", 1): "FPE_INTDIV", ("SIGTRAP", 1): "TRAP_BRKPT"}


@dataclass(frozen=True)
class _Death:
    """What one line says; addresses are numbers. ``name`` is that of the thread."""

    name: str | None
    tid: int | None
    fault: Fault | None
    signal: str
    counter: int | None = None
    pointer: int | None = None
    stack: bool = False
    """The access may have hit the end of the stack: data, and nothing mapped and readable."""


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The death that the line at ``index`` tells of."""
    text = lines[index].text[:_WIDEST]
    for literals, pattern, death in _FORMS:
        if match := _find(text, literals, pattern):
            return _piece(lines, index, death(match), match)
    audit = _find(text, _AUDITED, _AUDIT)
    return _audit(lines, index, audit) if audit else None


def _find(text: str, literals: Sequence[str], pattern: re.Pattern[str]) -> re.Match[str] | None:
    """The form around the first of its literals; so that a line is never searched from each of its characters."""
    at = next((place for literal in literals if (place := text.find(literal)) >= 0), None)
    return pattern.search(text[max(0, at - 64) : at + 700]) if at is not None else None


def _name(match: re.Match[str]) -> str | None:
    """The thread's name behind the time stamp, the host and ``kernel:``, which hold no bracket but end in a space."""
    if match["name"] is None:
        return None
    return re.split(r"[\])>]\s+|: +|\| ", match["name"])[-1].strip()


def _segfault(match: re.Match[str]) -> _Death:
    error, address = int(match["error"], 16), int(match["address"], 16)
    access: Access = "exec" if error & _FETCH else ("write" if error & _WRITE else "read")
    code = None
    if error & _KEY:
        code = "SEGV_PKUERR"
    elif error & _PRESENT and address < _LOWER_HALF:
        # Of what is not there the kernel does not tell a mapping without the right from no mapping at all: a page that
        # was never touched is not there either. And every address of the kernel's own is said to be there.
        code = "SEGV_ACCERR"
    return _Death(
        name=_name(match),
        tid=int(match["tid"]) if match["tid"] else None,
        fault=Fault(signal="SIGSEGV", code=code, address=Address(address), access=access),
        signal="SIGSEGV",
        counter=int(match["ip"], 16),
        pointer=int(match["sp"], 16),
        stack=not error & (_PRESENT | _FETCH),
    )


def _trap(match: re.Match[str]) -> _Death:
    what = match["what"].removesuffix(" fault").split(" (")[0]
    signal, code = _TRAPS[what]
    counter = int(match["ip"], 16)
    at_counter = signal in {"SIGILL", "SIGFPE"}
    return _Death(
        name=_name(match),
        tid=int(match["tid"]),
        fault=Fault(signal=signal, code=code, address=Address(counter) if at_counter else None),
        signal=signal,
        counter=counter,
        pointer=int(match["sp"], 16),
    )


def _short(match: re.Match[str]) -> _Death:
    """PowerPC and RISC-V, which print the signal's number and the si_code."""
    signal = signal_name(int(match["signal"]))
    address = hexadecimal(match["address"] or match["address_riscv"])
    code = _CODES.get((signal, hexadecimal(match["code"] or match["code_riscv"]) or 0))
    fault = Fault(signal=signal, code=code, address=Address(address) if address is not None else None)
    return _Death(
        name=_name(match), tid=int(match["tid"]), fault=fault, signal=signal, counter=hexadecimal(match["ip"])
    )


def _arm(match: re.Match[str]) -> _Death:
    """AArch64: the exception class is in bits 26 to 31 of ESR, for an abort the fault's kind in bits 0 to 5."""
    esr = int(match["esr"] or match["esr_old"] or "0", 16)
    what = match["what"] or match["what_old"]
    kind, status = esr >> 26 & 0x3F, esr & 0x3F
    address = hexadecimal(match["address"])
    access: Access | None = None
    signal, code = "SIGSEGV", None
    if kind in {0x24, 0x20}:  # data abort, instruction abort, both from a lower exception level
        access = "exec" if kind == 0x20 else ("write" if esr & 1 << 6 else "read")
        code = "SEGV_ACCERR" if 0x0C <= status <= 0x0F else None
        if status == 0x21:
            signal, code = "SIGBUS", "BUS_ADRALN"
    elif kind in {0x22, 0x26}:
        signal, code = "SIGBUS", "BUS_ADRALN"
    elif kind == 0x3C or "debug trap" in what:
        signal, code = "SIGTRAP", "TRAP_BRKPT"
    elif kind == 0 or "undefined instruction" in what:
        signal, code = "SIGILL", "ILL_ILLOPC"
    if match["signal"]:
        signal = signal_name(int(match["signal"]))
    fault = Fault(
        signal=signal,
        code=code,
        access=access,
        address=Address(address) if address is not None else None,
    )
    return _Death(
        name=_name(match),
        tid=int(match["tid"]),
        fault=fault,
        signal=signal,
        stack=kind == 0x24 and 0x04 <= status <= 0x07,
    )


def _fatal(match: re.Match[str]) -> _Death:
    """``print-fatal-signals``: the signal may have been sent, so it is not a fault by itself."""
    return _Death(name=None, tid=None, fault=None, signal=signal_name(int(match["signal"])))


def _broken(match: re.Match[str]) -> _Death:
    fault = Fault(signal="SIGBUS", code="BUS_MCEERR_AR")
    return _Death(name=match["name"].strip(), tid=int(match["tid"]), fault=fault, signal="SIGBUS")


def _undefined(match: re.Match[str]) -> _Death:
    counter = int(match["ip"], 16)
    fault = Fault(signal="SIGILL", code="ILL_ILLOPC", address=Address(counter))
    return _Death(name=_name(match), tid=int(match["tid"]), fault=fault, signal="SIGILL", counter=counter)


_FORMS: tuple[tuple[tuple[str, ...], re.Pattern[str], Callable[[re.Match[str]], _Death]], ...] = (
    (("segfault at ",), _SEGFAULT, _segfault),
    (
        (
            "trap invalid opcode",
            "trap divide error",
            "trap int3",
            "trap stack segment",
            "trap alignment check",
            "trap bounds",
            "trap overflow",
            "general protection",
            "control protection (",
        ),
        _TRAP,
        _trap,
    ),
    (("segfault (", "bus error (", "illegal instruction (", "unhandled signal "), _SHORT, _short),
    (("unhandled exception: ", "unhandled level ", "unhandled alignment fault"), _ARM, _arm),
    (("undefined instruction: pc=",), _UNDEFINED, _undefined),
    (("potentially unexpected fatal signal",), _FATAL, _fatal),
    (("due to hardware memory corruption",), _BROKEN, _broken),
)
_AUDITED = ("type=1701 ", "type=1326 ", "type=ANOM_ABEND", "type=SECCOMP")


# ---------------------------------------------------------------- what stands below the line


@dataclass(frozen=True)
class _Below:
    """The lines behind it: ``code`` holds the bytes from the program counter on."""

    last: int
    name: str | None
    tid: int | None
    registers: dict[str, Address]
    code: tuple[int, ...]


def _below(lines: Sequence[Line], index: int, signal: str) -> _Below:
    registers: dict[str, Address] = {}
    code: tuple[int, ...] = ()
    last, name, tid = index, None, None
    for at in range(index + 1, min(len(lines), index + _AHEAD)):
        text = lines[at].text[:_WIDEST]
        if any(literal in text for literals, _, form in _FORMS if form is not _fatal for literal in literals):
            break
        if fatal := _FATAL.search(text):
            # The same death told once more, with its registers.
            if registers or signal_name(int(fatal["signal"])) != signal:
                break
            continue
        found = {match["name"].lower(): Address(int(match["value"], 16)) for match in _REGISTER.finditer(text)}
        if bytes_ := _CODE.search(text):
            code, last = _faulting(bytes_["bytes"]), at
        elif found:
            # A second block of registers belongs to another death.
            if found.keys() & registers.keys():
                break
            registers |= found
            last = at
        elif who := _PID.search(text):
            if registers or tid is not None:
                break
            name, tid, last = who["name"], int(who["tid"]), at
        elif at - last > 3:
            break
    return _Below(last, name, tid, registers, code)


def _faulting(text: str) -> tuple[int, ...]:
    """The bytes from the marked one, the program counter's, on."""
    _, mark, rest = text.partition("<")
    return tuple(int(one, 16) for one in rest.replace(">", " ").split()[:15] if len(one) == 2) if mark else ()


def _instruction(code: Sequence[int], counter: int | None, signal: str) -> Instruction | None:
    """What the bytes show without a disassembler: a trap, or an encoding that needs AVX."""
    if not code or counter is None or signal not in {"SIGILL", "SIGTRAP"}:
        return None
    known = {(0x0F, 0x0B): "ud2", (0x0F, 0xB9): "ud1", (0x0F, 0xFF): "ud0"}.get(
        (code[0], code[1] if len(code) > 1 else 0)
    )
    if known is not None:
        return Instruction(address=Address(counter), text=known, mnemonic=known)
    # In 64-bit mode 62 begins an EVEX prefix and nothing else (Intel SDM, volume 2, 2.7).
    feature = "avx512f" if code[0] == 0x62 else None
    spelled = " ".join(f"{one:02x}" for one in code)
    return Instruction(address=Address(counter), text=f"bytes {spelled}", cpu_feature=feature)


# ---------------------------------------------------------------- line -> crash


def _piece(lines: Sequence[Line], index: int, death: _Death, match: re.Match[str]) -> TextReport | None:
    below = _below(lines, index, death.signal)
    name, tid = death.name or below.name, death.tid if death.tid is not None else below.tid
    if is_foreign(name):
        return None
    counter = death.counter if death.counter is not None else _register(below, "rip", "pc", "epc")
    pointer = death.pointer if death.pointer is not None else _register(below, "rsp", "sp")
    module = _MODULE.match(match.string, match.end())
    offset, gaps = _offset(module, counter)
    frame = native(0, None, module=module["module"] if module else None, address=counter, offset=offset)
    begins = match["name"].rfind(death.name) if death.name else 0
    known = {"rip": counter, "rsp": pointer} if "rip" in below.registers or death.pointer is not None else {}
    registers = {key: Address(value) for key, value in known.items() if value is not None} | below.registers
    thread = Thread(
        tid=tid,
        name=name,
        crashed=True,
        frames=(frame,) if module or counter is not None else None,
        stack=_stack(death, pointer),
    )
    crash = Crash(
        exit=Exit(kind="signaled", signal=death.signal, text=match.string[match.start() + begins :].strip()[:300]),
        fault=death.fault,
        threads=(thread,),
        registers=registers or None,
        instruction=_instruction(below.code, counter, death.signal),
        environment=Environment(platform="Linux"),
        gaps=gaps,
    )
    return TextReport(KIND, lines[index].number, lines[below.last].number, crash)


def _register(below: _Below, *names: str) -> int | None:
    return next((below.registers[name] for name in names if name in below.registers), None)


def _stack(death: _Death, pointer: int | None) -> Stack | None:
    if pointer is None:
        return None
    address = death.fault.address if death.fault is not None and death.stack else None
    return by_stack({"sp": pointer}, address)


def _offset(module: re.Match[str] | None, counter: int | None) -> tuple[int | None, tuple[Gap, ...]]:
    """The place in the file; kernels before 6.10 print the mapping's beginning instead, which they call base."""
    if module is None:
        return None, ()
    if module["offset"] is not None:
        return int(module["offset"], 16), ()
    base = int(module["base"], 16)
    if counter is None or not base <= counter < base + int(module["size"], 16):
        return None, ()
    why = (
        f"the offset in {module['module']} is counted from the mapping of its code, as older kernels print it: "
        "add that segment's offset in the file (`readelf -lW`) for addr2line"
    )
    return counter - base, (Gap(part="offset in the file", why=why),)


def _audit(lines: Sequence[Line], index: int, match: re.Match[str]) -> TextReport | None:
    if is_foreign(match["name"]):
        return None
    signal = signal_name(int(match["signal"]))
    crash = Crash(
        pid=int(match["pid"]),
        exit=Exit(kind="signaled", signal=signal, text=match[0][:300]),
        environment=Environment(platform="Linux", executable=match["exe"]),
    )
    return TextReport(KIND, lines[index].number, lines[index].number, crash)


READER = TextReader(
    kind=KIND,
    triggers=(*(literal for literals, _, _ in _FORMS for literal in literals), *_AUDITED),
    read=read,
    reach=_AHEAD,
)
