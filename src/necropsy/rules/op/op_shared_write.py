"""Several threads of a custom op write to the same location.

What happened
-------------
``Shard``, ``ParallelFor`` and the thread pool run a lambda several times at once. Each call writes to the same variable, or to an element that the data decides, without a lock. Two threads read the same old value, and one of the two
results is lost: sums are too small, and differently so in each run. A container that two threads change at once is damaged, and the process crashes.

How to be sure
--------------
Build the op with ``-fsanitize=thread`` and call it with a large input. Or compare the results of 100 calls with the same input.

How to fix it now
-----------------
Let each shard collect its result in a local variable, and add it once, under a ``mutex_lock``, at the end. Or make the variable a ``std::atomic``. For a scatter, divide the work by where is written, not by what is read.

How to prevent it
-----------------
Capture only what a shard needs, by name, and ``const`` where it only reads.

What it is often mistaken for
-----------------------------
Rounding errors of floating-point sums: those differ in the last digits only.

Sources
-------
- https://en.cppreference.com/w/cpp/language/multithread
- https://clang.llvm.org/docs/ThreadSanitizer.html
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-shared-write")))


def _finding(one: CodeDefect) -> Finding:
    names = one.names
    why = (
        f"the data decides the place in `{names['variable']}`, so that two of them can write to the same one"
        if one.case == "scattered"
        else f"all of them write to the same `{names['variable']}`"
    )
    return found(
        one,
        summary=f"{place(one)}: `{names['runner']}` runs this lambda{of_op(one)} in several threads at once. With `{names['location']}`, {why}, "
        "without a lock.",
        fixes=(
            Fix(
                text=f"Collect the result of each shard in a local variable, and change `{names['variable']}` once at its end, under a mutex_lock."
            ),
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("code",),
    checks="writes of shards",
    hit="""
        defect op-shared-write same "lambda in FooOp::Compute" location=total+=x(i) variable=total runner=Shard
    """,
    miss="""
        defect op-kernel-state member FooOp::Compute member=calls_ type=int
    """,
)
