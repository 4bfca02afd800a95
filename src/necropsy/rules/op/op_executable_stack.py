"""A custom op asks for an executable stack.

What happened
-------------
The library says that it needs to execute code on the stack. The loader then makes all stacks of the process executable; since glibc 2.41 it refuses to load
such a library with ``dlopen``. Usually an assembly file lacks a section that says otherwise, or nested functions of GNU C are used.

How to be sure
--------------
``readelf -lW op.so | grep GNU_STACK`` shows ``RWE``. With glibc 2.41 or later: ``cannot enable executable stack as shared object requires``.

How to fix it now
-----------------
Add ``.section .note.GNU-stack,"",@progbits`` to each assembly file, or link with ``-Wl,-z,noexecstack``. A file that is already built: ``patchelf --clear-
execstack op.so``.

How to prevent it
-----------------
Link with ``-Wl,-z,noexecstack``; new linkers warn of it.

What it is often mistaken for
-----------------------------
A missing right of the file, or SELinux.

Sources
-------
- https://sourceware.org/glibc/wiki/Release/2.41
- https://man7.org/linux/man-pages/man3/dlopen.3.html
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import NEVER, Finding, Occurs, Rule, several
from necropsy.rules import compatibility


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


_REFUSED_SINCE = (2, 41)
_GLIBC = re.compile(r"glibc (?P<version>[\d.]+)")


def _findings(environment: Environment) -> Iterator[Finding]:
    match = _GLIBC.match(environment.libc or "")
    refused = match is not None and (compatibility.version(match["version"]) or ()) >= _REFUSED_SINCE
    for one in environment.ops or ():
        if one.executable_stack:
            then = (
                "glibc 2.41 and later refuse to load it" if refused else "glibc 2.41 and later would refuse to load it"
            )
            yield Finding(
                evidence=(
                    Evidence(claim="the stack has to be executable", seen="GNU_STACK RWE", where=one.path),
                    *((Evidence(claim="the C library", seen=environment.libc or ""),) if refused else ()),
                ),
                summary=f"`{one.path}` asks for an executable stack; {then}.",
                confidence="certain",
                severity="error" if refused else None,
                about=frozenset({f"stack of {one.path}"}),
                fixes=(
                    Fix(text="Take the mark away.", command=shlex.join(["patchelf", "--clear-execstack", one.path])),
                    Fix(text="Or link it again, with -Wl,-z,noexecstack."),
                ),
            )


RULE = Rule(
    _match,
    severity="note",
    needs=("ops",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="stacks of custom ops",
    hit="""
        op /home/u/op.so
        op-executable-stack
    """,
    miss="""
        op /home/u/op.so
    """,
)
