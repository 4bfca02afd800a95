"""Why a stack ran out: a recursion, a frame that is too large, or a stack that is too small.

The decision is about the mechanism, in this order:

- **Recursion**: one group of functions repeats and takes at least half of what lies on the stack.
- **Large frame**: one single frame takes half of the stack or more, and at least 1 MiB, which is what a Windows thread
  has for everything. A smaller one would have found room in any main thread.
- **Small stack**: everything that lay on it, the last frame included, fits into the 8 MiB that a thread has by default,
  and nothing repeats often enough to blame it: the same code lives elsewhere.

Where the mechanism is a recursion but its levels are few (less than 200) and the stack is small, the stack is the
oddity, not the code. On Windows every stack is small beside Linux' 8 MiB: there a recursion that is deep is rivaled by
a small stack only on a thread that has less than the program's threads have by default.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from necropsy.frame_filter import file_name, is_interpreter, noise
from necropsy.model import Confidence, Crash, Evidence, Fold, Frame, Stack, Thread
from necropsy.predicates import (
    NEAR_NULL,
    bare_name,
    died_by,
    is_main,
    messages,
    name_of,
    on_windows,
    quote,
    real_fault,
    stack_exhausted,
)
from necropsy.rule import Found
from necropsy.rules.culprit import recursive_function
from necropsy.rules.requested import asked_at_once
from necropsy.rules.wording import count, size

DEFAULT = 8 << 20
"""Bytes: what a main thread and a thread that asks for nothing have on Linux with glibc (RLIMIT_STACK)."""
LARGE = 1 << 20
"""Bytes: a frame of this size leaves no room for anything else in a Windows thread (1 MiB) or a macOS one (512 KiB)."""
SMALL = DEFAULT - (1 << 20)
"""Bytes: a stack below this was made smaller than the default on purpose; the default's odd pages are not."""
WINDOWS = 1 << 20
"""Bytes: what Microsoft's linker lets a program ask for unless told otherwise (/STACK)."""
DEEP = 200
"""Levels: ordinary code recurses less deep than this."""
MANY = 100
"""Frames: less than this on a full stack is worth no word."""

Mechanism = Literal["recursion", "large-frame", "small-stack"]
Driver = Literal["native", "python", "mixed", "destructor"]

_DESTROYS = re.compile(
    r"::~|^~|(?:^|::)(?:_Destroy\w*|_M_release\w*|_M_dispose\w*|_M_destroy\w*|destroy_at|__destroy\w*|default_delete.*|"
    r"unique_ptr.*|_Sp_counted\w*.*|reset)$|(?:^|_)(?:dealloc|Dealloc)$|_Py_Dealloc"
)


@dataclass(frozen=True)
class Overflow:
    """An exhausted stack: what filled it, as far as it is known."""

    crash: Crash
    thread: Thread
    stack: Stack
    mechanism: Mechanism
    rivals: dict[Mechanism, Confidence]
    """How sure each mechanism is; one that is not in it does not fit."""
    fold: Fold | None
    largest: Frame | None
    asked: int | None = None
    """Bytes that one call asked for at least, where no frame is known to be so large."""

    @property
    def size(self) -> int | None:
        """Bytes that this stack may grow to."""
        return self.stack.size

    @property
    def levels(self) -> int | None:
        """How deep the recursion was when it died."""
        return self.fold.times if self.fold else None

    @property
    def per_level(self) -> float | None:
        """Bytes of stack that one level takes."""
        return self.fold.bytes_per_period if self.fold else None

    @property
    def depth_at_end(self) -> int | None:
        """The depth at which a stack of this size is used up."""
        return int(self.size / self.per_level) if self.size and self.per_level else None

    @property
    def main(self) -> bool:
        """The stack is the main thread's."""
        return is_main(self.thread, self.crash) and not self.stack.is_alternate

    @property
    def default(self) -> int:
        """Bytes that a thread has which names no size: on Windows the executable's header decides."""
        return (self.crash.stack_reserve or WINDOWS) if on_windows(self.crash) else DEFAULT

    @property
    def where(self) -> str:
        """Whose stack, in words: ``the 8 MiB stack of the main thread``."""
        what = f"{size(self.size).replace(' bytes', '-byte')} " if self.size else ""
        if self.stack.is_alternate:
            return f"the {what}stack that {name_of(self.thread, self.crash)} had been moved to"
        return f"the {what}stack of {name_of(self.thread, self.crash)}"

    @property
    def need(self) -> int:
        """Bytes that lay on the stack or were asked for; what was not reached any more is not in it."""
        return max(self.stack.used or 0, self.asked or 0, (self.largest.stack_bytes or 0) if self.largest else 0)


def overflow_of(crash: Crash) -> Overflow | None:
    """The exhausted stack of the crashed thread, and why it is; None where it was not exhausted."""
    thread = crash.crashed_thread
    if thread is None:
        return None
    if thread.stack is None or not stack_exhausted(crash):
        return _by_depth(crash, thread)
    fold = _heaviest(thread)
    largest = _largest(thread)
    asked = asked_at_once(crash, thread.stack, largest)
    rivals = _rivals(thread, thread.stack, fold, largest, asked)
    if on_windows(crash) and rivals.get("recursion") == "certain" and _is_default(crash, thread.stack):
        rivals.pop("small-stack", None)
    if messages(crash, "excessive-recursion") and rivals.get("recursion") != "certain":
        # macOS has looked at the whole stack, of which its report shows both ends.
        rivals = {"recursion": "likely", **{name: "possible" for name in rivals if name != "recursion"}}
    best = min(rivals, key=lambda mechanism: ("certain", "likely", "possible").index(rivals[mechanism]))
    return Overflow(crash, thread, thread.stack, best, rivals, fold, largest, asked)


def _by_depth(crash: Crash, thread: Thread) -> Overflow | None:
    """A recursion whose depth a text gives, if the stack itself is unknown.

    A text shows no mappings, but code that is thousands of calls deep and then touches unmapped memory has almost
    certainly used up its stack.
    """
    fault, fold = crash.fault, _heaviest(thread)
    unknown = thread.stack is None or thread.stack.guard_hit is None
    if fold is None or not unknown or not any(frame.found_by == "text" for frame in thread.frames or ()):
        return None
    if fault is None or fault.signal not in {"SIGSEGV", "SIGBUS"} or not real_fault(crash) or fault.access == "exec":
        return None
    if (fault.address is not None and fault.address < NEAR_NULL) or (fold.start or 0) > _INNER:
        return None
    deep = fold.period * fold.times
    confidence: Confidence
    if deep >= _THOUSAND:
        confidence = "likely"
    elif thread.complete is False and fold.times >= _REPEATED and driver_of(fold) != "python":
        # The text ends amid of it: nobody knows how deep it was.
        confidence = "likely" if fold.times >= DEEP else "possible"
    else:
        return None
    return Overflow(crash, thread, thread.stack or Stack(), "recursion", {"recursion": confidence}, fold, None)


def _is_default(crash: Crash, stack: Stack) -> bool:
    """At least the default of the program's threads; true if the size is unknown."""
    return stack.size is None or stack.size >= (crash.stack_reserve or WINDOWS)


_INNER = 64
"""Frames above a recursion in which it may die: an allocation, a comparison, a formatted text."""
_THOUSAND = 1000
_REPEATED = 16
"""Times: so often the same calls stand one above the other in the first lines of a backtrace."""


def _rivals(
    thread: Thread, stack: Stack, fold: Fold | None, largest: Frame | None, asked: int | None
) -> dict[Mechanism, Confidence]:
    whole = stack.size or stack.used or DEFAULT
    single = max((largest.stack_bytes or 0) if largest else 0, asked or 0)
    need = max(min(stack.used or whole, max(whole, single)), single)
    is_small = whole < SMALL and need <= DEFAULT
    repeats = fold is not None and fold.times >= 4 and _share(fold, thread, stack) >= 0.5 and single < whole / 2
    small: dict[Mechanism, Confidence] = {"small-stack": "possible"} if is_small else {}
    found: dict[Mechanism, Confidence]
    if repeats and fold is not None:
        if is_small and fold.times < DEEP:
            found = {"small-stack": "likely", "recursion": "possible"}
        else:
            found = {"recursion": "certain", **small}
    elif asked is None and largest is not None and single >= whole / 4 and not _measured(thread, largest):
        # Its caller was guessed: what lies between the two may be the frames of a recursion.
        found = {"large-frame": "possible", "recursion": "possible"}
    elif single >= LARGE and single >= whole / 4:
        found = {"large-frame": "certain", **small}
    elif single >= whole / 2:
        found = {"small-stack": "certain", "large-frame": "possible"}
    elif not thread.frames or (thread.frames_total or len(thread.frames)) >= 1000:
        # Nothing is known of what lay on it, or very many calls that follow no period: nearly always a recursion.
        found = {"recursion": "likely", **small}
    elif is_small and (len(thread.frames) > 1 or thread.complete):
        found = {"small-stack": "likely"}
    elif single < whole / 16:
        # None of the few frames that were found is to blame; what fills the stack was not seen.
        found = {"recursion": "possible"}
    else:
        found = {"large-frame": "possible", "recursion": "possible"}
    return found


def _measured(thread: Thread, frame: Frame) -> bool:
    """Its size comes from unwind tables, which found its caller."""
    caller = next((one for one in thread.frames or () if one.index == frame.index + 1), None)
    return caller is None or caller.found_by not in {"frame-pointer", "scan"}


def _share(fold: Fold, thread: Thread, stack: Stack) -> float:
    """The recursion's share of the stack, in bytes or else in frames."""
    lay = stack.used or stack.size
    if fold.bytes_per_period and lay:
        return min(1.0, fold.bytes_per_period * fold.times / lay)
    # A text that shows the innermost frames only does not say how many there were.
    total = thread.frames_total or len(thread.frames or ())
    return fold.period * fold.times / total if total else 0.0


def _heaviest(thread: Thread) -> Fold | None:
    return max(thread.folds, key=lambda fold: (fold.bytes_per_period or 1.0) * fold.times, default=None)


def _largest(thread: Thread) -> Frame | None:
    frames = [frame for frame in (*thread.largest, *(thread.frames or ())) if frame.stack_bytes]
    return max(frames, key=lambda frame: frame.stack_bytes or 0, default=None)


# ---------------------------------------------------------------- words about it


def driver_of(fold: Fold) -> Driver:
    """Who keeps the recursion going: C or C++ code, Python code, both in turn, or destructors."""
    functions = [function for function in fold.functions if function]
    if any(_DESTROYS.search(bare_name(function)) for function in functions) and not fold.python:
        return "destructor"
    modules = fold.modules or (None,) * len(fold.functions)
    frames = [
        Frame(index=index, kind="native", function=function, module=module)
        for index, (function, module) in enumerate(zip(fold.functions, modules, strict=False))
    ]
    foreign = [frame for frame in frames if noise(frame) is None and not _is_python_function(frame)]
    if fold.python:
        return "mixed" if foreign else "python"
    return "native" if foreign else "python"


def _is_python_function(frame: Frame) -> bool:
    """By its module, or by the form of its names if that is unknown."""
    if is_interpreter(frame):
        return True
    if frame.module is not None:
        return False
    return bool(
        re.match(
            r"_?Py[A-Z_]|(?:list|tuple|dict|set|map|filter|object|type|slot|method|builtin)_", frame.function or ""
        )
    )


def names(fold: Fold) -> tuple[str, ...]:
    """The functions of one period worth naming, the recursive one first, each once; at most four."""
    first = recursive_function(fold)
    rest = [
        function
        for index, function in enumerate(fold.functions)
        if function
        and noise(Frame(index=index, kind="native", function=function, module=(fold.modules or (None,) * 99)[index]))
        is None
    ]
    return tuple(dict.fromkeys((first, *rest)))[:4]


def evidence(overflow: Overflow) -> Found:
    """The full stack, its size, and what lay on it; of a text that shows no stack, the signal."""
    stack = overflow.stack
    found = stack_exhausted(overflow.crash) or died_by(overflow.crash, "SIGSEGV", "SIGBUS")
    found += tuple(quote(one, "macOS says why") for one in messages(overflow.crash, "excessive-recursion")[-1:])
    if stack.size is not None:
        used = ""
        if stack.used is not None:
            doing = "in use" if stack.used <= stack.size else "wanted"
            used = f", {count(stack.used)} bytes {doing}"
        where = "mapping of the stack and RLIMIT_STACK" if overflow.main else "mapping of the stack"
        if stack.is_alternate:
            where = "the frames on it, and its mapping"
        if on_windows(overflow.crash):
            where = "bounds of the stack in the thread's block (TEB)"
        found += (Evidence(claim="how large the stack is", seen=f"{count(stack.size)} bytes{used}", where=where),)
    return found + _asked_for(overflow)


def _asked_for(overflow: Overflow) -> Found:
    reserve = overflow.crash.stack_reserve
    if reserve is None:
        return ()
    return (
        Evidence(
            claim="how much stack the program asks for, for each thread that names no size",
            seen=f"{program_of(overflow.crash)}: {count(reserve)} bytes (SizeOfStackReserve)",
            where="header of the executable",
        ),
    )


def program_of(crash: Crash) -> str:
    """The executable's file name; ``python.exe`` where it is not known."""
    path = crash.environment.executable if crash.environment is not None else None
    return file_name(path) if path else "python.exe"


def depth_of(overflow: Overflow) -> Found:
    """The recursion as it was found, with its bytes per level and the depth that this stack allows."""
    fold = overflow.fold
    if fold is None:
        return _crowd(overflow)
    seen = f"{' -> '.join(name if len(name) <= 60 else bare_name(name) for name in names(fold))} repeats {often(overflow)} times"
    if fold.period > 1:
        seen += f", {fold.period} frames each time"
    if fold.bytes_per_period:
        seen += f", {size(fold.bytes_per_period)} of stack each time"
    found: Found = (Evidence(claim="the same calls repeat", seen=seen, where=f"stack of {_of(overflow)}"),)
    if overflow.depth_at_end is not None:
        found += (
            Evidence(
                claim="how deep this stack reaches",
                seen=f"{count(overflow.size or 0)} bytes / {overflow.per_level:g} bytes = {count(overflow.depth_at_end)} levels",
                where="arithmetic",
            ),
        )
    return found


def often(overflow: Overflow) -> str:
    """How often it repeats; a text may show only the beginning, or leave out the middle."""
    thread, times = overflow.thread, overflow.levels or 0
    frames = thread.frames or ()
    if not any(frame.found_by == "text" for frame in frames):
        return count(times)
    if thread.frames_total is None:
        return f"at least {count(times)}"
    whole = thread.frames_total <= len(frames) or len(frames) == _BOTH_ENDS
    return count(times) if whole else f"about {count(float(f'{times:.2g}'))}"


_BOTH_ENDS = 512
"""Frames that are kept of a deeper stack, all of which was seen."""


def _crowd(overflow: Overflow) -> Found:
    """Without a period: the number of frames and the most frequent functions."""
    total, frames = overflow.thread.frames_total, overflow.thread.frames or ()
    if not total or not frames or total < MANY:
        return ()
    often = Counter(bare_name(frame.function) for frame in frames if frame.function).most_common(3)
    named = ", ".join(f"{name} ({times} of the {len(frames)} frames kept)" for name, times in often)
    return (Evidence(claim="very many calls are open", seen=f"{count(total)} frames; {named}", where=_of(overflow)),)


def _of(overflow: Overflow) -> str:
    return name_of(overflow.thread, overflow.crash)


def biggest_frame(overflow: Overflow) -> Found:
    """The largest frame, with its size; where none is known, what one call asked for."""
    frame = overflow.largest
    if overflow.asked is not None:
        seen = f"{count(overflow.asked)} bytes ({size(overflow.asked)}) below the stack pointer were requested at once"
        where = "stack pointer, fault address and registers"
        return (Evidence(claim="one call takes most of the stack", seen=seen, where=where),)
    if frame is None or frame.stack_bytes is None:
        return ()
    return (
        Evidence(
            claim="one call takes most of the stack",
            seen=f"{frame.function or '?'} has a frame of {count(frame.stack_bytes)} bytes ({size(frame.stack_bytes)})",
            where=f"frame {frame.index} of {_of(overflow)}",
        ),
    )
