"""A path of ComputeAsync never calls done, or calls it twice.

What happened
-------------
TensorFlow waits for the callback of an asynchronous kernel. A path that returns without a call of ``done`` leaves the step waiting: the program hangs without a message. ``OP_REQUIRES`` returns like this; only ``OP_REQUIRES_ASYNC`` calls
``done`` first. A second call releases what has been released already, and crashes.

How to be sure
--------------
Call the op with the input that takes this path: the call does not return. ``necropsy attach`` shows that all threads wait.

How to fix it now
-----------------
Use ``OP_REQUIRES_ASYNC(context, condition, status, done)`` and ``OP_REQUIRES_OK_ASYNC``. Before each other ``return``, call ``done();`` once. After a call of ``done``, return.

How to prevent it
-----------------
Test each error path of the op with a time limit.

What it is often mistaken for
-----------------------------
A deadlock of the op's own locks, or a slow device.

Sources
-------
- https://www.tensorflow.org/guide/create_op
- https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/op_kernel.h
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place

_WHY = {
    "return": "returns here without a call of `{done}`, so that the step waits for ever",
    "end": "ends without a call of `{done}`, so that the step waits for ever",
    "requires": "uses `{macro}`, which returns without a call of `{done}`, so that the step waits for ever",
    "twice": "calls `{done}` here although it was called before on the same path",
}
_FIX = {
    "requires": "Use `{macro}_ASYNC`, with `{done}` as its last argument.",
    "twice": "Return after the first call of `{done}`.",
}


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-done-not-called")))


def _finding(one: CodeDefect) -> Finding:
    fix = _FIX.get(one.case, "Call `{done}()` once before it returns.")
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} {_WHY[one.case].format(**one.names)}.",
        fixes=(Fix(text=fix.format(**one.names)),),
    )


RULE = Rule(
    _match,
    title="A path of ComputeAsync does not call done exactly once",
    severity="warning",
    needs=("code",),
    checks="callbacks of asynchronous kernels",
    hit="""
        defect op-done-not-called requires FooOp::ComputeAsync done=done macro=OP_REQUIRES
    """,
    miss="""
        defect op-output-unset return FooOp::Compute outputs=mean
    """,
)
