"""A custom op throws away the Status of a call that can fail.

What happened
-------------
``allocate_output``, ``allocate_temp``, ``GetAttr`` and functions of the op's own report failure through the Status that they return. Here nothing looks at it. After a failure, the variable that
the call should have filled is unchanged: a null pointer, an empty tensor or an attribute's default. The kernel goes on, and crashes or computes with that.

How to be sure
--------------
Compile with ``-Wunused-result``: ``absl::Status`` is marked ``[[nodiscard]]`` in recent releases of TensorFlow.

How to fix it now
-----------------
Put the call into ``OP_REQUIRES_OK(context, ...)``, or into ``TF_RETURN_IF_ERROR(...)`` in a function that returns a Status. In ``ComputeAsync``, use ``OP_REQUIRES_OK_ASYNC(context, ..., done)``.

How to prevent it
-----------------
Compile with ``-Werror=unused-result``. Where failure really does not matter, say so: ``status.IgnoreError()``.

What it is often mistaken for
-----------------------------
A null pointer without a cause: the crash comes lines after the call that failed.

Sources
-------
- https://www.tensorflow.org/guide/create_op
- https://abseil.io/docs/cpp/guides/status
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-status-ignored")))


def _finding(one: CodeDefect) -> Finding:
    """Cases: ``call`` (the Status is not kept), ``variable`` (nothing asks the variable that holds it)."""
    call, variable = one.names["call"], one.names["variable"]
    how = f"is kept in `{variable}`, and nothing looks at it" if variable else "is thrown away"
    return found(
        one,
        summary=f"{place(one)}: the Status of `{call}` in `{one.function}`{of_op(one)} {how}. If the call fails, the function "
        "goes on without what it asked for.",
        fixes=(
            Fix(
                text=f"Put `{call}` into OP_REQUIRES_OK, or into TF_RETURN_IF_ERROR in a function that returns a Status."
            ),
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("code",),
    checks="ignored statuses",
    hit="""
        defect op-status-ignored call FooOp::Compute call=allocate_output variable=
    """,
    miss="""
        defect op-requires-in-lambda lambda "lambda in FooOp::Compute" macro=OP_REQUIRES outer=FooOp::Compute after=done();
    """,
)
