"""The system's C library is older than a library needs.

What happened
-------------
A library was built on a newer system than this one: it needs a version of ``libc.so.6`` or another part of glibc that this system does not have yet.

How to be sure
--------------
The library needs a version (``GLIBC_2.38``) that is newer than what ``ldd --version`` says. On import: ``version `GLIBC_2.38' not found``.

How to fix it now
-----------------
Use a wheel that was built for an older system (``EXE -m pip install --only-binary :all: NAME``), or a newer system or container image. The C library
itself cannot be replaced.

How to prevent it
-----------------
Build on the oldest system that is to be supported, or in a manylinux image.

What it is often mistaken for
-----------------------------
A missing library: it is there, and too old.

Sources
-------
- https://sourceware.org/glibc/wiki/FAQ
- https://github.com/pypa/manylinux
"""

from __future__ import annotations

from necropsy.model import Environment, Fix
from necropsy.rule import NEVER, Finding, Occurs, Rule, several
from necropsy.rules import libraries, symbol_versions


def _match(environment: Environment) -> Finding | None:
    return several(symbol_versions.too_old(environment, "glibc", _fix))


def _fix(environment: Environment, unmet: libraries.Unmet) -> Fix:
    return symbol_versions.older_release(
        environment, unmet, "Build it on this system, or use a newer system or container image."
    )


RULE = Rule(
    _match,
    needs=("libraries",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="the version of the C library",
    hit="""
        distribution a 1.0 checked
        library /env/a.so of a
        needs libc.so.6 GLIBC_2.38
        needed libc.so.6 /usr/lib/libc.so.6 by ld.so.cache
        library /usr/lib/libc.so.6
        defines GLIBC_2.35
    """,
    miss="""
        distribution a 1.0 checked
        library /env/a.so of a
        needs libc.so.6 GLIBC_2.38
        needed libc.so.6 /usr/lib/libc.so.6 by ld.so.cache
        library /usr/lib/libc.so.6
        defines GLIBC_2.38 GLIBC_2.381
    """,
)
