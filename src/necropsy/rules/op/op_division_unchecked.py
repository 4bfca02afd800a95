"""A custom op divides whole numbers by a value that may be 0.

What happened
-------------
``/`` or ``%`` of integers with a divisor that comes from an input: one of its values, or one of its dimensions, which is 0 for an empty tensor. On x86 the processor raises SIGFPE, and the process ends. (Floating-point
division by 0 gives infinity, and is not reported.)

How to be sure
--------------
Call the op with the value in the finding, under ``necropsy run``: it ends with SIGFPE.

How to fix it now
-----------------
Before the division: ``OP_REQUIRES(context, divisor > 0, errors::InvalidArgument("..."))``, or return early for empty inputs.

How to prevent it
-----------------
Test the op with empty tensors, and with 0 in every integer input.

What it is often mistaken for
-----------------------------
A floating-point error: SIGFPE is named after it, but only integer division raises it.

Sources
-------
- https://man7.org/linux/man-pages/man7/signal.7.html
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Occurs, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-division-unchecked")))


def _finding(one: CodeDefect) -> Finding:
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} divides by `{one.names['divisor']}`, which may be 0{example(one)}.",
        fixes=(Fix(text=f"Before the division: OP_REQUIRES that `{one.names['divisor']}` is not 0."),),
    )


RULE = Rule(
    _match,
    title="A custom op may divide by zero",
    severity="warning",
    needs=("code",),
    occurs=Occurs(
        but="On AArch64 a division by zero is no death (except on Windows): it gives 0, and the program goes on with it."
    ),
    checks="divisions",
    hit="""
        defect op-division-unchecked divisor FooOp::Compute divisor=rows "witness=dimension 0 of input 0 (x) = 0"
    """,
    miss="""
        defect op-attr-unchecked divisor FooOp::Compute divisor=stride_ witness=
    """,
)
