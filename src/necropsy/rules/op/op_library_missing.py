"""A library that a custom op needs cannot be found.

What happened
-------------
The library names another library that the loader finds in none of its folders, and that no installed package brings.

How to be sure
--------------
``ldd op.so`` says ``not found``. Loading the op raises ``cannot open shared object file``.

How to fix it now
-----------------
Install the package that brings it, or link with its folder: ``-Wl,-rpath,'$ORIGIN'`` for a library beside the op.

How to prevent it
-----------------
Ship what an op needs beside it, and link statically what is small.

What it is often mistaken for
-----------------------------
A missing op file: the name in the message is that of the other library.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules import compatibility, libraries, ops


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.libraries or ():
        if not one.is_op:
            continue
        for need in one.needed or ():
            if (
                need.path is not None
                or libraries.is_of_the_driver(need.name)
                or ops.other_release(environment, need.name)
            ):
                continue
            yield Finding(
                evidence=(Evidence(claim="what needs it", seen=f"NEEDED {need.name}", where=one.path),),
                summary=f"`{need.name}` cannot be found; `{one.path}` needs it.",
                confidence="certain",
                about=frozenset({f"library {need.name}"}),
                fixes=_fixes(need.name, os.path.dirname(one.path)),  # noqa: PTH120 - a name, not a file
            )


def _fixes(name: str, folder: str) -> tuple[Fix, ...]:
    row = compatibility.package_of(name) or {}
    found = []
    if row.get("apt"):
        found.append(
            Fix(text="Install what brings it (Debian, Ubuntu).", command=f"apt-get install --yes {row['apt']}")
        )
    if row.get("dnf"):
        found.append(Fix(text="Install what brings it (Fedora, RHEL).", command=f"dnf install -y {row['dnf']}"))
    own = Fix(text=f"A library of your own: put it into {folder} and link the op with -Wl,-rpath,'$ORIGIN'.")
    return (*found, own)


RULE = Rule(
    _match,
    needs=("ops", "libraries"),
    beats=("env-library-missing",),
    checks="libraries that custom ops need",
    hit="""
        op /home/u/op.so
        needed libmine.so.1
    """,
    miss="""
        op /home/u/op.so
        needed libmine.so.1 /home/u/libmine.so.1 by RUNPATH
        needed libcuda.so.1
    """,
)
