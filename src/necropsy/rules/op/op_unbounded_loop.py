"""A loop in a custom op may never end.

What happened
-------------
What ends the loop is a floating-point value that has to get past a limit, and both come from input; or nothing in it ends it at all. For NaN, infinity, 0 or a negative limit, the value never gets
there, and nothing counts the rounds. The op then uses a core for ever, and ``tf.function`` cannot interrupt it.

How to be sure
--------------
Call the op with 0, negative, infinite and NaN values, under a time limit.

How to fix it now
-----------------
Count the rounds, and stop with an error: ``for (int round = 0; value > limit; ++round) { OP_REQUIRES(context, round < 1000, errors::InvalidArgument(...)); ... }``. Or check the values first with ``std::isfinite``.

How to prevent it
-----------------
Test each op that iterates with values for which it does not converge.

What it is often mistaken for
-----------------------------
A deadlock, which uses no CPU time, while this loop keeps one core busy.

Sources
-------
- https://en.cppreference.com/w/cpp/numeric/math/isfinite
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-unbounded-loop")))


def _finding(one: CodeDefect) -> Finding:
    why = (
        f"ends only when `{one.names['condition']}` is false, which depends on values from the input"
        if one.case == "converges"
        else "has nothing that ends it"
    )
    return found(
        one,
        summary=f"{place(one)}: a loop in `{one.function}`{of_op(one)} {why}. Nothing limits the number of rounds.",
        fixes=(Fix(text="Count the rounds, and return an error after a limit."),),
    )


RULE = Rule(
    _match,
    severity="note",
    needs=("code",),
    checks="loops",
    hit="""
        defect op-unbounded-loop converges FooOp::Compute variable=value condition=value>limit
    """,
    miss="""
        defect op-recursion data Depth bytes=64 levels=131072 through= depends=node->next
    """,
)
