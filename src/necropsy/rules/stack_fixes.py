"""How to give a thread more stack, in numbers: which knob works depends on who made the thread.

Measured (glibc 2.36, CPython 3.11, TensorFlow 2.20): the soft RLIMIT_STACK bounds the main thread, and as it was at the
program's start it also sizes every thread that names no size, TensorFlow's pools among them. ``threading.stack_size``
sets the threads that Python starts after it. ``ulimit -s unlimited`` gives such threads 2 MiB, less than before.
Windows has no such limit: the header of the executable says how large the stack is, of its first thread and of every
thread that is created without a size (Microsoft Learn, *Thread Stack Size* and *editbin /STACK*).
"""

from __future__ import annotations

from necropsy.model import Fix
from necropsy.predicates import on_windows
from necropsy.rules import quoting
from necropsy.rules.stacks import DEFAULT, Overflow, program_of
from necropsy.rules.wording import count, size

FACTOR = 8
"""How much larger a stack is proposed: enough to see whether a recursion ends, small enough for many threads."""


def bigger_stack(overflow: Overflow, at_least: int = 0) -> tuple[Fix, ...]:
    """Fixes that enlarge this thread's stack; ``at_least`` is what must fit (bytes)."""
    wanted = _round(max((overflow.size or DEFAULT) * FACTOR, 64 << 20, 2 * at_least))
    room = (
        f"room for about {count(wanted / overflow.per_level)} levels"
        if overflow.per_level
        else f"{size(wanted)} in all"
    )
    caution = "It only moves the limit: infinite recursion will still crash, only later."
    if overflow.fold is None:
        caution = "It is address space that is reserved, not memory that is used."
    if on_windows(overflow.crash):
        return _on_windows(overflow, wanted, room, caution)
    if overflow.stack.is_alternate:
        return (
            Fix(
                text=f"As a workaround, make this stack larger where it is created: sigaltstack for a signal handler, makecontext or its library for a coroutine. `ulimit -s` does not reach it ({room}). {caution}"
            ),
        )
    command = f"ulimit -s {wanted >> 10}"
    if overflow.main:
        return (
            Fix(
                text=f"As a workaround, start the program from a shell with a stack of {size(wanted)} ({room}). {caution}",
                command=command,
            ),
        )
    each = f"Every thread made after it takes {size(wanted)} of address space."
    fixes = []
    if _made_by_python(overflow) is not False:
        fixes.append(
            Fix(
                text=f"As a workaround, set a larger thread stack size before this thread starts ({room}). {each} {caution}",
                command=f"threading.stack_size({wanted >> 20} << 20)",
            )
        )
    if _follows_limit(overflow) is not False and _made_by_python(overflow) is not True:
        fixes.append(
            Fix(
                text=f"As a workaround, raise the shell's limit: threads without a size of their own, such as TensorFlow's pools, take the limit that holds when the program starts ({room}). Not `unlimited`: that gives them 2 MiB. "
                f"{each} {caution}",
                command=command,
            )
        )
    return tuple(fixes)


def _on_windows(overflow: Overflow, wanted: int, room: str, caution: str) -> tuple[Fix, ...]:
    """A Python thread with its own size, or a copy of the executable with another header."""
    python = _runs_python(overflow) and (overflow.main or _made_by_python(overflow) is not False)
    program, reserve = program_of(overflow.crash), overflow.crash.stack_reserve
    on_thread = Fix(
        text=f"As a workaround, run the work on a Python thread that is started after this line ({room}). {caution}"
        if overflow.main
        else f"As a workaround, set a larger thread stack size before this thread starts ({room}). Every thread made after it "
        f"takes {size(wanted)} of address space. {caution}",
        command=f"threading.stack_size({wanted >> 20} << 20)"
        + ("; work = threading.Thread(target=main); work.start(); work.join()" if overflow.main else ""),
    )
    now = f", which asks for {count(reserve)} bytes now," if reserve is not None else ""
    header = Fix(
        text=f"As a workaround, change the header of a copy of {program}{now} by the editbin of Visual Studio ({room}): its "
        "first thread and all threads that name no size then have it.",
        command=f"editbin /STACK:{wanted} {quoting.windows(program, 'PROGRAM.exe')}",
    )
    own = Fix(
        text=f"Set the size where this thread is created: CreateThread with {wanted} and STACK_SIZE_PARAM_IS_A_RESERVATION, "
        f"or _beginthreadex ({room}). {caution}",
    )
    if python:
        return (on_thread, header) if overflow.main or _has_default(overflow) is not False else (on_thread,)
    return (header,) if overflow.main or _has_default(overflow) else (own,)


def _runs_python(overflow: Overflow) -> bool:
    modules = overflow.crash.modules
    if modules is None:
        return program_of(overflow.crash).lower().startswith("python")
    return any("python" in one.path.lower() for one in modules)


def _has_default(overflow: Overflow) -> bool | None:
    """The stack has the size in the executable's header, so none was given; None if unknown."""
    reserve = overflow.crash.stack_reserve
    if reserve is None or overflow.size is None:
        return None
    return abs(overflow.size - reserve) < _GRANULARITY


_GRANULARITY = 64 * 1024
"""Windows reserves memory in units of 64 KiB."""


def _made_by_python(overflow: Overflow) -> bool | None:
    """By ``threading``; None if its Python frames are unknown."""
    python = overflow.thread.python
    if python is None:
        return None
    return any((frame.source or "").endswith("threading.py") for frame in python)


def _follows_limit(overflow: Overflow) -> bool | None:
    """The thread has RLIMIT_STACK's size, so none was given; None if the limit is unknown."""
    environment = overflow.crash.environment
    limit = (environment.limits or {}).get("RLIMIT_STACK") if environment else None
    if limit is None or overflow.size is None:
        return None
    expected = 2 << 20 if limit == -1 else limit
    return abs(overflow.size - expected) <= 64 * 1024


def _round(octets: int) -> int:
    """Up to a power of two, at most 1 GiB, which the kernel and threading.stack_size accept everywhere."""
    return min(1 << 30, 1 << (octets - 1).bit_length())
