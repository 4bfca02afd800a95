"""A custom op uses a view, pointer or reference after its object is gone.

What happened
-------------
``absl::string_view``, ``const char*``, ``Span`` and references do not own what they show. The object was a temporary that is destroyed at the end of its statement, a local of a block or function that has ended, or an element of a vector
that has moved its elements since. What is read is freed memory: often still the old text, sometimes garbage, sometimes SIGSEGV. A lambda that another thread runs later has the same problem
with locals that it captures by reference.

How to be sure
--------------
Build the op with ``-fsanitize=address -fsanitize-address-use-after-scope`` and call it: the report names the object and where it was freed. clang reports some of these with ``-Wdangling``.

How to fix it now
-----------------
Keep the object in a variable that lives as long as the view: ``const std::string text = ...;``, then ``absl::string_view view = text;``. For a vector, use an index instead of a reference, or take the reference again
after it has grown. In a lambda that runs later, capture by value.

How to prevent it
-----------------
Compile with ``-Wdangling -Werror`` (clang) or ``-Wdangling-pointer -Wdangling-reference`` (gcc 13), and run the tests with AddressSanitizer.

What it is often mistaken for
-----------------------------
A damaged heap, or an error in what reads the text.

Sources
-------
- https://abseil.io/tips/1
- https://en.cppreference.com/w/cpp/container/vector#Iterator_invalidation
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place

_WHY = {
    "temporary": "`{view}` shows what `{of}` returns, which is destroyed at the end of this statement",
    "grown": "`{view}` refers to an element of `{of}`, which has grown since and may have moved its elements",
    "block": "`{view}` points into `{of}`, which is destroyed at the end of its block",
    "kept": "`{view}` keeps a view of `{of}`, which is destroyed when the function returns",
    "returned": "`{of}` refers to the local variable `{view}`, which is destroyed when the function returns",
    "scheduled": "a lambda given to `{of}` refers to the local variable `{view}`, and may run after the function has returned",
}
_FIX = {
    "temporary": "Keep the object itself in a variable, and make `{view}` a view of that variable.",
    "grown": "Use an index instead of `{view}`, or call reserve() on `{of}` before.",
    "block": "Declare `{of}` outside the block.",
    "kept": "Keep std::string in `{view}`.",
    "returned": "Return the object by value.",
    "scheduled": "Capture `{view}` by value, or move it into the lambda.",
}


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-dangling-view")))


def _finding(one: CodeDefect) -> Finding:
    return found(
        one,
        summary=f"{place(one)}: in `{one.function}`{of_op(one)}, {_WHY[one.case].format(**one.names)}.",
        fixes=(Fix(text=_FIX[one.case].format(**one.names)),),
    )


RULE = Rule(
    _match,
    title="A custom op uses a view of an object that is gone",
    severity="warning",
    needs=("code",),
    checks="views and references",
    hit="""
        defect op-dangling-view temporary FooOp::Compute view=text of=absl::StrCat(a,b)
    """,
    miss="""
        defect op-null-input returned FooOp::Compute pointer=preset call=FindPreset
    """,
)
