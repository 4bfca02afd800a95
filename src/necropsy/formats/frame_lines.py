"""Lines in which handlers, libraries and runtimes print one frame each: what the readers of such stacks share."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from necropsy.formats import backtrace
from necropsy.lazy_re import regex
from necropsy.model import Address, Fault, Frame

_SYMBOLS = regex(
    r"(?P<module>[^\s()\[\]][^()\[\]]{0,500}?)(?:\((?P<symbol>[^()+]{0,1500}(?:\([^()]{0,300}\)[^()+]{0,300})?)?"
    r"(?:\+(?P<offset>0x[0-9a-f]+))?\))? ?\[(?P<address>0x[0-9a-f]{1,16})\](?: (?P<demangled>\S.*))?$"
)
_NUMBER = regex(r"(?:\[bt\] )?(?:frame )?(?:\(\d{1,4}\)|\[ {0,2}\d{1,4}\]|#?\d{1,4}[:#]?)\s+")
_AT = regex(
    r"(?:^|[:\s)])@ {1,20}(?:0x)?(?P<address>[0-9a-f]{1,16})(?: {1,12}(?P<size>\d{1,9}|\(unknown\))(?= ))? {1,4}"
    r"(?P<rest>\S.*)$"
)
MORE = regex(r"@ \.\.\. and at least \d+ more frames|^\s*\.\.\.$")
_TRAMPOLINE = regex(
    r"(?:__restore_rt|killpg|_?_?sigaction|__sigaction|__libc_sigaction|funlockfile|_sigtramp|__kernel_rt_sigreturn"
    r"|__pthread_barrier_\w+|__nptl_\w+|<signal handler called>)$"
)
_SYSTEM = regex(r"lib(?:c|pthread|c-\d[\d.]*|pthread-\d[\d.]*)[.-]")
_HANDLER = regex(
    r"(?:lib(?:ucs|ucs_signal|[Ss]eg[Ff]ault)\.|ucs_|google::|absl::.*[Ff]ailureSignal|folly::symbolizer::|backward::"
    r"|paddle::framework::SignalHandle|paddle::platform::GetCurrentTraceBack|c10::\(anonymous namespace\)::|llvm::sys::"
    r"|SignalsHandler|PrintStackTraceSignalHandler|torch::crash_handler|mxnet::SegfaultLogger|dmlc::|signalHandler"
    r"|sigdie|ijl_|jl_|segv_handler)"
)


def symbols_line(text: str, count: int) -> Frame | None:
    """``/lib/libc.so.6(abort+0x148)[0x7f0c05f13448]``, as glibc's backtrace_symbols prints it, behind any number."""
    text = text.strip()
    number = _NUMBER.match(text)
    match = _SYMBOLS.match(text, number.end() if number else 0)
    if match is None or not _is_path(match["module"]):
        return None
    symbol = match["demangled"] or match["symbol"]
    return backtrace.native(
        count,
        symbol or None,
        module=match["module"],
        address=backtrace.hexadecimal(match["address"]),
        offset=None if match["symbol"] else backtrace.hexadecimal(match["offset"]),
    )


def _is_path(text: str) -> bool:
    """A file of code: a path, a shared library, or a program's bare name."""
    return "/" in text or ".so" in text or re.fullmatch(r"[\w.+-]{1,64}", text) is not None


def at_line(text: str, count: int) -> Frame | None:
    """``    @     0x7f605f71d314  288  symbol()``: glog, absl, folly; the middle column is the frame's size."""
    match = _AT.search(text)
    if match is None:
        return None
    if int(match["address"], 16) == 0 and count:
        return None  # how some stacks end
    size = match["size"]
    frame = backtrace.native(count, match["rest"], address=int(match["address"], 16))
    if size is None or not size.isdigit():
        return frame
    return msgspec.structs.replace(frame, stack_bytes=int(size))


def without_handler(frames: Sequence[Frame], counter: Frame | None = None) -> list[Frame]:
    """The program's frames, without the handler's that printed them; ``counter`` is where the signal struck.

    A handler's stack begins with itself and the kernel's trampoline; the faulting function follows, if it was found.
    """
    known = counter is not None and bool(counter.address)
    rest = list(frames)
    hit = [
        at for at, frame in enumerate(rest[:12]) if counter is not None and known and frame.address == counter.address
    ]
    named = [at for at, frame in enumerate(rest[:12]) if _is_trampoline(frame)]
    if hit:
        rest = rest[hit[0] :]
    elif named:
        rest = rest[named[0] + 1 :]
    else:
        while rest and _is_handler(rest[0]):
            rest.pop(0)
        # The trampoline has no name in a stripped C library; where not even the program counter is known, the handler
        # itself has none either.
        nameless = next((at for at, frame in enumerate(rest) if frame.function is not None), len(rest))
        system = [at for at, frame in enumerate(rest[:nameless]) if _is_system(frame)]
        if system:
            rest = rest[system[0] + 1 :]
        elif counter is not None:
            rest = rest[min(nameless, 1 if known else 2) :]
    if counter is not None and known and not hit:
        rest.insert(0, counter)
    return [msgspec.structs.replace(frame, index=index) for index, frame in enumerate(rest)]


def _is_trampoline(frame: Frame) -> bool:
    return bool(frame.function and _TRAMPOLINE.match(frame.function.split("(", 1)[0]))


def _is_handler(frame: Frame) -> bool:
    name, module = frame.function or "", (frame.module or "").rsplit("/", 1)[-1]
    return bool(_HANDLER.match(name) or _HANDLER.match(module))


def _is_system(frame: Frame) -> bool:
    return frame.module is not None and _SYSTEM.match(frame.module.rsplit("/", 1)[-1]) is not None


def fault(
    signal: str,
    *,
    code: str | None = None,
    address: int | None = None,
    sender: int | None = None,
    pid: int | None = None,
) -> Fault:
    """What a handler says of the signal that it caught."""
    itself: bool | None = None
    if code == "SI_TKILL" or (sender is not None and sender == pid):
        itself = True
    elif code == "SI_USER" and signal != "SIGABRT":
        itself = False
    return Fault(
        signal=signal,
        code=code,
        address=None if address is None else Address(address),
        sender=sender,
        sent_by_itself=itself,
        handled_first=True,
    )
