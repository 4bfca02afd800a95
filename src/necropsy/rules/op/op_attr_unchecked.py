"""A custom op uses an attribute as a size, index or divisor, and nothing limits it.

What happened
-------------
The value of an attribute is used as a size, an index or a divisor. Neither the constructor of the kernel nor the op's registration (``"axis: int >= 0"``) limits it enough. The caller of the op sets attributes, and
any integer is allowed: 0 ends the process with SIGFPE when something is divided by it, negative and large values access other memory.

How to be sure
--------------
Call the op with the value in the finding, under ``necropsy run``.

How to fix it now
-----------------
In the constructor: ``OP_REQUIRES(context, stride_ > 0, errors::InvalidArgument("stride must be positive"))``. If the limit depends on the input, check it in Compute.

How to prevent it
-----------------
Register the least value: ``.Attr("stride: int >= 1")``. Test the op with 0, -1 and a huge number for each integer attribute.

What it is often mistaken for
-----------------------------
A bad input: the tensors are valid, and the crash comes with every one of them.

Sources
-------
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-attr-unchecked")))


def _finding(one: CodeDefect) -> Finding:
    """Cases: ``divisor``, ``high``, ``low``, ``range`` (of a memcpy), ``negative`` and ``huge`` (a size)."""
    names = one.names
    what = {
        "divisor": f"divides by {names.get('divisor')}, which may be 0",
        "negative": f"makes a {names.get('what')} of size {names.get('size')}, which may be negative",
        "huge": f"makes a {names.get('what')} of size {names.get('size')}, which may be huge",
    }.get(one.case, f"accesses `{names.get('buffer')}` at {names.get('index')}, which an attribute decides")
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} {what}: nothing limits the attribute{example(one)}.",
        fixes=(Fix(text='Check the attribute in the constructor, or register its least value: "int >= 1".'),),
    )


RULE = Rule(
    _match,
    title="A custom op does not check an attribute",
    severity="warning",
    needs=("code",),
    checks="attributes",
    hit="""
        defect op-attr-unchecked divisor FooOp::Compute divisor=stride_ "witness=attribute stride = 0"
    """,
    miss="""
        defect op-division-unchecked divisor FooOp::Compute divisor=rows witness=
    """,
)
