"""The shape function of the op infers a shape that its output does not have.

What happened
-------------
TensorFlow asks the op's shape function for the shape of an output while it builds a graph (in ``tf.function``, in Keras, for a saved model), and believes the answer. The kernel then made an output of another shape. Layers are built for the wrong
sizes, checks of shapes pass or fail wrongly, and an optimizer that counts on the shape can read beyond the tensor.

How to be sure
--------------
Build the call in a graph and look at the ``shape`` of the result, then make it eagerly: the test of the finding does both. Sizes that the shape function leaves unknown contradict nothing.

How to fix it now
-----------------
Correct the function that is given to ``SetShapeFn``, or the shape that ``Compute`` gives to ``allocate_output``. Where a size depends on values that are not known yet, return ``c->UnknownDim()``, or ``c->UnknownShape()`` for the
whole output: that is always right.

How to prevent it
-----------------
Compare both shapes in the op's tests, with inputs of different ranks, sizes of 0 and 1, and each attribute. Let ``Compute`` and the shape function share the code that computes the shape.

What it is often mistaken for
-----------------------------
A bug in Keras or in the layer after the op: the error is raised there, where two shapes do not fit.

Sources
-------
- https://www.tensorflow.org/guide/create_op#shape_functions_in_c
- https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/shape_inference.h
"""

from __future__ import annotations

from necropsy.model import CallComparison, Culprit, Evidence, Fix
from necropsy.rule import Finding, Rule


def _match(comparison: CallComparison) -> Finding | None:
    if len(comparison.shapes) != 2:
        return None
    inferred, real = comparison.shapes
    return Finding(
        evidence=(
            Evidence(
                claim="the shape function infers the shape of an output", seen=inferred, where="the call in a graph"
            ),
            Evidence(claim="the output has another shape", seen=real, where="the call, made eagerly"),
        ),
        summary=f"The shape function of {comparison.target} infers {inferred} for an output whose shape is {real}.",
        confidence="certain",
        culprit=Culprit(op=comparison.target),
        fixes=(Fix(text=f"Correct the shape function of {comparison.target}, or the shape given to allocate_output."),),
    )


RULE = Rule(
    _match,
    hit="""{"target": "PairRows", "call": "ops.PairRows(x=tf.constant(np.full([4, 2], 1.0, np.float32)))", "runs": 3, "shapes": ["(4, 2)", "[2, 2]"]}""",
    miss="""{"target": "PairRows", "call": "ops.PairRows(x=tf.constant(np.full([4, 2], 1.0, np.float32)))", "runs": 3}""",
)
