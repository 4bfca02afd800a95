"""The op changes one of its inputs.

What happened
-------------
After the call, an input tensor held other elements than before. Inputs of an op are read-only: the same tensor may be the input of other ops, a variable's value or a constant that TensorFlow shares, and all of them change with it. The
program goes on with wrong numbers, and no error is raised.

How to be sure
--------------
Compare the input before and after the call, as the test of the finding does: ``before = x.numpy()``, make the call, then compare ``x.numpy()`` with it. Reference variables, which may be changed, are not looked at.

How to fix it now
-----------------
Write to an output or a temporary, not to the input. To use the input's memory where nobody else does, ask for it: ``context->forward_input_or_allocate_output({0}, 0, shape, &output)``. Remove the ``const_cast`` or the pointer that
lets the kernel write to what ``context->input(0)`` returns; a tensor that is copied by ``Tensor copy = context->input(0)`` shares the memory.

How to prevent it
-----------------
Use ``context->input(i)`` as ``const Tensor&``, and ``tensor.flat<T>()`` of const tensors only. Sort, normalise and accumulate in copies that are made with ``tensor::DeepCopy``.

What it is often mistaken for
-----------------------------
An op that forwards its input on purpose: TensorFlow allows that only while the op has the only reference to it, and the caller held one here.

Sources
-------
- https://www.tensorflow.org/guide/create_op
- https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/op_kernel.h
"""

from __future__ import annotations

from necropsy.model import CallComparison, Culprit, Evidence, Fix
from necropsy.rule import Finding, Rule


def _match(comparison: CallComparison) -> Finding | None:
    if not comparison.modified or comparison.is_python:
        return None
    names = ", ".join(f"`{one}`" for one in comparison.modified)
    return Finding(
        evidence=(
            Evidence(
                claim="an input holds other elements after the call",
                seen=", ".join(comparison.modified),
                where=f"the inputs before and after {comparison.target}",
            ),
        ),
        summary=f"{comparison.target} changes its input {names}, which other ops may be using.",
        confidence="certain",
        culprit=Culprit(op=comparison.target),
        fixes=(Fix(text=f"Write to an output or a copy instead of the input {names}."),),
    )


RULE = Rule(
    _match,
    hit="""{"target": "SortRows", "call": "ops.SortRows(x=tf.constant(np.array([3, 1, 2], np.int32)))", "runs": 3, "modified": ["x"]}""",
    miss="""{"target": "sort_in_place", "call": "sort_in_place(values=np.array([3, 1, 2], np.int32))", "runs": 3, "modified": ["values"], "is_python": true}""",
)
