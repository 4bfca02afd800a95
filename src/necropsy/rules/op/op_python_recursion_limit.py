"""A recursion limit lets Python go deeper than the stack holds.

What happened
-------------
``sys.setrecursionlimit`` does not make the stack larger. CPython stops at the limit with a RecursionError; where the stack is full before, the process
dies by SIGSEGV (on Windows ``0xC00000FD``). A level that goes through C code (``repr``, ``__getattr__``, ``map``, ``sorted`` with a key, pickle, copy) takes 500 to 750 bytes of stack in CPython 3.11,
so that 8 MiB hold 11,000 to 17,000 of them.

How to be sure
--------------
Run the program under ``necropsy run`` with its deepest input: the report says ``stack-overflow-recursion``.

How to fix it now
-----------------
Run the deep part on a thread with a stack that fits: ``threading.stack_size(512 * 1024 * 1024)`` before ``threading.Thread(target=main).start()``. Or keep the limit at 10,000.

How to prevent it
-----------------
Walk deep structures with a loop and a list as the stack.

What it is often mistaken for
-----------------------------
A bug in the extension that was called last. From CPython 3.11 on, calls from Python to Python take none of the C stack, so that a simple test goes deep without harm.

Sources
-------
- https://docs.python.org/3/library/sys.html#sys.setrecursionlimit
- https://docs.python.org/3/library/threading.html#threading.stack_size
"""

from __future__ import annotations

from necropsy.model import Environment, Evidence, Fix, SourceUse
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import found_use, place_of_use, uses

BYTES_PER_LEVEL = 500
"""Measured with CPython 3.11 on x86-64: 497 through ``repr``, 625 through ``map``, 737 through ``__getattr__``."""


_LARGEST_STACK = 1 << 30
"""Bytes of stack that are still advised."""


def _match(environment: Environment) -> Finding | None:
    return several(
        _finding(one, one.value, one.stack)
        for one in uses(environment, "recursion-limit")
        if one.value is not None and one.stack is not None and one.value * BYTES_PER_LEVEL > one.stack
    )


def _finding(one: SourceUse, limit: int, stack: int) -> Finding:
    needed = limit * BYTES_PER_LEVEL * 2
    advice = "Keep the limit at 10,000, and walk deep structures with a loop and a list as the stack."
    if needed <= _LARGEST_STACK:
        advice = (
            f"Run the deep part on a thread with {needed >> 20} MiB of stack (threading.stack_size), or keep the limit "
            "at 10,000."
        )
    return found_use(
        one,
        summary=f"{place_of_use(one)} sets the recursion limit to {limit:,}. {stack:,} bytes of stack hold some "
        f"{stack // BYTES_PER_LEVEL:,} levels that go through C code.",
        confidence="likely",
        evidence=(Evidence(claim="a level takes at least", seen=f"{BYTES_PER_LEVEL} bytes", where="CPython 3.11"),),
        fixes=(Fix(text=advice),),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("uses",),
    checks="recursion limits",
    hit="""
        use recursion-limit sys.setrecursionlimit value=1000000 stack=8388608
    """,
    miss="""
        use recursion-limit sys.setrecursionlimit value=10000 stack=8388608
    """,
)
