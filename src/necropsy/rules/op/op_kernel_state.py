"""Compute of a custom op changes a member of the kernel without a lock.

What happened
-------------
TensorFlow makes one kernel object for a node, and calls its ``Compute`` from several threads at once: parallel calls of a ``tf.function``, ``tf.data`` with parallel calls, a model server with several requests. A member that ``Compute``
changes is shared by all of them. Counters lose steps; a ``std::vector`` or map that two threads change at once is damaged, and the process crashes.

How to be sure
--------------
Build the op with ``-fsanitize=thread``, and call one ``tf.function`` with it from eight Python threads.

How to fix it now
-----------------
Make it a local variable of ``Compute``. If it has to last, guard it: a ``mutex`` member, and ``mutex_lock lock(mu_);`` around each use, or ``std::atomic`` for a counter.

How to prevent it
-----------------
Mark guarded members with ``TF_GUARDED_BY(mu_)`` and compile with clang's ``-Wthread-safety``.

What it is often mistaken for
-----------------------------
A crash of the allocator: the damaged container crashes where it is next used.

Sources
-------
- https://www.tensorflow.org/guide/create_op#define_the_op_interface
- https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-kernel-state")))


def _finding(one: CodeDefect) -> Finding:
    member, type_ = one.names["member"], one.names["type"]
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} changes the member `{member}` ({type_}) without a lock, and TensorFlow calls "
        "Compute of one kernel from several threads at once.",
        fixes=(
            Fix(
                text=f"Make `{member}` a local variable, or hold a mutex_lock around each use of it; for a counter, std::atomic is enough."
            ),
        ),
    )


RULE = Rule(
    _match,
    title="Compute of a custom op changes a member without a lock",
    severity="warning",
    needs=("code",),
    checks="members of kernels",
    hit="""
        defect op-kernel-state member FooOp::Compute member=calls_ type=int
    """,
    miss="""
        defect op-shared-write same "lambda in FooOp::Compute" location=total+=x(i) variable=total runner=Shard
    """,
)
