"""A custom op reads a fixed element of a tensor that may have fewer elements.

What happened
-------------
The code reads element 0, 1, ... of a tensor, and nothing makes sure that the tensor has so many. An empty tensor is valid input for every op. The access reads memory behind the tensor's buffer, or
through a null pointer, since an empty tensor has no buffer.

How to be sure
--------------
Call the op with an empty tensor, under ``necropsy run``, in a build with ``-fsanitize=address``.

How to fix it now
-----------------
Before the access: ``OP_REQUIRES(context, x.NumElements() > 0, errors::InvalidArgument("x must not be empty"))``, with the number that the code needs.

How to prevent it
-----------------
Test the op with an empty tensor for every input.

What it is often mistaken for
-----------------------------
A wrong result: reading a few bytes too far rarely crashes, and gives numbers of other tensors.

Sources
-------
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place, told


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-element-unchecked")))


def _finding(one: CodeDefect) -> Finding:
    """Cases: ``high``, ``low`` and ``range`` (of a memcpy)."""
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} reads element {told(one, 'index')} of `{one.names['buffer']}`, which may have fewer"
        f"{example(one)}.",
        fixes=(Fix(text="Before the access: OP_REQUIRES that the tensor has enough elements."),),
    )


RULE = Rule(
    _match,
    title="A custom op reads an element of a tensor that may not be there",
    severity="warning",
    needs=("code",),
    checks="fixed elements of tensors",
    hit="""
        defect op-element-unchecked high FooOp::Compute buffer=factors index=0 "size=the number of elements of input 1 (factors)" "witness=the number of elements of input 1 (factors) = 0"
    """,
    miss="""
        defect op-index-unchecked high FooOp::Compute buffer=table index=row size=rows witness=
    """,
)
