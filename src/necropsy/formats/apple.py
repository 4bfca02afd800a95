"""Parts common to both forms of a macOS crash report, as a crash of the model.

Words and fields: Apple, *Examining the fields in a crash report*, *Understanding the exception types in a crash
report*; codes: xnu's osfmk/mach/exception_types.h and i386/exception.h. Faults get Linux' names of signals, so that
one rule judges all systems: macOS reports a protection fault as SIGBUS, which is SIGSEGV elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from necropsy.formats import apple_loader
from necropsy.lazy_re import regex
from necropsy.model import (
    Access,
    Address,
    CppException,
    Crash,
    Environment,
    Exit,
    Fault,
    Frame,
    Message,
    Module,
    Stack,
    Thread,
)

_AT = regex(r"(?P<what>[A-Z][A-Z0-9_]{3,40}) at (?P<address>0x[0-9a-f]{1,16})")
_REGION = regex(
    r"(?P<arrow>--->)?\s*(?P<kind>[A-Za-z_][\w ()]{2,40}?)\s+(?P<low>[0-9a-f]{6,16})-(?P<high>[0-9a-f]{6,16})\s"
)
_THROWN = regex(
    r"terminating (?:due to |with )?uncaught (?:foreign )?exception of type "
    r"(?P<type>[^:\s]+(?:::[^:\s]+)*)(?:: (?P<what>.{0,400}))?"
)
_RAISED = regex(r"Terminating app due to uncaught exception '(?P<type>\w{1,100})', reason: '(?P<what>.{0,400})")
_RECURSION = "Thread stack size exceeded due to"
_CODES: dict[str, tuple[str | None, str | None]] = {
    "KERN_INVALID_ADDRESS": ("SIGSEGV", "SEGV_MAPERR"),
    "KERN_PROTECTION_FAILURE": ("SIGSEGV", "SEGV_ACCERR"),
    "KERN_MEMORY_ERROR": ("SIGBUS", "BUS_ADRERR"),
    "EXC_I386_GPFLT": ("SIGSEGV", "SI_KERNEL"),
    "EXC_ARM_DA_ALIGN": ("SIGBUS", "BUS_ADRALN"),
    "EXC_I386_DIV": ("SIGFPE", "FPE_INTDIV"),
    "EXC_I386_INVOP": ("SIGILL", "ILL_ILLOPC"),
    "EXC_ARM_UNDEFINED": ("SIGILL", "ILL_ILLOPC"),
    "EXC_ARM_BREAKPOINT": ("SIGTRAP", "TRAP_BRKPT"),
    "EXC_I386_BPT": ("SIGTRAP", "TRAP_BRKPT"),
}
_FAULTS = {"EXC_BAD_ACCESS", "EXC_BAD_INSTRUCTION", "EXC_ARITHMETIC", "EXC_BREAKPOINT"}
_WRITE, _FETCH = 1 << 1, 1 << 4
"""Bits of x86's error code of a page fault (Intel SDM, volume 3, 4.7)."""


@dataclass
class AppleReport:
    """The words of a report, as they were found; what it does not say is None or empty."""

    first: int
    last: int
    """Numbers of its first and its last line."""
    program: str | None = None
    path: str | None = None
    pid: int | None = None
    version: str | None = None
    cpu: str | None = None
    system: str | None = None
    exception: str | None = None
    """``EXC_BAD_ACCESS``."""
    signal: str | None = None
    detail: str = ""
    """Subtype, codes and message of the exception."""
    namespace: str | None = None
    indicator: str | None = None
    code: str | None = None
    reasons: tuple[str, ...] = ()
    by_itself: bool | None = None
    information: tuple[str, ...] = ()
    """Application specific information: what libraries left before they gave up."""
    region: str | None = None
    threads: list[Thread] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)
    error: int | None = None
    abort: str | None = None
    """What an ARM processor says of the access: ``(Data Abort) byte read Translation fault``."""
    main_crashed: bool = False


def crash_of(report: AppleReport) -> Crash:
    """The report as a crash."""
    fault = _fault(report)
    messages = _messages(report)
    return Crash(
        pid=report.pid,
        exit=_exit(report),
        fault=fault,
        threads=_threads(report, fault),
        modules=tuple(report.modules) or None,
        registers={name: Address(value) for name, value in report.registers.items()} or None,
        messages=messages or None,
        cpp_exception=_thrown(report),
        environment=Environment(
            platform=report.system or "macOS",
            python=report.version if re.match(r"python", report.program or "", re.IGNORECASE) else None,
            executable=report.path or report.program,
            cpu=report.cpu,
        ),
    )


def module(path: str, low: int, high: int, uuid: str | None, version: str | None) -> Module | None:
    """A library of the list at the report's end; None where it has no path, or a place that is none."""
    if not path.startswith("/") or not 0 <= low <= high < 1 << 64:
        return None
    identity = uuid.replace("-", "").lower() if uuid else None
    return Module(path=path, low=Address(low), high=Address(high), build_id=identity, version=version)


def _exit(report: AppleReport) -> Exit | None:
    if report.signal is None:
        return None
    said = " ".join(part for part in (report.exception, f"({report.signal})", report.detail) if part)
    if report.namespace and report.namespace != "SIGNAL":
        said += f"; {_termination(report)}"
    return Exit(kind="signaled", signal=report.signal, text=said[:400])


def _termination(report: AppleReport) -> str:
    code = f", code {report.code}" if report.code else ""
    return f"Namespace {report.namespace}{code}" + (f", {report.indicator}" if report.indicator else "")


def _fault(report: AppleReport) -> Fault | None:
    """The processor's fault, or the abort; None where the system ended the process or never started it."""
    if report.namespace not in {None, "SIGNAL"} or report.signal is None:
        return None
    if report.exception == "EXC_CRASH" and report.signal == "SIGABRT":
        return Fault(signal="SIGABRT", sent_by_itself=True if report.by_itself else None)
    if report.exception not in _FAULTS:
        return None
    known = next((code for code in _CODES if code in report.detail), "")
    signal, reason = _CODES.get(known, (None, None))
    at = next((match for match in _AT.finditer(report.detail) if match["what"] == known), None)
    address = int(at["address"], 16) if at is not None and reason != "SI_KERNEL" else None
    if "possible pointer authentication failure" in report.detail:
        reason, address = "SI_KERNEL", None
    return Fault(
        signal=signal or report.signal,
        code=reason,
        address=Address(address) if address is not None else None,
        access=_access(report) if report.exception == "EXC_BAD_ACCESS" else None,
    )


def _access(report: AppleReport) -> Access | None:
    said = report.abort or ""
    if "Instruction Abort" in said:
        return "exec"
    if "Data Abort" in said:
        return "write" if " write " in said else ("read" if " read " in said else None)
    if report.error is None or "rip" not in report.registers:
        return None
    return "exec" if report.error & _FETCH else ("write" if report.error & _WRITE else "read")


def _threads(report: AppleReport, fault: Fault | None) -> tuple[Thread, ...] | None:
    stack = _stack(report) if fault is not None and fault.signal in {"SIGSEGV", "SIGBUS"} else None
    threads = tuple(
        Thread(
            tid=one.tid,
            name=one.name,
            crashed=one.crashed,
            frames=one.frames,
            frames_total=one.frames_total,
            complete=one.complete,
            folds=one.folds,
            stack=stack if one.crashed else None,
        )
        for one in report.threads
    )
    if not any(one.crashed for one in threads) and stack is not None:
        return (Thread(crashed=True, stack=stack), *threads)
    return threads or None


def _stack(report: AppleReport) -> Stack | None:
    """Stack of the crashed thread, where the access hit the guard below it."""
    pointer = report.registers.get("rsp", report.registers.get("sp"))
    regions = list(_REGION.finditer(report.region or ""))
    at = next((place for place, match in enumerate(regions) if match["arrow"]), None)
    hit = at is not None and "stack guard" in regions[at]["kind"].lower()
    if not hit and _RECURSION not in report.detail:
        stack = Stack(pointer=Address(pointer), is_main=report.main_crashed) if pointer is not None else None
        return stack if stack is not None and report.main_crashed else None
    low = high = guard = None
    if hit and at is not None:
        guard = int(regions[at]["high"], 16) - int(regions[at]["low"], 16)
        above = next((one for one in regions[at + 1 :] if one["kind"].lower().startswith("stack")), None)
        if above is not None and int(above["low"], 16) == int(regions[at]["high"], 16):
            low, high = int(above["low"], 16), int(above["high"], 16)
    return Stack(
        low=Address(low) if low is not None else None,
        high=Address(high) if high is not None else None,
        size=high - low if low is not None and high is not None else None,
        guard=guard,
        guard_hit=True,
        pointer=Address(pointer) if pointer is not None else None,
        is_main=report.main_crashed,
    )


def _thrown(report: AppleReport) -> CppException | None:
    match = _exception(report)
    if match is None:
        return None
    return CppException(type=match["type"], what=_what(match), where="application specific information")


def _exception(report: AppleReport) -> re.Match[str] | None:
    """Objective-C's sentence, which has the reason, before the C++ runtime's, which follows it."""
    found = (pattern.search(said) for pattern in (_RAISED, _THROWN) for said in report.information)
    return next((match for match in found if match is not None), None)


def _what(match: re.Match[str]) -> str | None:
    return match["what"].rstrip("'") if match["what"] else None


def _messages(report: AppleReport) -> tuple[Message, ...]:
    where = f"crash report in lines {report.first} to {report.last}"
    found: list[Message] = []
    for said in report.information:
        kind = apple_loader.kind_of(said)
        if kind is not None:
            found.append(
                Message(kind=kind, text=said[:400], where=where, line=report.first, fields={"what": said[:400]})
            )
    if (match := _exception(report)) is not None:
        fields = {"type": match["type"]} | ({"what": what} if (what := _what(match)) else {})
        found.append(Message(kind="cpp-terminate", text=match[0][:400], where=where, line=report.first, fields=fields))
    if _RECURSION in report.detail:
        said = report.detail[report.detail.find(_RECURSION) :].split(" 0x", maxsplit=1)[0]
        found.append(Message(kind="excessive-recursion", text=said, where=where, line=report.first))
    if report.namespace == "DYLD" or any("Library not loaded" in reason for reason in report.reasons):
        found += apple_loader.messages("\n".join(report.reasons), where, report.first, refused=True)
    elif report.namespace == "JETSAM":
        fields = {"killer": "jetsam", "signal": "SIGKILL"} | ({"pid": str(report.pid)} if report.pid else {})
        found.append(
            Message(kind="kernel-oom", text=_termination(report), where=where, line=report.first, fields=fields)
        )
    elif report.namespace not in {None, "SIGNAL"}:
        fields = {"namespace": report.namespace or "", "indicator": report.indicator or ""}
        found.append(
            Message(kind="macos-termination", text=_termination(report), where=where, line=report.first, fields=fields)
        )
    return tuple(found)


def frames_with_holes(frames: Sequence[Frame], holes: Sequence[tuple[int, int]]) -> list[Frame]:
    """The frames with the numbers that they had before the report left some out: first and last of each hole."""
    shift, at, kept = 0, 0, []
    for frame in frames:
        while at < len(holes) and frame.index + shift >= holes[at][0]:
            shift += max(0, holes[at][1] - holes[at][0] + 1)
            at += 1
        kept.append(
            Frame(**{**{name: getattr(frame, name) for name in frame.__struct_fields__}, "index": frame.index + shift})
        )
    return kept
