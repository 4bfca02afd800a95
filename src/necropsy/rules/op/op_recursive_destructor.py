"""The destructor of a type in a custom op calls itself, once for each level of the data.

What happened
-------------
An object owns objects of its own type, through ``std::unique_ptr``, ``std::shared_ptr`` or a container of these. The compiler's destructor frees the members, whose destructors
free theirs: each level takes part of the stack. A list with 100,000 elements fills 8 MiB, and the process ends with SIGSEGV where the head of the list is freed, far
from the code that built it.

How to be sure
--------------
Call the op with an input that makes a chain of 1,000,000 objects, under ``necropsy run``: the report says ``stack-overflow-recursion`` and names the destructor.

How to fix it now
-----------------
Free the children in a loop: in the destructor, move them into a ``std::vector`` and take one after the other out of it. A declared destructor suppresses the moves and copies that the
compiler would make, so declare those too. Or keep the objects in one ``std::vector``, and let them refer to each other by index.

How to prevent it
-----------------
Test the op with an input that nests 100,000 levels deep.

What it is often mistaken for
-----------------------------
A damaged heap, because the process dies while it frees memory. A double free: there, the message names it.

Sources
-------
- https://en.cppreference.com/w/cpp/memory/unique_ptr
- https://isocpp.github.io/CppCoreGuidelines/CppCoreGuidelines#rc-five
"""

from __future__ import annotations

from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    return several(map(_finding, defects(environment, "op-recursive-destructor")))


def _finding(one: CodeDefect) -> Finding:
    name, members = one.names["type"], one.names["members"]
    through = f" through `{one.names['through']}`" if one.names.get("through") else ""
    return found(
        one,
        summary=f"{place(one)}: `{name}`{of_op(one)} owns objects of its own type in `{members}`{through}, so its destructor calls "
        f"itself once for each level. A level takes some {one.numbers['bytes']:,} bytes: at most {one.numbers['levels']:,} levels "
        f"fit into a stack of {one.stack or 0:,} bytes.",
        fixes=(
            Fix(
                text=f"Free the children in a loop: in the destructor of `{name}`, move `{members}` into a std::vector, and "
                "take one after the other out of it. Declare the moves and copies too."
            ),
        ),
    )


RULE = Rule(
    _match,
    title="The destructor of a type in a custom op calls itself",
    severity="warning",
    needs=("code",),
    checks="destructors",
    hit="""
        defect op-recursive-destructor implicit Node::~Node bytes=48 levels=174762 type=Node members=next
    """,
    miss="""
        defect op-recursion data Depth bytes=64 levels=131072 through= depends=node->next
    """,
)
