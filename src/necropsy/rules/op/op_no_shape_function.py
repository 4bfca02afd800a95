"""A custom op has no shape function.

What happened
-------------
``REGISTER_OP`` has no ``SetShapeFn``. TensorFlow then knows nothing of the shape of the outputs until the op has run: ``tf.function`` builds graphs with unknown shapes, layers that need a known size refuse them, and
wrong inputs are found at run time only, in the kernel.

How to be sure
--------------
In a ``tf.function``, print the ``shape`` of the op's result: it is ``<unknown>``.

How to fix it now
-----------------
Add ``.SetShapeFn(shape_inference::UnchangedShape)`` where the output has the shape of the input, or a lambda that computes it: ``c->set_output(0, c->Vector(c->Dim(c->input(0), 0)));``.

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
    return several(map(_finding, defects(environment, "op-no-shape-function")))


def _finding(one: CodeDefect) -> Finding:
    return found(
        one,
        summary=f"{place(one)}: the op `{one.names['op']}` has no shape function, so TensorFlow does not know the shape of "
        f"`{one.names['outputs']}` before it runs.",
        fixes=(Fix(text="Add .SetShapeFn(...) to REGISTER_OP."),),
    )


RULE = Rule(
    _match,
    severity="note",
    needs=("code",),
    checks="shape functions",
    hit="""
        defect op-no-shape-function none Foo op=Foo outputs=y
    """,
    miss="""
        defect op-shape-function-weak unknown Foo op=Foo outputs=y
    """,
)
