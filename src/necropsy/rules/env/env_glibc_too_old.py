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

from collections.abc import Iterator

from necropsy.model import Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules import builds, libraries, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for unmet in libraries.unmet_versions(environment):
        if unmet.kind != "glibc":
            continue
        first = unmet.needing[0]
        since = builds.brought_by(unmet.highest)
        yield Finding(
            evidence=libraries.versions_seen(unmet),
            summary=f"{libraries.owner(environment, first)} needs {unmet.highest}{f' ({since})' if since else ''}, and `{unmet.path}` is older.",
            confidence="certain",
            about=frozenset({f"file {unmet.path}"}),
            fixes=(_fix(environment, unmet),),
        )


def _fix(environment: Environment, unmet: libraries.Unmet) -> Fix:
    name = unmet.needing[0].distribution
    one = environment.distribution(name) if name is not None else None
    if one is None:
        return Fix(text="Build it on this system, or use a newer system or container image.")
    return packages.install(
        environment,
        f"{one.name}<{one.version}",
        "Use a newer system or container image, or an older release that was built for this one.",
        like=one,
    )


RULE = Rule(
    name="env-glibc-too-old",
    subject=Environment,
    title="The system's C library is older than a library needs",
    match=_match,
    page=__doc__ or "",
    severity="error",
    needs=("libraries",),
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
    references=("https://sourceware.org/glibc/wiki/FAQ",),
)
