"""A custom op makes a buffer or shape of a size that is a value of a tensor, and nothing limits it.

What happened
-------------
A ``std::vector``, an array or a ``TensorShape`` gets a size from the values of an input. A negative size makes ``TensorShape`` abort with ``Check failed``, and ``std::vector`` throw ``std::length_error``, which ends the process
since TensorFlow does not catch exceptions of kernels. A huge one throws ``std::bad_alloc``, or the OOM killer ends the process.

How to be sure
--------------
Call the op with -1 or a huge number, as in the finding, under ``necropsy run``.

How to fix it now
-----------------
Before the allocation: ``OP_REQUIRES(context, size >= 0 && size <= limit, errors::InvalidArgument("..."))``. For shapes, ``TensorShape::BuildTensorShape`` and ``AddDimWithStatus`` return an error instead of aborting.

How to prevent it
-----------------
Test the op with -1 and with 2**62 for each integer input.

What it is often mistaken for
-----------------------------
A memory leak, or a machine that is too small: the size is wrong from the start.

Sources
-------
- https://en.cppreference.com/w/cpp/container/vector/vector
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-allocation-unchecked")))


def _finding(one: CodeDefect) -> Finding:
    how = "may be negative" if one.case == "negative" else "has no upper limit"
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} gives {one.names['what']} the size `{one.names['size']}`, a value of a tensor that {how}"
        f"{example(one)}.",
        fixes=(Fix(text=f"Before it: OP_REQUIRES that `{one.names['size']}` is neither negative nor above a limit."),),
    )


RULE = Rule(
    _match,
    title="A custom op does not check a size before it allocates",
    severity="warning",
    needs=("code",),
    checks="sizes of allocations",
    hit="""
        defect op-allocation-unchecked negative FooOp::Compute size=count what=vector "witness=input 0 (count)(0) = -1"
    """,
    miss="""
        defect op-size-overflow product FooOp::Compute "expression=rows * columns" witness=
    """,
)
