"""A custom op ends the process with CHECK or assert where the caller passes something unexpected.

What happened
-------------
``CHECK`` logs ``Check failed:`` and calls ``abort()``; ``assert`` does so too unless the op is compiled with ``-DNDEBUG``. Both are meant for what can only be wrong because of a bug in the op itself. Here, the condition depends
on the shape or values of an input, or on an attribute, so the caller of the op decides whether the process survives. In a server, one request ends all others.

How to be sure
--------------
Call the op with an input for which the condition is false: the process ends with SIGABRT, and ``necropsy run`` reports ``check-failed`` or ``assertion-failed``.

How to fix it now
-----------------
In ``Compute``, write ``OP_REQUIRES(context, CONDITION, errors::InvalidArgument(...))``. In a helper, return a Status, and call it under ``OP_REQUIRES_OK``.

How to prevent it
-----------------
Test the op with inputs of wrong shape, with empty inputs and with values out of range. Keep ``DCHECK`` for the op's own invariants.

What it is often mistaken for
-----------------------------
A crash of TensorFlow: the log names the file and line of the check.

Sources
-------
- https://www.tensorflow.org/guide/create_op#conditional_checks_and_validation
- https://abseil.io/docs/cpp/guides/logging#CHECK
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-check-on-input")))


def _finding(one: CodeDefect) -> Finding:
    macro, condition = one.names["macro"], one.names["condition"]
    unless = ", unless it is compiled with -DNDEBUG" if one.case == "assert" else ""
    return found(
        one,
        summary=f"{place(one)}: `{macro}({condition})` in `{one.function}`{of_op(one)} depends on what the caller of the op passes. "
        f"Where it does not hold, the whole process aborts{unless}.",
        fixes=(
            Fix(
                text=f"Use OP_REQUIRES with errors::InvalidArgument instead of {macro}; in a function without the context, return a Status."
            ),
        ),
    )


RULE = Rule(
    _match,
    title="A custom op aborts the process on an unexpected input",
    severity="warning",
    needs=("code",),
    checks="CHECK and assert",
    hit="""
        defect op-check-on-input check FooOp::Compute macro=CHECK_EQ condition="a.NumElements(), b.NumElements()"
    """,
    miss="""
        defect op-exception throw FooOp::Compute what=std::runtime_error in=FooOp::Compute
    """,
)
