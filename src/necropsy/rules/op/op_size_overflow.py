"""A custom op multiplies sizes or values of a tensor in 32 bits.

What happened
-------------
The product of two 32-bit integers is computed in 32 bits, even if the result goes into an ``int64_t``. If the factors come from an input, the product can exceed 2,147,483,647. It then becomes negative or too small:
checks that follow pass, and a buffer that is made with it is too small for what is written.

How to be sure
--------------
Call the op with the values in the finding, in a build with ``-fsanitize=signed-integer-overflow``.

How to fix it now
-----------------
Convert the first factor: ``static_cast<int64_t>(rows) * columns``, keep the result in an ``int64_t``, and compare it with a limit.

How to prevent it
-----------------
Use ``int64_t`` for all sizes and indices, as ``dim_size`` and ``NumElements`` do, and ``MultiplyWithoutOverflow`` for products of values.

What it is often mistaken for
-----------------------------
An allocation that failed: the message shows a negative or absurd size.

Sources
-------
- https://clang.llvm.org/docs/UndefinedBehaviorSanitizer.html
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-size-overflow")))


def _finding(one: CodeDefect) -> Finding:
    return found(
        one,
        summary=f"{place(one)}: `{one.names['expression']}` in `{one.function}`{of_op(one)} is computed in 32 bits, and the caller of the op decides "
        f"the factors{example(one)}.",
        fixes=(Fix(text="Compute the product in 64 bits, static_cast<int64_t>(a) * b, and compare it with a limit."),),
    )


RULE = Rule(
    _match,
    title="A custom op computes a size in 32 bits",
    severity="warning",
    needs=("code",),
    checks="products in 32 bits",
    hit="""
        defect op-size-overflow product FooOp::Compute "expression=rows * columns" "witness=input 0 (size)(0) = 65536"
    """,
    miss="""
        defect op-division-unchecked divisor FooOp::Compute divisor=rows witness=
    """,
)
