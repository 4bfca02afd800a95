"""A custom op's library needs a symbol that nothing has.

What happened
-------------
The library needs a function or variable that neither its own libraries, nor the interpreter, nor any checked package has. Loading it raises an exception:
TensorFlow and Python have the loader look up all symbols at once.

How to be sure
--------------
``python -c "import ctypes; ctypes.CDLL('./op.so', 2)"`` says ``undefined symbol: NAME``; ``c++filt NAME`` makes a C++ name readable.

How to fix it now
-----------------
Link what has the symbol (``-lNAME`` behind the object files), or compile the source file that defines it into the library. A function that is declared and
never defined has to be written or removed.

How to prevent it
-----------------
Link with ``-Wl,--no-undefined``, so that the linker refuses what the loader would refuse later.

What it is often mistaken for
-----------------------------
A missing library: all of them were found. An op for another TensorFlow: then the names belong to tensorflow, tsl or absl, and op-abi-mismatch reports it.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://sourceware.org/binutils/docs/ld/Options.html
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules import ops


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.ops or ():
        names = [name for name in one.missing or () if not ops.is_of_tensorflow(name)]
        # With another string ABI or another Abseil, more names are missing than those of TensorFlow itself.
        if not names or ops.of_tensorflow(one):
            continue
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield Finding(
            evidence=tuple(
                Evidence(claim="a symbol that is needed and that nothing has", seen=name, where=one.path)
                for name in names[:5]
            ),
            summary=f"`{one.path}` needs the symbol `{ops.short(names[0])}`{more}, and no library that it could use has it.",
            confidence="certain",
            about=frozenset({f"symbols of {one.path}"}),
            fixes=(
                Fix(
                    text="Link what defines it, with -Wl,--no-undefined, so that the linker reports what is still missing."
                ),
                Fix(text="Make the name readable.", command=shlex.join(["c++filt", names[0]])),
            ),
        )


RULE = Rule(
    _match,
    needs=("ops",),
    beats=("env-symbol-missing",),
    checks="symbols that custom ops need",
    hit="""
        op /home/u/op.so
        op-lacks _ZN4mine6ComputeEv
    """,
    miss="""
        op /home/u/op.so
        op-lacks _ZN10tensorflow8OpKernel11TraceStringB5cxx11ERKNS_15OpKernelContextEb
    """,
)
