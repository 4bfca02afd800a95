"""A function of a custom op has local variables that take a large share of the stack.

What happened
-------------
The function reserves this many bytes each time the function is called: a local array, a ``std::array``, a fixed-size Eigen type, or a struct that holds one. A
thread's stack has 8 MiB as a rule, 2 MB in ``python.exe`` on Windows, and less in threads that programs start themselves. Where the frame does not fit, the first access to it ends
the process with SIGSEGV, often on a line that looks harmless.

How to be sure
--------------
``necropsy check --frames op.so`` lists the largest frames. ``g++ -Wframe-larger-than=65536`` names the function when it is compiled.

How to fix it now
-----------------
Put the data on the heap: ``std::vector``, or ``allocate_temp`` of the op's context.

How to prevent it
-----------------
Compile with ``-Wframe-larger-than=65536 -Werror``.

What it is often mistaken for
-----------------------------
Endless recursion, which also fills the stack; here it is a single call. A null pointer: the address of the fault is just below the stack.

Sources
-------
- https://gcc.gnu.org/onlinedocs/gcc/Warning-Options.html#index-Wframe-larger-than_003d
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from pathlib import PurePath

from necropsy.model import Binary, CodeDefect, Culprit, Environment, Evidence, Fix, Location, StackFrame
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    built = [_finding(binary, one) for binary in environment.binaries or () for one in binary.wide or ()]
    return several([*map(_in_source, defects(environment, "op-large-frame")), *built])


def _in_source(one: CodeDefect) -> Finding:
    bytes_, stack = one.numbers["bytes"], one.stack or 1
    names = " and ".join(f"`{each}`" for each in one.names["variables"].split(", "))
    share = (
        f"more than the whole stack of {stack:,} bytes"
        if bytes_ >= stack
        else f"{100 * bytes_ // stack} % of {stack:,} bytes"
    )
    return found(
        one,
        summary=f"{place(one)}: the local variables of `{one.function}`{of_op(one)} take {bytes_:,} bytes of stack in one "
        f"call, {share}. The largest: {names}.",
        fixes=(Fix(text=f"Put {names} on the heap: a std::vector, or allocate_temp of the op's context."),),
    )


def _finding(binary: Binary, one: StackFrame) -> Finding:
    share = 100 * one.bytes // binary.stack
    own = any(path.is_kernel and path.frames[0].address == one.address for path in binary.paths or ())
    too_large = one.bytes >= binary.stack
    size = f"{one.bytes:,} bytes of stack"
    text = (
        f"more than the whole stack of {binary.stack:,} bytes" if too_large else f"{share} % of {binary.stack:,} bytes"
    )
    name = PurePath(binary.path).name
    return Finding(
        evidence=(
            Evidence(
                claim="size of its frame", seen=f"{one.bytes:,} bytes", where=f"{binary.path} at {one.address:#x}"
            ),
        ),
        summary=f"`{one.function}` in {name} takes {size} in one call, {text}.",
        # Each call of a kernel makes its frame; of what it calls, an input may never reach the place.
        severity="error" if too_large and own else "warning",
        confidence="certain",
        culprit=Culprit(function=one.function, module=name),
        locations=(Location(path=binary.path, role="definition"),),
        about=frozenset({f"stack of {binary.path} {one.function}"}),
        fixes=(
            Fix(
                text=f"Put the large local variables of `{one.function}` on the heap: a std::vector, or allocate_temp."
            ),
        ),
    )


RULE = Rule(
    _match,
    title="A function of a custom op has very large local variables",
    severity="warning",
    needs=("binaries or code",),
    beats=("op-stack-depth",),
    checks="size of frames",
    hit="""
        binary /home/u/op.so 8388608
        wide Op::Compute 40000016
        path 40000016 Op::Compute 40000016
        defect op-large-frame locals Op::Compute bytes=40000000 largest=40000000 variables=table type=float[10000000]
    """,
    miss="""
        binary /home/u/op.so 8388608
        path 4096 Op::Compute 4096
    """,
)
