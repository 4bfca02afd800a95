"""A custom op reads a tensor as another type than its registration allows.

What happened
-------------
``flat<T>()``, ``matrix<T>()`` and the other views check the type of the tensor with a CHECK. The op declares the tensor with another type, or with an attribute that allows several, and
neither a ``TypeConstraint`` of the kernel nor a test in it limits them. For a tensor of another type, the process ends with ``Check failed: dtype() == expected_dtype``.

How to be sure
--------------
Call the op with a tensor of the type that the finding names.

How to fix it now
-----------------
Register the kernel with ``.TypeConstraint<float>("T")`` for the types that it can read, or make it a template over ``T`` and register one kernel per type. Where the declared type is wrong, correct
it in ``REGISTER_OP``.

How to prevent it
-----------------
Test the op with each type that its attribute allows.

What it is often mistaken for
-----------------------------
A wrong shape, which ends with a failed CHECK as well; its text names sizes, not types.

Sources
-------
- https://www.tensorflow.org/guide/create_op#polymorphism
- https://www.tensorflow.org/api_docs/cc/class/tensorflow/tensor
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-type-unchecked")))


def _finding(one: CodeDefect) -> Finding:
    """Cases: ``never`` (the type is not one of the allowed ones), ``sometimes`` (it is one of several)."""
    names = one.names
    which = f"`{names['tensor']}`, declared as `{names['declared']}`"
    fix = (
        f'Add .TypeConstraint<...>("{names["attribute"]}") to the registration of the kernel, or make it a template over the type.'
        if names["attribute"]
        else f"Read it as {names['types']}, or correct its type in REGISTER_OP."
    )
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} reads {which}, with `{names['access']}`. The registration allows "
        f"{names['types']} there, for which the process aborts with a failed CHECK.",
        fixes=(Fix(text=fix),),
    )


RULE = Rule(
    _match,
    needs=("code",),
    checks="types of tensors",
    hit="""
        defect op-type-unchecked sometimes FooOp::Compute access=flat<float> as=float "tensor=input x" declared=T "types=half, double" attribute=T
    """,
    miss="""
        defect op-check-on-input check FooOp::Compute macro=CHECK condition=n>0
    """,
)
