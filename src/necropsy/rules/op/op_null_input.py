"""A custom op dereferences a pointer that is null where a lookup fails or an optional input is missing.

What happened
-------------
A lookup can fail: ``Lookup`` of a resource returns a Status and leaves its pointer null, a function of the op's own returns ``nullptr``, ``find`` gives ``end()``. A list input with
``N: int >= 0`` may have no tensor at all. Here, the result is used without a test, so the process ends with SIGSEGV for a name, a key or an empty list that the caller decides.

How to be sure
--------------
Call the op with a name or key that does not exist, or with an empty list. ``necropsy run`` reports ``null-dereference``.

How to fix it now
-----------------
Write ``OP_REQUIRES_OK(context, LookupResource(...))``, or test the pointer: ``OP_REQUIRES(context, p != nullptr, errors::NotFound(...))``. For a list, require ``tensors.size() > 0``, or declare it with ``N: int >= 1``.

How to prevent it
-----------------
Let functions that search return ``StatusOr`` or ``std::optional``, which have to be opened.

What it is often mistaken for
-----------------------------
A use after free: there, the address of the fault is not near 0.

Sources
-------
- https://www.tensorflow.org/guide/create_op
- https://en.cppreference.com/w/cpp/container/map/find
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place

_WHY = {
    "lookup": "`{pointer}` is null if `{call}` fails, and its status does not end the function",
    "returned": "`{call}` returns null where it finds nothing, and `{pointer}` is not tested",
    "find": "`{call}` gives end() where it finds nothing, and `{pointer}` is not compared with it",
    "list": "the list `{pointer}` may be empty, because the op allows `{call}` to be 0",
}
_FIX = {
    "lookup": "Put the call into OP_REQUIRES_OK.",
    "returned": "Test it first: OP_REQUIRES(context, {pointer} != nullptr, errors::NotFound(...)).",
    "find": "Compare `{pointer}` with end() first, and return errors::NotFound.",
    "list": "Require that {pointer}.size() is at least 1, or declare `{call}: int >= 1`.",
}


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-null-input")))


def _finding(one: CodeDefect) -> Finding:
    return found(
        one,
        summary=f"{place(one)}: in `{one.function}`{of_op(one)}, {_WHY[one.case].format(**one.names)}.",
        fixes=(Fix(text=_FIX[one.case].format(**one.names)),),
    )


RULE = Rule(
    _match,
    title="A custom op dereferences a pointer that may be null",
    severity="warning",
    needs=("code",),
    checks="failed lookups",
    hit="""
        defect op-null-input lookup FooOp::Compute pointer=table call=Lookup
    """,
    miss="""
        defect op-status-ignored call FooOp::Compute call=Lookup variable=
    """,
)
