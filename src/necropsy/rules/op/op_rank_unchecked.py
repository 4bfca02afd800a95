"""A custom op takes a tensor to have a certain number of dimensions, and nothing checks it.

What happened
-------------
``scalar<T>()``, ``vec<T>()``, ``matrix<T>()``, ``tensor<T, N>()`` and ``dim_size(k)`` contain a CHECK: if the tensor has another rank (for ``scalar``, another number of elements than 1), TensorFlow
prints ``Check failed`` and ends the process with SIGABRT. Only ``dim_size(0)`` of a scalar does not abort: it returns whatever is in memory there, and the kernel takes that for a size. The caller of the op decides the rank. Shape functions do not prevent it: eager execution does not run them.

How to be sure
--------------
Call the op with the shape that the finding describes, under ``necropsy run``. The log has ``Check failed: NDIMS == dims()`` or ``Check failed: 1 == NumElements()``.

How to fix it now
-----------------
Before the call: ``OP_REQUIRES(context, x.dims() == 2, errors::InvalidArgument("x must be a matrix"))``. For ``scalar``: ``TensorShapeUtils::IsScalar(x.shape())``.

How to prevent it
-----------------
Check the rank of every input at the start of Compute, and call the op in a test with a scalar and with one dimension too many.

What it is often mistaken for
-----------------------------
A bug in TensorFlow: the CHECK is in ``tensor.h``, but it is the kernel that called the method.

Sources
-------
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place, told


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-rank-unchecked")))


def _finding(one: CodeDefect) -> Finding:
    name, method = one.names["tensor"], one.names["method"]
    what = {
        "rank": f"`{method}` aborts unless {name} has {told(one, 'rank')} dimensions",
        "scalar": f"`scalar()` aborts unless {name} has exactly one element",
        "dimension": f"`dim_size({told(one, 'rank')})` aborts if {name} does not have this dimension"
        if told(one, "rank") != "0"
        else f"`dim_size(0)` returns an arbitrary number if {name} is a scalar",
    }[one.case]
    wanted = {
        "rank": f"OP_REQUIRES that dims() == {told(one, 'rank')}",
        "scalar": "OP_REQUIRES that TensorShapeUtils::IsScalar, or that NumElements() == 1",
        "dimension": "OP_REQUIRES that dims() is large enough",
    }[one.case]
    return found(
        one,
        summary=f"{place(one)}: {what}, and `{one.function}`{of_op(one)} does not check it{example(one)}.",
        fixes=(Fix(text=f"Before the call: {wanted}."),),
    )


RULE = Rule(
    _match,
    title="A custom op does not check the rank of a tensor",
    severity="warning",
    needs=("code",),
    checks="ranks of tensors",
    hit="""
        defect op-rank-unchecked rank FooOp::Compute "tensor=input 0 (x)" method=matrix() rank=2 "witness=the rank of input 0 (x) = 1"
    """,
    miss="""
        defect op-index-unchecked high FooOp::Compute buffer=table index=row size=rows witness=
    """,
)
