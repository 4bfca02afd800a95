"""Threads get a stack that is too small for the native code that runs on them.

What happened
-------------
``threading.stack_size`` sets the stack of every thread that Python starts afterwards. NumPy, TensorFlow and PyTorch are built for the usual 8 MiB: matrix libraries and
compilers inside them take hundreds of kilobytes in one call. Where the stack ends, the process dies by SIGSEGV without a message.

How to be sure
--------------
``necropsy run --always`` lists the stack that each thread has used, beside its size.

How to fix it now
-----------------
Remove the call, or give at least ``threading.stack_size(8 * 1024 * 1024)``. Memory that a stack does not use is not taken from the machine.

How to prevent it
-----------------
Do not make stacks smaller to save memory: only the pages that are used count.

What it is often mistaken for
-----------------------------
A crash of the library, because the same call works on the main thread.

Sources
-------
- https://docs.python.org/3/library/threading.html#threading.stack_size
- https://man7.org/linux/man-pages/man3/pthread_attr_setstacksize.3.html
"""

from __future__ import annotations

from necropsy.model import Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import found_use, place_of_use, uses

ENOUGH = 1 << 20
"""Bytes. musl's default of 128 KiB and macOS' of 512 KiB for threads are known to be too small for numeric libraries."""


def _match(environment: Environment) -> Finding | None:
    return several(
        found_use(
            one,
            summary=f"{place_of_use(one)} gives threads {one.value:,} bytes of stack, and {one.detail} is imported, which is "
            "built for 8 MiB.",
            confidence="likely",
            fixes=(Fix(text="Remove the call, or write `threading.stack_size(8 * 1024 * 1024)`."),),
        )
        for one in uses(environment, "thread-stack")
        if one.value is not None and one.value < ENOUGH and one.detail is not None
    )


RULE = Rule(
    _match,
    title="Threads get a stack that is too small for native code",
    severity="warning",
    needs=("uses",),
    checks="stacks of threads",
    hit="""
        use thread-stack threading.stack_size value=131072 detail=tensorflow
    """,
    miss="""
        use thread-stack threading.stack_size value=67108864 detail=tensorflow
    """,
)
