"""A custom op uses values of a tensor as the start or end of a range, and nothing checks them.

What happened
-------------
Row splits, starts, ends or lengths are read from an input, and decide which part of a buffer a loop or a ``memcpy`` goes through. Nothing makes sure that they are in order, not negative, and not past the end of the
buffer. A single wrong value makes the op read or write other memory.

How to be sure
--------------
Call the op with the value in the finding, under ``necropsy run``, in a build with ``-fsanitize=address``.

How to fix it now
-----------------
Check all of them before the first one is used: the first is 0, each is at least as large as the one before it, and the last one equals the number of elements. For starts and lengths: ``start >= 0``, ``length >= 0`` and
``start <= size - length``.

How to prevent it
-----------------
Test the op with offsets in descending order, with a negative one, and with one past the end.

What it is often mistaken for
-----------------------------
An index that is not checked (``op-index-unchecked``): here a whole range is wrong.

Sources
-------
- https://www.tensorflow.org/guide/ragged_tensor
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-offset-unchecked")))


def _finding(one: CodeDefect) -> Finding:
    """Cases: ``high``, ``low``, ``range`` (of a memcpy)."""
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} accesses `{one.names['buffer']}` at {one.names['index']}, within bounds that are "
        f"values of a tensor; nothing compares them with the end, which is {one.names['size']}{example(one)}.",
        fixes=(Fix(text="Check the order and the end of the offsets with OP_REQUIRES before the first one is used."),),
    )


RULE = Rule(
    _match,
    title="A custom op does not check row splits or offsets",
    severity="warning",
    needs=("code",),
    checks="offsets from tensors",
    hit="""
        defect op-offset-unchecked high FooOp::Compute buffer=values index=i "size=the number of elements of input 0 (values)" "witness=input 1 (splits)(1) = 5"
    """,
    miss="""
        defect op-index-unchecked high FooOp::Compute buffer=table index=row size=rows witness=
    """,
)
