"""OP_REQUIRES in a lambda returns from the lambda only, and the kernel goes on.

What happened
-------------
``OP_REQUIRES`` sets the status of the context and executes ``return``. Inside a lambda, that returns from the lambda. The function that called it, directly or through ``Shard``, continues with the
next statement as if the check had passed: it uses the values that were just refused, or outputs that were never filled.

How to be sure
--------------
Call the op with an input that the check refuses: the code behind the lambda still runs, which a log message there shows.

How to fix it now
-----------------
Check before the lambda runs. Or look at the status behind it: ``if (!context->status().ok()) return;``. Or let the lambda return a Status, and use ``OP_REQUIRES_OK`` outside.

How to prevent it
-----------------
Keep ``OP_REQUIRES`` out of lambdas, and check inputs before work is divided among threads.

What it is often mistaken for
-----------------------------
A missing check: it is there, but it does not stop the kernel.

Sources
-------
- https://www.tensorflow.org/guide/create_op#conditional_checks_and_validation
- https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/op_requires.h
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-requires-in-lambda")))


def _finding(one: CodeDefect) -> Finding:
    macro, outer = one.names["macro"], one.names["outer"]
    return found(
        one,
        summary=f"{place(one)}: `{macro}` in a lambda returns from the lambda only. `{outer}`{of_op(one)} goes on with "
        f"`{one.names['after']}` although the check has failed.",
        fixes=(
            Fix(
                text="Check before the lambda runs, or write `if (!context->status().ok()) return;` behind the call that runs it."
            ),
        ),
    )


RULE = Rule(
    _match,
    title="OP_REQUIRES in a lambda does not stop the kernel",
    severity="warning",
    needs=("code",),
    checks="OP_REQUIRES in lambdas",
    hit="""
        defect op-requires-in-lambda lambda "lambda in FooOp::Compute" macro=OP_REQUIRES outer=FooOp::Compute after=done();
    """,
    miss="""
        defect op-status-ignored call FooOp::Compute call=allocate_output variable=
    """,
)
