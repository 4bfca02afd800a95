"""The shape function of a custom op says nothing of its outputs.

What happened
-------------
The op has a shape function, but it says of every output that the shape is unknown, or returns without a word. Graphs are then built with unknown shapes, as without a shape function, and wrong inputs are
found at run time only, in the kernel.

How to be sure
--------------
In a ``tf.function``, print the ``shape`` of the op's result: it is ``<unknown>``.

How to fix it now
-----------------
Say what is known: the rank (``c->UnknownShapeOfRank(1)``), or dimensions of the inputs (``c->Vector(c->Dim(c->input(0), 0))``). Check the inputs too, with ``c->WithRank``.

How to prevent it
-----------------
Test the shape within a ``tf.function`` with ``tf.TensorSpec`` inputs.

What it is often mistaken for
-----------------------------
A defect of the layer that follows, which complains about an unknown rank.

Sources
-------
- https://www.tensorflow.org/guide/create_op#shape_functions_in_c
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-shape-function-weak")))


def _finding(one: CodeDefect) -> Finding:
    how = "sets no output" if one.case == "nothing" else "says that every shape is unknown"
    return found(
        one,
        summary=f"{place(one)}: the shape function of the op `{one.names['op']}` {how}, so TensorFlow does not know the shape of "
        f"`{one.names['outputs']}` before it runs.",
        fixes=(Fix(text="Set what is known of each output: its rank, or dimensions that come from the inputs."),),
    )


RULE = Rule(
    _match,
    severity="note",
    needs=("code",),
    checks="shape functions",
    hit="""
        defect op-shape-function-weak unknown Foo op=Foo outputs=y
    """,
    miss="""
        defect op-no-shape-function none Foo op=Foo outputs=y
    """,
)
