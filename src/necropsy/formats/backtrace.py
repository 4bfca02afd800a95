"""What the readers of printed backtraces share.

The frames of one thread become a ``Thread`` of the model: recursion folded, the first and last 256 frames kept, the
depth taken from the frames' numbers even where the text leaves out the middle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from necropsy.formats.demangle_itanium import readable
from necropsy.formats.fold import fold
from necropsy.lazy_re import regex
from necropsy.model import Address, Fold, Frame, Gap, Stack, Thread, Wait

KEPT = 256
"""Frames kept of each end of a stack, as of a live process."""
LONGEST = 2048
"""Characters of a line that are looked at; a frame's name may have hundreds, its arguments say little."""
NEAR = 64 * 1024
"""Bytes. An address so near to the stack pointer lies on the stack, or in the guard below it."""

BEFORE = 64
"""Lines that a reader looks at without having found anything that is a death's: the triggers further on ask again."""

_FOLDS = 8
_LARGEST_FRAME = 1 << 30
_RECURSES = 8
"""Times. Inlined calls, and a few levels of ordinary code, repeat less often."""
_HIDDEN = {ord("<"): "\1", ord(">"): "\2", ord("("): "\3", ord(")"): "\4"}
_SHOWN = str.maketrans({hidden: chr(plain) for plain, hidden in _HIDDEN.items()})
_OPERATOR = regex(r"operator ?(?:\(\)|[-<=>]{1,3})")
_POINTER = regex(
    r"(?:^|[(,] ?)(?P<name>[A-Za-z_]\w*)=(?:(?P=name)@entry=)?(?:\([^()=]{1,200}\) ?)?(?P<value>0x[0-9a-f]+)"
)


def native(
    index: int,
    function: str | None,
    *,
    module: str | None = None,
    source: str | None = None,
    line: int | None = None,
    address: int | None = None,
    offset: int | None = None,
    arguments: dict[str, str] | None = None,
) -> Frame:
    """A native frame that was read from text; what represents an unknown name (``??``, ``n/a``) is unknown."""
    return Frame(
        index=index,
        kind="native",
        function=None if function is None or _is_no_name(function) else readable(function.strip()),
        module=None if module is None or _is_no_name(module) else module.strip(),
        module_offset=None if offset is None else Address(offset),
        address=None if address is None else Address(address),
        source=source,
        line=line,
        found_by="text",
        locals=arguments or None,
    )


def python(index: int, function: str | None, file: str | None, line: int | None) -> Frame:
    """A frame of Python that was read from text."""
    return Frame(index=index, kind="python", function=function, source=file, line=line, found_by="text")


def _is_no_name(text: str) -> bool:
    return text.strip() in {"", "??", "???", "n/a", "(unknown)", "<null>", "<unknown>", "<unknown module>", "[unknown]"}


# ---------------------------------------------------------------- names


@dataclass(frozen=True)
class BacktraceCall:
    """``ns::f<int> (x=1, p=0x0)``: the function, and what is in the brackets."""

    function: str
    arguments: str | None


def call(text: str, *, spaced: bool = True) -> BacktraceCall:
    """The function of a call, and its arguments; gdb writes a space between them (``spaced``).

    Brackets of template arguments, ``(anonymous namespace)`` and, with ``spaced``, of a demangled name are passed over.
    """
    hidden = text.replace("(anonymous namespace)", "\3anonymous namespace\4")
    hidden = _OPERATOR.sub(lambda match: match[0].translate(_HIDDEN), hidden)
    depth = 0
    for at, character in enumerate(hidden):
        if character == "(" and depth == 0 and at and (not spaced or hidden[at - 1] == " "):
            return BacktraceCall(hidden[:at].translate(_SHOWN).strip(), _inside(hidden[at:]).translate(_SHOWN))
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth = max(0, depth - 1)
    return BacktraceCall(text.strip(), None)


def _inside(text: str) -> str:
    end = text.rfind(")")
    return text[1:end] if end > 0 else text[1:]


def pointers(arguments: str | None) -> dict[str, str]:
    """The arguments that were printed as addresses (``this=0x0``), by name. No others: they may hold secrets."""
    if not arguments:
        return {}
    found = _POINTER.finditer(arguments[:LONGEST])
    return {match["name"]: match["value"] for match, _ in zip(found, range(16), strict=False)}


def bare(text: str) -> str:
    """A line without its indentation, what mails and issues quote with, and the white space at its end."""
    return text[:LONGEST].lstrip(" \t>|").rstrip()


def number(text: str | None) -> int | None:
    """A number in decimal or hex (``(nil)`` is 0); None where there is none."""
    if text is None:
        return None
    text = text.strip()
    if text == "(nil)":
        return 0
    try:
        return int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None


def hexadecimal(text: str | None) -> int | None:
    """A number in hex, with or without ``0x``; None where there is none, or where it has more than 64 bits."""
    try:
        value = int(text or "", 16)
    except ValueError:
        return None
    return value if 0 <= value < 1 << 64 else None


# ---------------------------------------------------------------- threads


def thread(
    frames: Sequence[Frame],
    *,
    tid: int | None = None,
    name: str | None = None,
    crashed: bool = False,
    python: tuple[Frame, ...] | None = None,
    cut: bool = False,
    stack: Stack | None = None,
    holds_gil: bool | None = None,
) -> Thread:
    """The thread of these frames, innermost first, ``index`` as printed; ``cut``: the text says that more followed."""
    first = frames[0].index if frames else 0
    total = frames[-1].index + 1 if frames else 0
    found = folds(frames)
    cut = cut or any(
        (one.start or 0) + one.period * (one.times + 1) > total and frames[-1].function in one.functions
        for one in found
        if one.times >= _RECURSES
    )
    return Thread(
        tid=tid,
        name=name,
        crashed=crashed,
        python=python,
        frames=tuple(frames) if len(frames) <= 2 * KEPT else (*frames[:KEPT], *frames[-KEPT:]),
        frames_total=None if cut or first else total,
        complete=(False if cut else None) if frames else None,
        folds=found,
        stack=stack,
        waits=None if crashed else waits(frames),
        holds_gil=holds_gil,
    )


def folds(frames: Sequence[Frame]) -> tuple[Fold, ...]:
    """The recursions in ``frames``, largest first.

    One that reaches to where the text leaves frames out is taken to fill the gap: nothing but a recursion has so many.
    """
    found: list[Fold] = []
    open_: Fold | None = None
    for start, end in _stretches(frames):
        part = frames[start:end]
        left_out = frames[end].index - frames[end - 1].index - 1 if end < len(frames) else 0
        before, open_ = open_, None
        for run in fold([_key(frame) for frame in part])[:_FOLDS]:
            unit = [part[index] for index in run.unit]
            reaches = run.start + run.frames + run.period > len(part)
            one = Fold(
                period=run.period,
                times=run.times + (left_out // run.period if reaches else 0),
                functions=tuple(frame.function or _nameless(frame) for frame in unit),
                start=part[run.start].index,
                modules=tuple(frame.module for frame in unit),
            )
            if before is not None and run.start < run.period and _same_cycle(before, one):
                found.remove(before)
                one = msgspec.structs.replace(before, times=before.times + one.times)
            found.append(one)
            open_ = one if reaches else open_
    return tuple(sorted(found, key=lambda one: (-one.period * one.times, one.start))[:_FOLDS])


def _same_cycle(one: Fold, other: Fold) -> bool:
    twice = one.functions * 2
    return one.period == other.period and any(
        twice[at : at + other.period] == other.functions for at in range(one.period)
    )


def _stretches(frames: Sequence[Frame]) -> list[tuple[int, int]]:
    """The stretches in which the frames' numbers have no hole, as pairs of positions."""
    breaks = [at for at in range(1, len(frames)) if frames[at].index != frames[at - 1].index + 1]
    return list(zip([0, *breaks], [*breaks, len(frames)], strict=True)) if frames else []


def _key(frame: Frame) -> object:
    # The same function is printed with a module or without, as the debugger knows its source or not.
    return frame.function or (frame.module, frame.address)


def _nameless(frame: Frame) -> str:
    return f"{frame.module}+{frame.module_offset or frame.address or 0:#x}" if frame.module else "[generated-code]"


def gaps(one: Thread) -> tuple[Gap, ...]:
    """What the text leaves out of a thread's frames."""
    frames = one.frames or ()
    if one.complete is False:
        return (
            Gap(part="frames", why=f"the text ends after frame {frames[-1].index} of the stack" if frames else "cut"),
        )
    if one.frames_total is None or one.frames_total <= len(frames) or len(frames) == 2 * KEPT:
        return ()
    return (Gap(part="frames", why=f"the text shows {len(frames):,} of {one.frames_total:,} frames"),)


def joined(head: Thread, tail: Thread) -> Thread:
    """One thread of the two ends of its stack, which a text shows apart; ``head`` where they do not belong together."""
    first, last = head.frames or (), tail.frames or ()
    if not first or not last or first[-1].index >= last[0].index:
        return head
    whole = thread((*first, *last), tid=head.tid, name=head.name, crashed=head.crashed, python=head.python)
    return msgspec.structs.replace(whole, stack=head.stack, holds_gil=head.holds_gil)


def by_stack(registers: Mapping[str, int], address: int | None) -> Stack | None:
    """Stack of a thread that faulted on ``address``: used up if that is near the stack pointer."""
    pointer = next((registers[name] for name in ("rsp", "sp", "esp") if name in registers), None)
    if pointer is None:
        return None
    base = next((registers[name] for name in ("rbp", "fp", "x29", "ebp") if name in registers), pointer)
    high = base if pointer <= base < pointer + _LARGEST_FRAME else pointer
    full = address is not None and pointer - NEAR < address < high + NEAR and pointer > NEAR
    return Stack(pointer=Address(pointer), guard_hit=True if full else None)


# ---------------------------------------------------------------- handlers and waiting


_TRAMPOLINE = regex(r"__restore_rt$|_sigtramp$|__kernel_rt_sigreturn$|<signal handler called>$")


def below_handler(frames: Sequence[Frame]) -> tuple[list[Frame], bool]:
    """The frames that were interrupted by a signal whose handler stands above them, and whether there is one."""
    caught = [at for at, frame in enumerate(frames[:64]) if frame.function and _TRAMPOLINE.match(frame.function)]
    if not caught:
        return list(frames), False
    rest = frames[caught[-1] + 1 :]
    first = rest[0].index if rest else 0
    return [msgspec.structs.replace(frame, index=frame.index - first) for frame in rest], True


_WAITS = (
    (
        "futex",
        regex(
            r"_*(?:lll_lock_wait\w*|futex\w*|GI___futex\w*|(?:GI_)*_*pthread_cond_(?:timed)?wait\w*|new_sem_wait\w*)$"
        ),
    ),
    ("nanosleep", regex(r"_*(?:GI_)?_*(?:clock_)?nanosleep\w*$")),
    ("poll", regex(r"_*(?:GI_)?_*p?poll$")),
    ("epoll_wait", regex(r"_*(?:GI_)?_*epoll_p?wait\w*$")),
    ("select", regex(r"_*(?:GI_)?_*p?select$")),
    ("wait4", regex(r"_*(?:GI_)?_*(?:wait4|waitpid|waitid)$")),
    ("accept", regex(r"_*(?:libc_)?accept4?$")),
    ("recvfrom", regex(r"_*(?:libc_)?recv(?:from|msg)?$")),
    ("read", regex(r"_*(?:GI_)*_*(?:libc_)?read$")),
    ("psynch_mutexwait", regex(r"__psynch_(?:mutex|cv|rw_\w+)wait$|__ulock_wait2?$|semaphore_\w*wait\w*_trap$")),
    ("mach_msg", regex(r"mach_msg2?_trap$")),
    ("workq_kernreturn", regex(r"__workq_kernreturn$")),
    ("kevent", regex(r"kevent\w*$")),
)
_MUTEX = ("mutex", "futex", "futex_word", "lock")


def waits(frames: Sequence[Frame]) -> Wait | None:
    """The system call that a thread waits in, by its innermost functions; None where it was running."""
    for frame in frames[:3]:
        if frame.function is None:
            continue
        name = frame.function.split("@", 1)[0].split("(", 1)[0]
        call_ = next((call_ for call_, pattern in _WAITS if pattern.match(name)), None)
        if call_ is None:
            continue
        given = (number(one.locals[name]) for one in frames[:4] if one.locals for name in _MUTEX if name in one.locals)
        address = next(given, None) if call_ == "futex" else None
        return Wait(
            call=call_,
            on=None if address is None else f"the lock at {address:#x}",
            address=None if address is None else Address(address),
        )
    return None
