"""A crash written by hand, line by line: what rules' ``hit`` and ``miss`` and the files in ``tests/cases`` are made of.

One fact a line, the first word says which. What is not written is unknown (``None``), except messages, which are scanned
from the ``log`` and ``abort`` lines: without them there were none.

::

    pid 4711
    exit 139 | exit signal SIGKILL | exit timeout|running  how the process ended (exit text ... adds its text)
    exit status 0xC0000409 [subcode 5] | exit lost TEXT  Windows' status; gone, and nobody says how
    signal SIGSEGV [SEGV_MAPERR] [0x10] [read|write|exec] [handled-first]
    exception 0xC0000005 [0 0x10 ...]                    Windows' exception record: its end, its fault, its parameters
    thrown TYPE[: WHAT] | thrown-before TYPE[: WHAT]     the C++ exception of that record, or of an earlier first chance
    reserve 2000000                                      Windows: SizeOfStackReserve of the executable
    program PATH                                         the executable, on Windows
    message KIND [NAME=VALUE ...]: TEXT                  a message that was read in the exception record
    sent-by itself | sent-by 1234                        the signal was sent by a process
    asked SIGTERM [by 1234] [handled] [after SECONDS]    its threads were read when this signal came from outside
    mapping 0x1000-0x2000 r--p [/path]                   the mapping that holds the fault address
    at 0x401000 mov eax, dword ptr [rdi + 0x10]          the instruction; `at 0x0 nothing`: no memory there
    operand read [rdi + 0x10] = 0x10 [size 4] [rdi=0x0]  its memory operands, in order
    feature avx512f missing|present                      the CPU feature that the instruction needs
    register rip=0x401000 ...                            registers of the crashed thread
    thread 4711 NAME [crashed]                           what follows belongs to it (default: one crashed thread 4711)
    stack 8MiB [used 20KiB] [exhausted|whole] [main] [low 0x..] [pointer 0x..]
    frame FUNCTION [@ MODULE] [in FILE:LINE] [takes BYTES]
    frames 104860                                        how many there are in all
    fold PERIOD x TIMES [takes BYTES]: FUNCTION[@MODULE]; FUNCTION ...
    fold-python FUNCTION FILE:LINE                       a Python frame that repeats with the last fold
    largest FUNCTION takes BYTES
    python FUNCTION FILE:LINE                            innermost first; `python none`: it runs no Python
    log TEXT                                             one line of stderr
    abort TEXT                                           glibc's __abort_msg
    cpp TYPE[: WHAT]                                     the C++ exception in flight
    op NAME [kernel CLASS]
    limit RLIMIT_STACK 8MiB
    below 0x1000-0x2000 rw-p [/path]                     the nearest mapping below the fault address
    truncated 0x1000-0x2000 rw-p [/path]                 a mapping that holds the same lower 32 bits
    heap 0x1000-0x2000                                   a mapping of malloc's
    file inside|beyond [left BYTES]                      SIGBUS: where the address lies in its file; space on its disk
    waits CALL [0xADDRESS] [owner TID]                   what the last thread waits for
    gil                                                  the last thread holds the GIL
    code 0x1000-0x2000 r-xp [/path]                      the mapping that holds the last frame, where no library does
    module PATH [VERSION] [of PACKAGE]                   a library that is loaded
    library NAME VERSION
    memory oom_kill=1 failcnt=7 [limit 512MiB]           what its control group counted during the run
    kernel TEXT                                          one line of the kernel's log
    forked-from THREADS                                  it was forked from a process with so many threads
    gap PART: WHY
    verdict RULE [confidence]                            tests/cases only: what must come out
    alternative RULE                                     tests/cases only: what must be among the weaker ones
    says TEXT                                            tests/cases only: what the verdict's summary must contain
    shows TEXT                                           tests/cases only: what one piece of its evidence must contain
    fixes TEXT                                           tests/cases only: what one of its fixes must contain
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from necropsy.formats.log import scan
from necropsy.formats.windows_exits import ACCESS_VIOLATION, STACK_OVERFLOW, end_of, fault_of
from necropsy.model import (
    Address,
    CppException,
    Crash,
    Environment,
    Exit,
    Fault,
    Fold,
    Frame,
    Gap,
    Instruction,
    Mapping,
    MemoryOperand,
    Message,
    Module,
    Operation,
    Stack,
    StopRequest,
    Thread,
    Wait,
)

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass
class Sketch:
    """A parsed sketch: the crash, and what a case expects of it."""

    crash: Crash
    verdict: str | None = None
    confidence: str | None = None
    alternatives: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)
    shows: list[str] = field(default_factory=list)
    fixes: list[str] = field(default_factory=list)


@dataclass
class _Draft:
    crash: dict[str, Any] = field(default_factory=dict)
    fault: dict[str, Any] = field(default_factory=dict)
    instruction: dict[str, Any] = field(default_factory=dict)
    threads: list[dict[str, Any]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    kernel: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)

    @property
    def thread(self) -> dict[str, Any]:
        if not self.threads:
            self.threads.append({"tid": 4711, "crashed": True})
        return self.threads[-1]


def amount(text: str) -> int:
    """``8MiB`` -> bytes."""
    match = re.fullmatch(r"(\d+)(|KiB|MiB|GiB)", text)
    assert match, f"not an amount: {text}"
    return int(match[1]) * UNITS[match[2]]


def parse(text: str) -> Sketch:
    """The sketch in ``text``.

    Raises:
        AssertionError: a line that the grammar does not know.

    """
    draft, sketch = _Draft(), Sketch(Crash())
    for row in text.splitlines():
        line = row.strip()
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "verdict":
            sketch.verdict, _, confidence = rest.partition(" ")
            sketch.confidence = confidence or None
        elif word == "alternative":
            sketch.alternatives.append(rest)
        elif word == "says":
            sketch.says.append(rest)
        elif word == "shows":
            sketch.shows.append(rest)
        elif word == "fixes":
            sketch.fixes.append(rest)
        else:
            reader = _READERS.get(word)
            assert reader, f"a sketch does not know this line: {line}"
            reader(draft, rest)
    sketch.crash = _crash(draft)
    return sketch


def crash(text: str) -> Crash:
    return parse(text).crash


def _crash(draft: _Draft) -> Crash:
    parts = draft.crash
    messages = scan("\n".join(draft.log)) if draft.log else ()
    for line in draft.kernel:
        messages += scan(line, "kernel log")
    if "abort_message" in parts:
        messages += scan(parts["abort_message"], "__abort_msg")
    if draft.fault:
        parts["fault"] = Fault(**draft.fault)
    if draft.instruction:
        operands = tuple(draft.instruction.pop("operands", ()))
        parts["instruction"] = Instruction(**draft.instruction, operands=operands)
    if draft.threads:
        parts["threads"] = tuple(_thread(thread) for thread in draft.threads)
    if draft.limits:
        parts["environment"] = Environment(limits=draft.limits)
    if draft.log:
        parts["log_tail"] = "\n".join(draft.log)
    return Crash(messages=(*messages, *draft.messages), gaps=tuple(draft.gaps), **parts)


def _thread(parts: dict[str, Any]) -> Thread:
    for name in ("frames", "python", "folds", "largest"):
        if name in parts:
            parts[name] = tuple(parts[name])
    if parts.get("frames") and "frames_total" not in parts:
        parts["frames_total"] = len(parts["frames"])
    return Thread(**parts)


# ---------------------------------------------------------------- one reader a word


def _exit(draft: _Draft, rest: str) -> None:
    kind, _, value = rest.partition(" ")
    if kind == "signal":
        draft.crash["exit"] = Exit(kind="signaled", signal=value)
    elif kind == "status":
        code, _, subcode = value.partition(" subcode ")
        draft.crash["exit"] = end_of(int(code, 16), value, int(subcode) if subcode else None)
    elif kind == "lost":
        draft.crash["exit"] = Exit(kind="lost", text=value)
    elif kind == "timeout":
        draft.crash["exit"] = Exit(kind="timeout")
    elif kind == "running":
        draft.crash["exit"] = Exit(kind="running")
    else:
        draft.crash["exit"] = Exit(kind="exited", code=int(kind), text=value or None)


def _signal(draft: _Draft, rest: str) -> None:
    signal, *more = rest.split()
    draft.fault["signal"] = signal
    for word in more:
        if word in {"read", "write", "exec"}:
            draft.fault["access"] = word
        elif word == "handled-first":
            draft.fault["handled_first"] = True
        elif word.startswith("0x"):
            draft.fault["address"] = Address(word, 16)
        else:
            draft.fault["code"] = word


def _exception(draft: _Draft, rest: str) -> None:
    code, *numbers = (int(word, 0) for word in rest.split())
    draft.crash["exit"] = end_of(code, f"exception code 0x{code:08X}", numbers[0] if numbers else None)
    # The record of a full stack has the parameters of an access violation.
    fault = fault_of(ACCESS_VIOLATION if code == STACK_OVERFLOW and len(numbers) > 1 else code, numbers)
    if fault is not None:
        draft.fault |= {name: getattr(fault, name) for name in ("signal", "code", "access", "address")}


def _thrown(draft: _Draft, rest: str, where: str) -> None:
    _cpp(draft, rest)
    draft.crash["cpp_exception"] = msgspec.structs.replace(draft.crash["cpp_exception"], where=where)


def _message(draft: _Draft, rest: str) -> None:
    match = re.fullmatch(r"(\S+)((?: \w+=\S+?)*): (.+)", rest)
    assert match, rest
    fields = dict(pair.split("=", 1) for pair in match[2].split())
    draft.messages.append(Message(kind=match[1], text=match[3], where="exception record", fields=fields))


def _sent_by(draft: _Draft, rest: str) -> None:
    draft.fault["sent_by_itself"] = rest == "itself"
    draft.fault["sender"] = 4711 if rest == "itself" else int(rest)


def _asked(draft: _Draft, rest: str) -> None:
    match = re.fullmatch(r"(SIG\w+)(?: by (\d+))?( handled)?(?: after ([\d.]+))?", rest)
    assert match, rest
    draft.crash["stop_request"] = StopRequest(
        signal=match[1],
        sender=int(match[2]) if match[2] else None,
        handled=bool(match[3]),
        seconds=float(match[4] or 0.1),
    )


def _mapping(draft: _Draft, rest: str) -> None:
    match = re.fullmatch(r"(0x\w+)-(0x\w+) (\S{4})(?: (.+))?", rest)
    assert match, rest
    low, high = Address(match[1], 16), Address(match[2], 16)
    draft.fault["mapping"] = Mapping(low=low, high=high, permissions=match[3], path=match[4])


def _range(text: str) -> Mapping:
    match = re.fullmatch(r"(0x\w+)-(0x\w+)(?: (\S{4}))?(?: (.+))?", text)
    assert match, text
    low, high = Address(match[1], 16), Address(match[2], 16)
    return Mapping(low=low, high=high, permissions=match[3] or "rw-p", path=match[4])


def _waits(draft: _Draft, rest: str) -> None:
    match = re.fullmatch(r"(\w+)(?: (0x\w+))?(?: owner (\d+))?", rest)
    assert match, rest
    address = Address(match[2], 16) if match[2] else None
    on = f"the lock at {address}" if address is not None else None
    draft.thread["waits"] = Wait(call=match[1], on=on, address=address, owner=int(match[3]) if match[3] else None)


def _code(draft: _Draft, rest: str) -> None:
    frame = draft.thread["frames"].pop()
    draft.thread["frames"].append(msgspec.structs.replace(frame, mapping=_range(rest)))


def _module(draft: _Draft, rest: str) -> None:
    rest, _, package = rest.partition(" of ")
    path, _, version = rest.partition(" ")
    at = 0x7F0000000000 + (len(draft.crash.get("modules", ())) << 24)
    high = Address(at + 0x100000)
    module = Module(path=path, low=Address(at), high=high, version=version or None, package=package or None)
    draft.crash["modules"] = (*draft.crash.get("modules", ()), module)


def _library(draft: _Draft, rest: str) -> None:
    name, version = rest.split()
    draft.crash.setdefault("libraries", {})[name] = version


def _memory(draft: _Draft, rest: str) -> None:
    counts, _, limit = rest.partition(" limit ")
    draft.crash["memory_events"] = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", counts)}
    draft.crash["memory_cgroup"] = "/sys/fs/cgroup/memory/job"
    draft.crash["memory_limit"] = amount(limit) if limit else None


def _file(draft: _Draft, rest: str) -> None:
    where, _, left = rest.partition(" left ")
    draft.fault |= {"beyond_file": where == "beyond", "space_left": amount(left) if left else None}


def _at(draft: _Draft, rest: str) -> None:
    address, _, text = rest.partition(" ")
    draft.instruction["address"] = Address(address, 16)
    if text != "nothing":
        draft.instruction["text"] = text
        draft.instruction["mnemonic"] = text.split()[0]


def _values(text: str) -> dict[str, Address]:
    return {name: Address(value, 16) for name, value in re.findall(r"(\w+)=(0x\w+)", text)}


def _operand(draft: _Draft, rest: str) -> None:
    match = re.fullmatch(r"(read|write) (\[[^]]*\])(?: = (0x\w+))?(?: size (\d+))?((?: \w+=0x\w+)*)", rest)
    assert match, rest
    access: Any = match[1]
    draft.instruction.setdefault("operands", []).append(
        MemoryOperand(
            text=match[2],
            access=access,
            address=Address(match[3], 16) if match[3] else None,
            size=int(match[4]) if match[4] else None,
            registers=_values(match[5]),
        )
    )


def _feature(draft: _Draft, rest: str) -> None:
    name, state = rest.split()
    draft.instruction |= {"cpu_feature": name, "cpu_has_feature": state == "present"}


def _start_thread(draft: _Draft, rest: str) -> None:
    tid, *more = rest.split()
    crashed = "crashed" in more
    draft.threads.append(
        {"tid": int(tid), "crashed": crashed, "name": next((word for word in more if word != "crashed"), None)}
    )


def _stack(draft: _Draft, rest: str) -> None:
    words = rest.split()
    parts: dict[str, Any] = {"size": amount(words[0])}
    for name, value in zip(words[1:], [*words[2:], ""], strict=True):
        if name == "used":
            parts["used"] = amount(value)
        elif name in {"low", "pointer"}:
            parts[name] = Address(value, 16)
        elif name in {"exhausted", "whole"}:
            parts["guard_hit"] = name == "exhausted"
        elif name == "main":
            parts["is_main"] = True
    draft.thread["stack"] = Stack(**parts)


def _frame_parts(text: str) -> dict[str, Any]:
    match = re.fullmatch(r"(.+?)(?: @ (\S+))?(?: in (\S+):(\d+))?(?: takes (\d+))?", text)
    assert match, text
    return {
        "function": None if match[1] == "?" else match[1],
        "module": match[2],
        "source": match[3],
        "line": int(match[4]) if match[4] else None,
        "stack_bytes": int(match[5]) if match[5] else None,
    }


def _frame(draft: _Draft, rest: str) -> None:
    frames = draft.thread.setdefault("frames", [])
    frames.append(Frame(index=len(frames), kind="native", found_by="cfi", **_frame_parts(rest)))


def _largest(draft: _Draft, rest: str) -> None:
    largest = draft.thread.setdefault("largest", [])
    largest.append(Frame(index=len(largest), kind="native", **_frame_parts(rest)))


def _fold(draft: _Draft, rest: str) -> None:
    match = re.fullmatch(r"(\d+) x (\d+)(?: takes ([\d.]+))?: (.+)", rest)
    assert match, rest
    names = [name.strip().split("@") for name in match[4].split("; ")]
    draft.thread.setdefault("folds", []).append(
        Fold(
            period=int(match[1]),
            times=int(match[2]),
            bytes_per_period=float(match[3]) if match[3] else None,
            functions=tuple(name[0] for name in names),
            modules=tuple(name[1] if len(name) > 1 else None for name in names),
        )
    )


def _python_frame(rest: str, index: int) -> Frame:
    function, _, place = rest.partition(" ")
    file, _, line = place.rpartition(":")
    return Frame(index=index, kind="python", function=function, source=file, line=int(line))


def _fold_python(draft: _Draft, rest: str) -> None:
    fold = draft.thread["folds"].pop()
    parts = {name: getattr(fold, name) for name in fold.__struct_fields__}
    parts["python"] = (*fold.python, _python_frame(rest, 0))
    draft.thread["folds"].append(Fold(**parts))


def _python(draft: _Draft, rest: str) -> None:
    frames = draft.thread.setdefault("python", [])
    if rest != "none":
        frames.append(_python_frame(rest, len(frames)))


def _cpp(draft: _Draft, rest: str) -> None:
    kind, _, what = rest.partition(": ")
    draft.crash["cpp_exception"] = CppException(type=kind, what=what or None)


def _op(draft: _Draft, rest: str) -> None:
    name, _, kernel = rest.partition(" kernel ")
    draft.crash["operation"] = Operation(op=name, kernel=kernel or None, framework="tensorflow")


def _limit(draft: _Draft, rest: str) -> None:
    name, value = rest.split()
    draft.limits[name] = amount(value)


def _gap(draft: _Draft, rest: str) -> None:
    part, _, why = rest.partition(": ")
    draft.gaps.append(Gap(part=part, why=why))


_READERS = {
    "pid": lambda draft, rest: draft.crash.update(pid=int(rest)),
    "exit": _exit,
    "signal": _signal,
    "exception": _exception,
    "thrown": lambda draft, rest: _thrown(draft, rest, "exception record"),
    "thrown-before": lambda draft, rest: _thrown(draft, rest, "first-chance exception record"),
    "reserve": lambda draft, rest: draft.crash.update(stack_reserve=amount(rest)),
    "program": lambda draft, rest: draft.crash.update(environment=Environment(platform="Windows", executable=rest)),
    "message": _message,
    "sent-by": _sent_by,
    "asked": _asked,
    "mapping": _mapping,
    "at": _at,
    "operand": _operand,
    "feature": _feature,
    "register": lambda draft, rest: draft.crash.update(registers=_values(rest)),
    "thread": _start_thread,
    "stack": _stack,
    "frame": _frame,
    "frames": lambda draft, rest: draft.thread.update(frames_total=int(rest)),
    "fold": _fold,
    "fold-python": _fold_python,
    "largest": _largest,
    "python": _python,
    "log": lambda draft, rest: draft.log.append(rest),
    "abort": lambda draft, rest: draft.crash.update(abort_message=rest),
    "cpp": _cpp,
    "op": _op,
    "limit": _limit,
    "below": lambda draft, rest: draft.fault.update(mapping_below=_range(rest)),
    "truncated": lambda draft, rest: draft.fault.update(truncated_from=_range(rest)),
    "heap": lambda draft, rest: draft.crash.update(heaps=(*draft.crash.get("heaps", ()), _range(rest))),
    "file": _file,
    "waits": _waits,
    "gil": lambda draft, rest: draft.thread.update(holds_gil=True),
    "code": _code,
    "module": _module,
    "library": _library,
    "memory": _memory,
    "kernel": lambda draft, rest: draft.kernel.append(rest),
    "forked-from": lambda draft, rest: draft.crash.update(forked_from_threads=int(rest)),
    "gap": _gap,
}
