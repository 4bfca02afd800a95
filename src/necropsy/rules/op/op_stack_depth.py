"""The deepest path of calls in a custom op takes more than the stack has.

What happened
-------------
No single function is to blame: one kernel calls a function that calls another, and their frames together are larger than the stack. The finding lists the path with the bytes of
each call. Calls through pointers, virtual calls and functions of other libraries are not counted, so that the real depth may be larger.

How to be sure
--------------
Run the op under ``necropsy run --always``, which measures how much of its stack each thread has used.

How to fix it now
-----------------
Put the largest local variables of the functions on the path on the heap (``std::vector``, ``allocate_temp``), the largest frame first.

How to prevent it
-----------------
``necropsy check op.so`` after each build, with the size of the smallest stack that the op has to run on: ``--stack-size 2M`` for ``python.exe`` on Windows.

What it is often mistaken for
-----------------------------
Recursion. No function on this path is called twice.

Sources
-------
- https://gcc.gnu.org/onlinedocs/gcc/Developer-Options.html#index-fstack-usage
- https://learn.microsoft.com/cpp/build/reference/stack-stack-allocations
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from necropsy.model import Binary, CallPath, CodeDefect, Culprit, Environment, Evidence, Fix, Location
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    built = [
        _finding(binary, one)
        for binary in environment.binaries or ()
        for one in binary.paths or ()
        if one.bytes >= binary.stack
    ]
    return several([*map(_in_source, defects(environment, "op-stack-depth")), *built])


def _in_source(one: CodeDefect) -> Finding:
    largest = one.names["largest"]
    path = Evidence(claim="the path", seen=one.names["path"], where=one.place.path)
    finding = found(
        one,
        summary=f"{place(one)}: the deepest path of calls below `{one.function}`{of_op(one)} has {one.numbers['calls']:,} calls and takes at least "
        f"{one.numbers['bytes']:,} bytes of stack, more than the {one.stack or 0:,} bytes of a stack.",
        fixes=(
            Fix(text=f"Put the large local variables of `{largest}` ({one.numbers['frame']:,} bytes) on the heap."),
        ),
    )
    return replace(finding, evidence=(path, *finding.evidence))


def _finding(binary: Binary, one: CallPath) -> Finding:
    name = PurePath(binary.path).name
    largest = max(one.frames, key=lambda each: each.bytes)
    at_least = "at least " if one.indirect or one.outside else ""
    return Finding(
        evidence=(
            Evidence(
                claim="the path",
                seen=" -> ".join(f"{each.function} ({each.bytes:,} bytes)" for each in one.frames),
                where=binary.path,
            ),
        ),
        summary=f"The deepest path of calls below `{one.frames[0].function}` in {name} takes {at_least}{one.bytes:,} bytes, "
        f"more than a stack of {binary.stack:,} bytes has.",
        confidence="certain",
        culprit=Culprit(function=largest.function, module=name),
        locations=(Location(path=binary.path, role="definition"),),
        about=frozenset(
            {f"stack of {binary.path} {each.function}" for each in one.frames}
            | {f"recursion of {binary.path} {one.frames[0].function}"}
        ),
        fixes=(
            Fix(text=f"Put the large local variables of `{largest.function}` ({largest.bytes:,} bytes) on the heap."),
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("binaries or code",),
    checks="depth of calls",
    hit="""
        binary /home/u/op.so 2000000
        path 2100000 Op::Compute 48 first 1049976 second 1049976
        defect op-stack-depth source FooOp::Compute bytes=9000000 calls=24 frame=400000 largest=First path=FooOp::Compute
    """,
    miss="""
        binary /home/u/op.so 8388608
        path 2100000 Op::Compute 48 first 1049976 second 1049976
    """,
)
