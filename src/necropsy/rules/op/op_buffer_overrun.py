"""A custom op reads or writes past the end of a buffer.

What happened
-------------
An access, a loop or a ``memcpy`` goes past the end of its buffer for some valid input. An *error* happens for every input that reaches the line with at least one element; a *warning* needs the sizes in
the finding. Past the end lie other tensors, or the allocator's own data.

How to be sure
--------------
Call the op under ``necropsy run`` in a build with ``-fsanitize=address``, which names the access and the allocation.

How to fix it now
-----------------
Stop the loop one element earlier (``<`` instead of ``<=``, ``i + 1 < n``), index dimensions in their order, and give ``memcpy`` the size of the smaller buffer with ``sizeof`` of its own elements.

How to prevent it
-----------------
Run the op's tests with ``-fsanitize=address``.

What it is often mistaken for
-----------------------------
Heap corruption by TensorFlow: the crash comes later, when the allocator finds its data destroyed.

Sources
-------
- https://clang.llvm.org/docs/AddressSanitizer.html
- https://www.tensorflow.org/guide/create_op
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, example, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-buffer-overrun")))


def _finding(one: CodeDefect) -> Finding:
    index, size = one.names["index"], one.names["size"]
    what = {
        "high": f"is accessed at {index}, and has only {size} elements",
        "low": f"is accessed at {index}, which may be negative",
        "range": f"has {size} bytes, and {one.names.get('bytes', '')} bytes from byte {index} on are accessed",
    }[one.case]
    return found(
        one,
        summary=f"{place(one)}: `{one.names['buffer']}` {what}, in `{one.function}`{of_op(one)}{example(one)}.",
        fixes=(Fix(text="Limit the loop or the number of bytes to the size of the buffer."),),
    )


RULE = Rule(
    _match,
    title="A custom op accesses memory past the end of a buffer",
    severity="warning",
    needs=("code",),
    checks="bounds of buffers",
    hit="""
        defect op-buffer-overrun high FooOp::Compute buffer=x "index=i + 1" "size=the number of elements of input 0 (x)" witness=
    """,
    miss="""
        defect op-element-unchecked high FooOp::Compute buffer=factors index=0 size=0 witness=
    """,
)
