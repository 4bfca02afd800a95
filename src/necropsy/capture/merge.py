"""Merges codes and texts about one death into a crash.

What no input has is a gap. Of several deaths (a worker's, then the launcher's) the first native one is taken: what
follows it is its consequence. Where the text proves that it tells of several, only what is about that one is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from necropsy.capture.separate_deaths import separated
from necropsy.formats import backtrace, contradictions
from necropsy.formats.exit_phrases import dead
from necropsy.formats.exit_status import ExitCode, ExitReading, exit_of
from necropsy.formats.text_reports import TextReport
from necropsy.model import Contradiction, Crash, Exit, Fault, Gap, Message, Thread

if TYPE_CHECKING:
    from necropsy.formats.log import Digest

ONLY_A_NUMBER = "only the exit status is known"
NOT_IN_TEXT = "not in the text that was given"
_PARTS = ("fault", "threads", "modules", "log_tail", "messages", "environment")
# Taken from the first piece that has them; what needs a choice is chosen below.
_PLAIN = (
    "pid",
    "at",
    "registers",
    "instruction",
    "modules",
    "libraries",
    "abort_message",
    "cpp_exception",
    "operation",
    "environment",
    "memory_events",
    "memory_cgroup",
    "memory_limit",
)


@dataclass(frozen=True)
class MergedCrash:
    """One death as it was told: the crash, and where the inputs contradict each other."""

    crash: Crash
    contradictions: tuple[Contradiction, ...]
    one_of: str | None = None
    """Where the text tells of several deaths: a sentence that says which of them this is."""


def from_reading(code: ExitCode, reading: ExitReading | None = None) -> Crash:
    """The crash that one reading of a code (the likeliest by default) speaks of."""
    return Crash(
        exit=exit_of(reading or code.best, code.spelled),
        gaps=tuple(Gap(part=part, why=ONLY_A_NUMBER) for part in _PARTS),
    )


def told(codes: Sequence[ExitCode], digests: Sequence[Digest] = ()) -> MergedCrash:
    """The death that ``codes`` and the texts speak of, each of them evidence of it."""
    given = [TextReport("code", 0, 0, dead(exit_of(code.best, code.spelled))) for code in codes]
    digests, one_of = _about_one(given, digests)
    pieces = _of_one_death([*given, *(piece for digest in digests for piece in digest.pieces)])
    fields: dict[str, Any] = {name: _first(getattr(piece.crash, name) for piece in pieces) for name in _PLAIN}
    exits = [piece.crash.exit for piece in (*given, *pieces) if piece.crash.exit is not None]
    end, threads = _ending(exits), _threads(pieces)
    crash = Crash(
        exit=end,
        fault=_fault(pieces) or _of_end(end, threads),
        threads=threads,
        messages=_messages(digests, pieces) if digests else None,
        log_tail=next((digest.tail for digest in digests if digest.tail), None),
        **fields,
    )
    why = NOT_IN_TEXT if digests else ONLY_A_NUMBER
    gaps = [Gap(part=part, why=why) for part in _PARTS if getattr(crash, part) is None]
    gaps += [Gap(part="log", why=one_of)] if one_of is not None else []
    gaps += [gap for digest in digests for gap in digest.gaps]
    gaps += [gap for piece in pieces for gap in piece.crash.gaps if getattr(crash, gap.part, None) is None]
    found = (*contradictions.of_codes(codes), *contradictions.of_exits(exits))
    whole = msgspec.structs.replace(crash, gaps=tuple(dict.fromkeys(gaps)))
    return MergedCrash(whole, tuple(dict.fromkeys(found)), one_of)


# ---------------------------------------------------------------- one death among several


def _about_one(given: Sequence[TextReport], digests: Sequence[Digest]) -> tuple[Sequence[Digest], str | None]:
    """Of one text that tells of several deaths, what is about the most informative of them."""
    if len(digests) != 1:
        return digests, None
    (digest,) = digests
    deaths = separated(digest.messages, digest.pieces, digest.writers)
    if len(deaths) < _SEVERAL:
        return digests, None
    ends = {signal for one in given if (signal := _signal(one.crash)) is not None}
    meant = [one for one in deaths if one.signal in ends] or deaths
    main = _of_one_death([piece for one in meant for piece in one.pieces])[:1]
    chosen = (
        next((one for one in meant if any(piece is main[0] for piece in one.pieces)), meant[0]) if main else meant[0]
    )
    least = "at least " if len(digest.gaps) else ""
    one_of = (
        f"the text tells of {least}{len(deaths)} deaths; this is the one at line {chosen.first}, and"
        " `necropsy triage FILE` lists all"
    )
    ends_before = max((one.last for one in deaths if one.last < chosen.first), default=0)
    only = replace(
        digest,
        messages=tuple(sorted(chosen.messages, key=lambda one: one.line or 0)),
        pieces=tuple(sorted(chosen.pieces, key=lambda one: one.first)),
        tail=_between(digest, ends_before, chosen.last if chosen is not deaths[-1] else digest.lines),
    )
    return (only,), one_of


_SEVERAL = 2


def _between(digest: Digest, before: int, last: int) -> str:
    """The lines of its tail behind line ``before``, up to ``last``."""
    lines = digest.tail.split("\n")
    first = digest.lines - len(lines) + 1
    return "\n".join(lines[max(0, before + 1 - first) : max(0, last + 1 - first)])


def _of_one_death(pieces: Sequence[TextReport]) -> list[TextReport]:
    """The pieces that may be about the same death as the most informative one, which comes first."""
    natives = [piece for piece in pieces if _is_native(piece.crash)]
    if not natives:
        return list(pieces)
    main = max(
        natives,
        key=lambda piece: (
            _weight(piece.crash),
            sum(_same_process(piece, other) for other in pieces),
            _is_python(piece.crash),
            -pieces.index(piece),
        ),
    )
    return [main, *(piece for piece in pieces if piece is not main and _fits(piece.crash, main.crash))]


def _weight(crash: Crash) -> tuple[bool, bool, bool, int]:
    thread = crash.crashed_thread
    frames = thread.frames_total or len(thread.frames or ()) if thread else 0
    # Who is ended by SIGTERM or SIGKILL is mostly ended because another has crashed.
    return crash.fault is not None, _signal(crash) not in _SENT, frames > 0, min(frames, 8)


_SENT = frozenset({"SIGTERM", "SIGKILL", "SIGINT", "SIGHUP", "SIGQUIT"})


def _is_native(crash: Crash) -> bool:
    return crash.fault is not None or crash.crashed_thread is not None or _native(crash.exit)


def _same_process(one: TextReport, other: TextReport) -> bool:
    """Another kind of text about the same process: of several that died, that one is meant."""
    return one.kind != other.kind and one.crash.pid is not None and one.crash.pid == other.crash.pid


def _is_python(crash: Crash) -> bool:
    """It calls itself Python: the kernel's log has the deaths of the whole machine."""
    thread = crash.crashed_thread
    names = [crash.environment.executable if crash.environment else None, thread.name if thread else None]
    return any("python" in name.lower() for name in names if name)


def _fits(one: Crash, main: Crash) -> bool:
    if one.pid is not None and main.pid is not None and one.pid != main.pid:
        return False
    first, second = _signal(one), _signal(main)
    return first is None or second is None or first == second


def _signal(crash: Crash) -> str | None:
    if crash.fault is not None:
        return crash.fault.signal
    return crash.exit.signal if crash.exit is not None else None


# ---------------------------------------------------------------- the parts


def _first(values: Iterable[object]) -> object:
    return next((value for value in values if value is not None), None)


def _fault(pieces: Sequence[TextReport]) -> Fault | None:
    """The first fault, completed by what the other pieces say of the same."""
    faults = [piece.crash.fault for piece in pieces if piece.crash.fault is not None]
    if not faults:
        return None
    fault = faults[0]
    for other in faults[1:]:
        missing = {name: getattr(other, name) for name in ("code", "address", "access") if getattr(fault, name) is None}
        if other.signal == fault.signal:
            fault = msgspec.structs.replace(fault, **missing)
    return fault


def _of_end(end: Exit | None, threads: tuple[Thread, ...] | None) -> Fault | None:
    """The exit's signal as the fault of a stack that was shown without one: a backtrace, and then a code."""
    if end is None or end.kind != "signaled" or end.signal not in _RAISED_BY_CODE:
        return None
    shown = any(thread.crashed and thread.frames for thread in threads or ())
    return Fault(signal=end.signal) if shown else None


_RAISED_BY_CODE = frozenset({"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP"})


def _threads(pieces: Sequence[TextReport]) -> tuple[Thread, ...] | None:
    """The threads of the piece that shows most of the crashed thread, else most at all."""
    told = [piece for piece in pieces if piece.crash.threads]
    if not told:
        return None
    best = max(told, key=lambda piece: _shown(piece.crash))
    threads = best.crash.threads or ()
    # The two ends of a very deep stack, with what lies between them left out of the text or of what was kept of it.
    ends = [piece for piece in told if piece is not best and piece.kind == best.kind and piece.first > best.last]
    head = threads[0] if len(threads) == 1 else best.crash.crashed_thread
    if head is None:
        return threads
    whole = head
    for end in ends:
        whole = backtrace.joined(whole, (end.crash.threads or ())[0])
    if whole.python is None:
        # A debugger shows the native stack, faulthandler the one of Python.
        whole = msgspec.structs.replace(
            whole, python=_first(one.crash.crashed_thread.python for one in told if one.crash.crashed_thread)
        )
    return tuple(whole if one is head else one for one in threads)


def _shown(crash: Crash) -> tuple[bool, bool, bool, int]:
    thread = crash.crashed_thread
    shown = (thread,) if thread else crash.threads or ()
    native = any(one.frames for one in shown)
    # Where a text shows the two ends of a stack apart, the one at which it died says more.
    innermost = any(one.frames and one.frames[0].index == 0 for one in shown)
    much = sum(one.frames_total or len(one.frames or one.python or ()) for one in shown)
    return thread is not None, native, innermost, much


def _messages(digests: Sequence[Digest], pieces: Sequence[TextReport]) -> tuple[Message, ...]:
    """The known messages of all texts; of two that read the same line, the piece's knows more of what follows."""
    read = [message for piece in pieces for message in piece.crash.messages or ()]
    places = {(message.kind, message.line) for message in read}
    found = [
        message
        for digest in digests
        for message in digest.messages
        if (message.kind, message.line) not in places and not _is_quoted(message, digest)
    ]
    found += read
    # Lines are counted in each text anew: with several texts the order in which they were given stays.
    return tuple(sorted(found, key=lambda one: one.line or 0) if len(digests) == 1 else found)


def _is_quoted(message: Message, digest: Digest) -> bool:
    """The message is in a document that a piece has read as a whole, a crash report in JSON."""
    documents = (piece for piece in digest.pieces if piece.whole)
    return message.line is not None and any(one.first <= message.line <= one.last for one in documents)


def _ending(exits: Sequence[Exit]) -> Exit | None:
    """The first native end, else the first failure, else the first; of equal ones the one that says more."""
    for wanted in (_crashed, _native, _failed):
        if found := next((one for one in exits if wanted(one)), None):
            return next((one for one in exits if _says_more(one, found)), found)
    return exits[0] if exits else None


def _says_more(one: Exit, than: Exit) -> bool:
    """The same status with its fast-fail subcode: Windows reports the two in different places."""
    if one.ntstatus is None or than.ntstatus is None or than.ntstatus.fast_fail is not None:
        return False
    return one.ntstatus.value == than.ntstatus.value and one.ntstatus.fast_fail is not None


def _native(end: Exit | None) -> bool:
    if end is None:
        return False
    return end.kind == "signaled" or end.ntstatus is not None or (end.kind == "exited" and (end.code or 0) > 128)


def _crashed(end: Exit) -> bool:
    return _native(end) and end.signal not in _SENT


def _failed(end: Exit) -> bool:
    return end.kind != "exited" or bool(end.code)
