"""A custom op has functions that call themselves.

What happened
-------------
In the source a function, a lambda or a group of functions calls itself, and data decides how deep it gets, or constants make it deeper than the stack holds. A recursion
on halves, one with a limit that fits, and callbacks that another thread runs are not reported. In a built library, the machine code has a circle of calls below one of its kernels: a function that calls itself, or several that call each other. Each turn takes
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

from necropsy.model import Binary, CallCycle, CodeDefect, Culprit, Environment, Evidence, Fix, Location
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place

_SHOWN = 3


def _match(environment: Environment) -> Finding | None:
    built = [one for binary in environment.binaries or () for one in _findings(binary)]
    return several([*map(_in_source, defects(environment, "op-recursion")), *built])


def _in_source(one: CodeDefect) -> Finding:
    """Cases: ``endless`` (no base case), ``fixed`` (constants say how deep), ``data``."""
    bytes_, levels, name = one.numbers["bytes"], one.numbers["levels"], one.function or "a function"
    through = (
        f" through {', '.join(f'`{each}`' for each in one.names['through'].split(', '))}"
        if one.names["through"]
        else ""
    )
    depends = f" The depth follows `{one.names['depends']}`." if one.names["depends"] else ""
    depth = {
        "endless": "There is no base case: every call leads to the next one.",
        "fixed": f"It gets {one.numbers.get('deepest', 0):,} levels deep.",
        "data": f"There is a base case, but nothing limits the depth.{depends}",
    }[one.case]
    advice = _advice(name, levels) if one.case != "endless" else f"Give `{name}` a base case, or write it as a loop."
    return found(
        one,
        summary=f"{place(one)}: `{name}`{of_op(one)} calls itself{through}. {depth} A level takes at least {bytes_:,} bytes: "
        f"at most {levels:,} levels fit into a stack of {one.stack or 0:,} bytes.",
        fixes=(Fix(text=advice),),
    )


def _findings(binary: Binary) -> Iterator[Finding]:
    """One for each cycle below a kernel; other libraries have many, mostly shallow ones."""
    cycles = list(_by_function(binary.cycles or ()))
    if any(path.is_kernel for path in binary.paths or ()):
        yield from (_finding(binary, one) for one in cycles)
    elif cycles:
        yield _in_another_library(binary, cycles)


def _by_function(cycles: tuple[CallCycle, ...]) -> Iterator[CallCycle]:
    """One for each set of functions: templates and parts of a function share a name."""
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
    _match,
    severity="warning",
    needs=("binaries or code",),
    beats=("op-stack-depth",),
    checks="recursion",
    hit="""
        binary /home/u/op.so 8388608
        path 176 Op::Compute 48 Recurse 128
        cycle 128 Recurse 128 by Op::Compute
        defect op-recursion data Depth bytes=64 levels=131072 through= depends=node->next
    """,
    miss="""
        binary /home/u/op.so 8388608
        path 4096 Op::Compute 48 helper 4048
    """,
)
