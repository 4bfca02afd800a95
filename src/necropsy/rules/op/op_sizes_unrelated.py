"""A custom op indexes one tensor up to the size of another one, and nothing compares the two sizes.

What happened
-------------
A loop runs to the size of one input, and uses its counter as an index of another input or of an output with another shape. Nothing compares the sizes. If the second one is smaller, the loop reads or
writes past its end.

How to be sure
--------------
Call the op with inputs of different sizes, as in the finding, under ``necropsy run``, in a build with ``-fsanitize=address``.

How to fix it now
-----------------
Before the loop: ``OP_REQUIRES(context, a.shape() == b.shape(), errors::InvalidArgument("a and b must have the same shape"))``, or compare the dimensions that the loop uses.

How to prevent it
-----------------
Compare the shapes of all inputs at the start of Compute. A shape function alone is not enough: eager execution does not run it.

What it is often mistaken for
-----------------------------
A rare race: the crash depends on what is behind the smaller tensor.

Sources
-------
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-sizes-unrelated")))


def _finding(one: CodeDefect) -> Finding:
    """Cases: ``high``, ``low`` and ``range`` (of a memcpy)."""
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} uses {one.names['index']} as an index of `{one.names['buffer']}`, whose size is "
        f"{one.names['size']}. Nothing compares the two sizes{example(one)}.",
        fixes=(Fix(text="Before the loop: OP_REQUIRES that the shapes are equal, or that the dimensions in use are."),),
    )


RULE = Rule(
    _match,
    title="A custom op takes two inputs to have the same size",
    severity="warning",
    needs=("code",),
    checks="sizes of different inputs",
    hit="""
        defect op-sizes-unrelated high FooOp::Compute buffer=weights index=i "size=the number of elements of input 1 (weights)" "witness=the number of elements of input 1 (weights) = 0"
    """,
    miss="""
        defect op-element-unchecked high FooOp::Compute buffer=factors index=0 size=0 witness=
    """,
)
