"""A custom op writes a string into an array that may be too small for it.

What happened
-------------
``sprintf``, ``strcpy`` and ``strcat`` write as many bytes as the text has, whatever the size of the array behind their first argument. Each conversion of the format is bounded by what it
can write at most (``%d`` 11 characters, ``%lld`` 20, ``%s`` as many as the string has). Where the sum exceeds the array, the bytes behind it are
overwritten: on the stack, these are other variables and the return address. The process dies with ``*** stack smashing detected ***``, ``*** buffer overflow detected ***``, or at random later.

How to be sure
--------------
Call the op with a string of 1,000 characters. Compiled with ``-D_FORTIFY_SOURCE=2 -O2``, it aborts on this line.

How to fix it now
-----------------
Use ``absl::StrCat`` or ``std::string``. If the array must stay, write with ``snprintf(buffer, sizeof(buffer), ...)`` and check what it returns.

How to prevent it
-----------------
Compile with ``-Wformat-overflow=2 -D_FORTIFY_SOURCE=2 -fstack-protector-strong``.

What it is often mistaken for
-----------------------------
A stack overflow: that is too much use of the stack, this is a write past one array on it.

Sources
-------
- https://man7.org/linux/man-pages/man3/sprintf.3.html
- https://gcc.gnu.org/onlinedocs/gcc/Warning-Options.html#index-Wformat-overflow
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-string-overflow")))


def _finding(one: CodeDefect) -> Finding:
    call, buffer, size = one.names["call"], one.names["buffer"], one.numbers["size"]
    much = {
        "fixed": f"at least {one.numbers['least']:,} bytes, and the end of it is always outside",
        "number": f"up to {one.numbers.get('most', 0):,} bytes for large numbers",
        "data": f"the whole of `{one.names['text']}`, and no condition limits its length",
    }[one.case]
    return found(
        one,
        summary=f"{place(one)}: `{call}` in `{one.function}`{of_op(one)} writes to `{buffer}`, which has {size:,} bytes: {much}.",
        fixes=(
            Fix(
                text=f"Build the text with absl::StrCat or std::string, or write it with snprintf and sizeof({buffer}), and "
                "check what snprintf returns."
            ),
        ),
    )


RULE = Rule(
    _match,
    title="A custom op writes a string into an array that may be too small",
    severity="warning",
    needs=("code",),
    checks="sprintf and strcpy",
    hit="""
        defect op-string-overflow data FooOp::Compute call=sprintf buffer=label text=name size=32 least=3
    """,
    miss="""
        defect op-stack-allocation alloca FooOp::Compute variable= size=n element=1 fit=8388608
    """,
)
