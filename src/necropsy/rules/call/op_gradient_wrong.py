"""The gradient of the op is not the derivative of its result.

What happened
-------------
A gradient is registered for the op (``tf.RegisterGradient``, ``tf.custom_gradient``), and it differs by more than a tenth from the change of the result that a small change of the input makes. Training goes on without an error, in a wrong direction.

How to be sure
--------------
The test of the finding compares both at one point: the sum of the results, each times a weight, is computed for inputs a small step apart. A gradient is only called wrong at points where steps of two sizes, and steps to either side, agree with each other within a fiftieth, and at two such points. Compare with ``tf.test.compute_gradient`` in float64.

How to fix it now
-----------------
Correct the function that is registered, or build the result from TensorFlow's own ops, whose gradients are known. Frequent mistakes: ``grad`` is not multiplied in, a factor or a sign is missing, the gradient is that of another input, the sum over a broadcast dimension is missing.

How to prevent it
-----------------
Compare the gradient with ``tf.test.compute_gradient`` in the op's tests, with inputs of different shapes, and each attribute.

What it is often mistaken for
-----------------------------
A learning rate that is too large or too small. A gradient that is meant to differ (clipped, reversed, passed straight through a rounding) looks the same: then the finding is no bug.

Sources
-------
- https://www.tensorflow.org/guide/create_op#implement_the_gradient_in_python
- https://www.tensorflow.org/api_docs/python/tf/test/compute_gradient
"""

from __future__ import annotations

from necropsy.model import CallComparison, Culprit, Evidence, Fix
from necropsy.rule import Finding, Rule


def _match(comparison: CallComparison) -> Finding | None:
    if len(comparison.gradient) != 3 or comparison.varies or comparison.is_stateful:
        return None
    name, gradient, difference = comparison.gradient
    return Finding(
        evidence=(
            Evidence(claim="the derivative by the gradient", seen=gradient, where=f"one direction of input {name}"),
            Evidence(
                claim="the derivative by finite differences is another one",
                seen=difference,
                where="the same direction, at the same point",
            ),
        ),
        summary=f"The gradient of {comparison.target} for its input {name} gives {gradient} where its results change by {difference}.",
        confidence="likely",
        culprit=Culprit(op=comparison.target),
        fixes=(
            Fix(text=f"Correct the gradient that is registered for {comparison.target}, unless it is meant to differ."),
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    hit="""{"target": "squares", "call": "target(x=tf.constant(np.full([3], 1.0, np.float32)))", "runs": 3, "gradient": ["x", "0.41", "0.82"]}""",
    miss="""{"target": "noise", "call": "target(x=tf.constant(np.full([3], 1.0, np.float32)))", "runs": 3, "varies": true, "gradient": ["x", "0.41", "0.82"]}""",
)
