"""A custom op locks two mutexes in both orders.

What happened
-------------
One path locks the first mutex and then the second, another path the second and then the first. If two threads take these paths at the same time, each holds one mutex and waits for the other. Neither goes on, and the
program hangs without a message. It may take weeks until it happens.

How to be sure
--------------
Build the op with ``-fsanitize=thread``: it reports ``lock-order-inversion`` even in runs that do not hang. Of a program that hangs, ``necropsy attach`` shows who waits for which lock.

How to fix it now
-----------------
Lock both mutexes in the same order everywhere, or both at once with ``std::scoped_lock lock(a, b);``. Or give one back before the other is taken: do not call functions that lock while a lock is held.

How to prevent it
-----------------
Write the order down with ``TF_ACQUIRED_BEFORE``, and compile with clang's ``-Wthread-safety-beta``.

What it is often mistaken for
-----------------------------
A slow op, or a network that does not answer.

Sources
-------
- https://en.cppreference.com/w/cpp/thread/scoped_lock
- https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-lock-order")))


def _finding(one: CodeDefect) -> Finding:
    held, taken, other = one.names["held"], one.names["taken"], one.names["other"]
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} locks `{taken}` while it holds `{held}`, and `{other}` does so in the other order. "
        "Two threads can wait for each other for ever.",
        fixes=(
            Fix(
                text=f"Lock `{held}` and `{taken}` in the same order everywhere, or both at once with std::scoped_lock."
            ),
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("code",),
    checks="order of locks",
    hit="""
        defect op-lock-order order Cache::Add held=Cache::entries_mu_ taken=Cache::statistics_mu_ other=Cache::Report
    """,
    miss="""
        defect op-kernel-state member FooOp::Compute member=calls_ type=int
    """,
)
