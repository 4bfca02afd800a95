"""A custom op has functions that call themselves.

What happened
-------------
The machine code of the library has a circle of calls below one of its kernels: a function that calls itself, or several that call each other. Each turn takes
part of the stack, and the stack does not grow beyond its limit. If the input decides how often it turns, a long or deeply nested input ends the process with
SIGSEGV (on Windows ``0xC00000FD``), without a message. The finding says how many bytes a turn takes, and how many turns fit.

How to be sure
--------------
Call the op with an input that nests deeper than the number of turns in the finding, under ``necropsy run``. ``objdump -d --no-show-raw-insn op.so`` shows the call. The machine
code does not show what limits the depth: a recursion on halves (a binary search, a balanced tree) never gets deep.

How to fix it now
-----------------
Write the function as a loop with a ``std::vector`` as its stack. Or count the depth, and return an error with ``OP_REQUIRES`` before it reaches the limit. A
destructor that frees a list or tree of ``std::unique_ptr`` recurses too: move the children into a vector and free them in a loop.

How to prevent it
-----------------
Test the op with an input that nests 100,000 levels deep. clang-tidy's ``misc-no-recursion`` finds direct recursion in the sources.

What it is often mistaken for
-----------------------------
A stack that is too small. A larger one moves the limit, and the next longer input reaches it.

Sources
-------
- https://clang.llvm.org/extra/clang-tidy/checks/misc/no-recursion.html
- https://man7.org/linux/man-pages/man2/getrlimit.2.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from necropsy.model import Binary, CallCycle, Culprit, Environment, Evidence, Fix, Location
from necropsy.rule import Finding, Rule, several

_SHOWN = 3


def _match(environment: Environment) -> Finding | None:
    return several(one for binary in environment.binaries or () for one in _findings(binary))


def _findings(binary: Binary) -> Iterator[Finding]:
    """One for each circle below a kernel. In a library that is no op many are, and most of them stay shallow."""
    cycles = list(_by_function(binary.cycles or ()))
    if any(path.is_kernel for path in binary.paths or ()):
        yield from (_finding(binary, one) for one in cycles)
    elif cycles:
        yield _in_another_library(binary, cycles)


def _by_function(cycles: tuple[CallCycle, ...]) -> Iterator[CallCycle]:
    """One of each set of functions: templates and parts of one function share a name."""
    seen = set()
    for one in cycles:
        names = frozenset(each.function for each in one.frames)
        if names not in seen and one.bytes > 0:
            seen.add(names)
            yield one


def _finding(binary: Binary, one: CallCycle) -> Finding:
    first = one.frames[0]
    names = list(dict.fromkeys(each.function for each in one.frames))
    levels = binary.stack // one.bytes
    through = f" through {', '.join(f'`{name}`' for name in names[1:])}" if names[1:] else ""
    name = PurePath(binary.path).name
    destroys = any("~" in each or "default_delete" in each for each in names)
    return Finding(
        evidence=(_calls(binary, one), Evidence(claim="called by", seen=one.entry, where=binary.path)),
        summary=f"Below `{one.entry}` in {name}, `{first.function}` calls itself{through}, {one.bytes:,} bytes of stack "
        f"each time: {levels:,} levels fit into a stack of {binary.stack:,} bytes. Machine code does not show what "
        "limits the depth.",
        confidence="likely",
        culprit=Culprit(function=first.function, module=name),
        locations=(Location(path=binary.path, role="definition"),),
        about=frozenset({f"recursion of {binary.path} {one.entry}"}),
        fixes=(Fix(text=_ADVICE_ON_DESTRUCTORS if destroys else _advice(first.function, levels)),),
    )


def _calls(binary: Binary, one: CallCycle) -> Evidence:
    first = one.frames[0]
    return Evidence(
        claim="calls in a circle",
        seen=" -> ".join([*(f"{each.function} ({each.bytes:,} bytes)" for each in one.frames), first.function]),
        where=f"{binary.path} at {first.address:#x}",
    )


def _in_another_library(binary: Binary, cycles: Sequence[CallCycle]) -> Finding:
    largest = sorted(cycles, key=lambda one: -one.bytes)
    shown = ", ".join(f"`{one.frames[0].function}` ({one.bytes:,} bytes)" for one in largest[:_SHOWN])
    more = f" and {len(cycles) - _SHOWN} more" if len(cycles) > _SHOWN else ""
    return Finding(
        evidence=tuple(_calls(binary, one) for one in largest[:_SHOWN]),
        summary=f"{PurePath(binary.path).name} has no TensorFlow kernel. Functions in it that call themselves, with the "
        f"stack of one turn: {shown}{more}. Machine code does not show what limits the depth.",
        confidence="possible",
        severity="note",
        locations=(Location(path=binary.path, role="definition"),),
        about=frozenset({f"recursion of {binary.path}"}),
    )


_ADVICE_ON_DESTRUCTORS = (
    "Free the children in a loop: move them into a std::vector in the destructor, so that each is destroyed empty."
)


def _advice(name: str, levels: int) -> str:
    return f"Write `{name}` as a loop with a std::vector as its stack, or refuse inputs deeper than {levels:,} levels."


RULE = Rule(
    name="op-recursion",
    subject=Environment,
    title="A custom op has functions that call themselves",
    match=_match,
    page=__doc__ or "",
    severity="warning",
    needs=("binaries",),
    beats=("op-stack-depth",),
    checks="recursion",
    hit="""
        binary /home/u/op.so 8388608
        path 176 Op::Compute 48 Recurse 128
        cycle 128 Recurse 128 by Op::Compute
    """,
    miss="""
        binary /home/u/op.so 8388608
        path 4096 Op::Compute 48 helper 4048
    """,
    references=("https://clang.llvm.org/extra/clang-tidy/checks/misc/no-recursion.html",),
)
