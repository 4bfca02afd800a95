"""A custom op was built without protection against memory errors.

What happened
-------------
The library was compiled without some of the measures that end a process at a memory error instead of letting it go on: a stack protector, checked C functions
(``_FORTIFY_SOURCE``), and function tables that cannot be written to (full RELRO). It works; a bug in it shows later and elsewhere.
A stack protector and checked functions are seen by the functions that they call. A library with nothing to protect calls none: no function of it has an array
or passes on the address of a variable, or the compiler does not know the size of what is written to. It gets this note too.

How to be sure
--------------
``readelf -Ws op.so | grep -E '__stack_chk_fail|_chk'`` and ``readelf -lW op.so | grep RELRO`` show what is there.

How to fix it now
-----------------
Compile with ``-O2 -fstack-protector-strong -D_FORTIFY_SOURCE=2`` and link with ``-Wl,-z,relro,-z,now``. That costs next to nothing.

How to prevent it
-----------------
Put these flags into the op's build, and test it with ``-fsanitize=address`` as well.

What it is often mistaken for
-----------------------------
A fault: nothing is wrong as long as the code is right.

Sources
-------
- https://gcc.gnu.org/onlinedocs/gcc/Instrumentation-Options.html
- https://sourceware.org/binutils/docs/ld/Options.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import NEVER, Finding, Occurs, Rule, several

_RELRO = "full RELRO"
"""Written in the file's headers; of the others only the calls are seen."""


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.ops or ():
        if one.unprotected:
            names = ", ".join(one.unprotected)
            yield Finding(
                evidence=(Evidence(claim="what it shows no sign of", seen=names, where=one.path),),
                summary=f"`{one.path}` shows no sign of protection by: {names}.",
                confidence="certain" if _RELRO in one.unprotected else "likely",
                about=frozenset({f"hardening of {one.path}"}),
                fixes=(
                    Fix(
                        text="Build it with -O2 -fstack-protector-strong -D_FORTIFY_SOURCE=2 and -Wl,-z,relro,-z,now, which cost next to nothing."
                    ),
                ),
            )


RULE = Rule(
    _match,
    severity="note",
    needs=("ops",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="how custom ops were hardened",
    hit="""
        op /home/u/op.so
        op-unprotected "stack protector" "full RELRO"
    """,
    miss="""
        op /home/u/op.so
    """,
)
