"""A path through Compute leaves an output of the op unset, or fills it in part only.

What happened
-------------
``Compute`` has to set each output, or the status to an error. Where a path returns without either, TensorFlow ends the step with ``Missing 0-th output from`` and the node's name, or the kernel that
follows reads an empty tensor. ``allocate_output`` does not clear the memory: elements that no path writes keep what was there before, which may be data of another request.

How to be sure
--------------
Call the op with the input that takes this path: an empty tensor, as a rule. For an output that is filled in part, call it twice and compare.

How to fix it now
-----------------
Allocate the output before the first ``return``; for an empty input, an empty output or a defined value. Clear what is filled in part only: ``output->flat<T>().setZero();``.

How to prevent it
-----------------
Test the op with empty inputs and with each value of its attributes.

What it is often mistaken for
-----------------------------
A numerical error: values that were never written look like numbers.

Sources
-------
- https://www.tensorflow.org/guide/create_op
- https://www.tensorflow.org/api_docs/cc/class/tensorflow/tensor
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place

_WHY = {
    "return": "returns here before the output `{outputs}` is set, without an error",
    "never": "never sets the output `{outputs}`, though it sets the others",
    "sometimes": "sets the output `{outputs}` only if this condition holds",
    "part": "writes the elements of the output `{outputs}` only where a condition holds, and allocate_output does not clear the others",
}
_FIX = {
    "part": "Write `{outputs}` in the other case too, or clear it first with setZero().",
    "sometimes": "Allocate `{outputs}` in the other case too, with no elements if there is nothing to say.",
}


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-output-unset")))


def _finding(one: CodeDefect) -> Finding:
    fix = _FIX.get(one.case, "Allocate `{outputs}` on every path, or set an error with OP_REQUIRES.")
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} {_WHY[one.case].format(**one.names)}.",
        fixes=(Fix(text=fix.format(**one.names)),),
    )


RULE = Rule(
    _match,
    title="A path through Compute leaves an output of the op unset",
    severity="warning",
    needs=("code",),
    checks="outputs",
    hit="""
        defect op-output-unset return FooOp::Compute outputs=mean
    """,
    miss="""
        defect op-done-not-called return FooOp::ComputeAsync done=done macro=
    """,
)
