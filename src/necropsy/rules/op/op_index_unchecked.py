"""A custom op uses a value of a tensor as an index, and nothing compares it with the size.

What happened
-------------
The index comes from the values of an input. Nothing on the way to the access compares it with the size of what is indexed, or only one end is compared. TensorFlow's tensors and Eigen's maps do not
check indices in release builds: a wrong one reads or writes other memory. A write destroys what is there, and the process may crash much later and elsewhere.

How to be sure
--------------
Call the op with the value in the finding, under ``necropsy run``, in a build with ``-fsanitize=address``. A large value, such as 300,000,000, gives SIGSEGV without a sanitizer.

How to fix it now
-----------------
Before the access: ``OP_REQUIRES(context, FastBoundsCheck(index, limit), errors::InvalidArgument(...))``. It covers negative values too. Read the value once into a variable, so that what was checked is
what is used.

How to prevent it
-----------------
Test the op with an index equal to the size, and with -1.

What it is often mistaken for
-----------------------------
Heap corruption by TensorFlow: the crash is often in its allocator, but the write came from the op.

Sources
-------
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-index-unchecked")))


def _finding(one: CodeDefect) -> Finding:
    """Cases: ``high`` (not below the size), ``low`` (negative), ``range`` (of a memcpy)."""
    limit = "it may be negative" if one.case == "low" else f"it may reach past the end, which is {one.names['size']}"
    return found(
        one,
        summary=f"{place(one)}: `{one.names['buffer']}` is indexed with {one.names['index']} in `{one.function}`{of_op(one)}, a value that the "
        f"caller of the op decides; {limit}{example(one)}.",
        fixes=(Fix(text="Before the access: OP_REQUIRES that FastBoundsCheck(index, size) holds."),),
    )


RULE = Rule(
    _match,
    title="A custom op does not check an index that it reads from a tensor",
    severity="warning",
    needs=("code",),
    checks="indices from tensors",
    hit="""
        defect op-index-unchecked high FooOp::Compute buffer=table "index=input 1 (rows)(i)" "size=dimension 0 of input 0 (table)" "witness=input 1 (rows)(i) = 1"
    """,
    miss="""
        defect op-element-unchecked high FooOp::Compute buffer=factors index=0 size=0 witness=
    """,
)
