"""A custom op changes its own code when it is loaded.

What happened
-------------
Part of the library was compiled without ``-fPIC``, so that the loader has to write addresses into its code. The code is then not shared between processes,
and systems with SELinux refuse to load it.

How to be sure
--------------
``readelf -d op.so | grep TEXTREL`` prints a line. With SELinux: ``cannot restore segment prot after reloc: Permission denied``.

How to fix it now
-----------------
Compile every file and every static library that goes into it with ``-fPIC``; in hand-written assembly use ``lea symbol(%rip)``.

How to prevent it
-----------------
Link with ``-Wl,-z,text``, which makes the linker refuse this.

What it is often mistaken for
-----------------------------
A missing right of the file: it can be read and executed, its code cannot be changed.

Sources
-------
- https://sourceware.org/binutils/docs/ld/Options.html
- https://wiki.gentoo.org/wiki/Hardened/Textrels_Guide
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import NEVER, Finding, Occurs, Rule, several


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.ops or ():
        if one.text_relocations:
            yield Finding(
                evidence=(Evidence(claim="the loader has to change its code", seen="TEXTREL", where=one.path),),
                summary=f"The code of `{one.path}` is changed when it is loaded: a part of it was compiled without -fPIC.",
                confidence="certain",
                about=frozenset({f"code of {one.path}"}),
                fixes=(
                    Fix(
                        text="Build it again: compile each file, and each static library that goes into it, with -fPIC, and link with -Wl,-z,text."
                    ),
                ),
            )


RULE = Rule(
    _match,
    severity="note",
    needs=("ops",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="relocations in the code of custom ops",
    hit="""
        op /home/u/op.so
        op-text-relocations
    """,
    miss="""
        op /home/u/op.so
    """,
)
