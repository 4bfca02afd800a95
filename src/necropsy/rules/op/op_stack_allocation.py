"""A custom op takes memory from the stack whose amount the data decides.

What happened
-------------
An array whose length is a variable (``float row[width]``), or ``alloca``, takes its memory from the stack. Nothing limits the size, so an input that is large enough takes
more than the stack has: the first access behind its end ends the process with SIGSEGV. There is no error that the op could return. In a loop, each ``alloca`` takes
memory again, and all of it is freed only when the function returns.

How to be sure
--------------
Compile with ``-Wvla -Walloca``. Call the op with an input that makes the size exceed 8 MiB.

How to fix it now
-----------------
Use ``std::vector<float> row(width)``, or ``allocate_temp`` of the op's context, which returns a Status where memory runs out.

How to prevent it
-----------------
Compile with ``-Werror=vla -Werror=alloca``. Arrays of variable length are not part of C++.

What it is often mistaken for
-----------------------------
Recursion, which also fills the stack. A null pointer: the address of the fault is just below the stack.

Sources
-------
- https://gcc.gnu.org/onlinedocs/gcc/Variable-Length.html
- https://man7.org/linux/man-pages/man3/alloca.3.html
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-stack-allocation")))


def _finding(one: CodeDefect) -> Finding:
    variable, size = one.names["variable"], one.names["size"]
    what = f"the array `{variable}` has the length `{size}`" if variable else f"alloca takes `{size}` bytes"
    limit = one.numbers.get("limit")
    limited = f"which is at most {limit:,}" if limit is not None else "which no condition limits"
    instead = f"std::vector for `{variable}`" if variable else "std::vector or std::unique_ptr instead of alloca"
    return found(
        one,
        summary=f"{place(one)}: in `{one.function}`{of_op(one)}, {what}, {limited}. A stack of {one.stack or 0:,} bytes holds "
        f"fewer than {one.numbers['fit']:,} elements of {one.numbers['element']:,} byte{'s' if one.numbers['element'] > 1 else ''}.",
        fixes=(Fix(text=f"Use {instead}: the memory is then on the heap."),),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("code",),
    checks="arrays of variable length",
    hit="""
        defect op-stack-allocation array FooOp::Compute variable=row size=width element=4 fit=2097152
    """,
    miss="""
        defect op-large-frame locals Op::Compute bytes=40000000 largest=40000000 variables=table type=float[10000000]
    """,
)
