"""A library lacks a symbol that another one needs.

What happened
-------------
A compiled package was built against another release of a library than the one that is installed: a function or a version of its interface that it needs is
not there. Packages that extend a framework (torchvision, tensorflow-text) are built for one release of it.

How to be sure
--------------
``nm -D --undefined-only FILE`` lists what it needs. On import: ``undefined symbol: NAME``, or ``version `X' not found``. Python loads modules so that one
missing symbol makes the import fail.

How to fix it now
-----------------
Install releases that belong together: ``EXE -m pip install --upgrade A B``; the package's own page says which.

How to prevent it
-----------------
Pin the framework and all that extends it together.

What it is often mistaken for
-----------------------------
A damaged file: the file is whole, and of another release.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Library
from necropsy.rule import Finding, Rule, several
from necropsy.rules import libraries, packages


def _match(environment: Environment) -> Finding | None:
    return several([*_symbols(environment), *_versions(environment)])


def _symbols(environment: Environment) -> Iterator[Finding]:
    by_owner: dict[str | None, list[Library]] = {}
    for one in libraries.own(environment):
        if one.missing:
            by_owner.setdefault(one.distribution, []).append(one)
    for rows in by_owner.values():
        first = rows[0]
        symbols = first.missing or ()
        others = symbols[0].wanted_of
        more = f" and {len(symbols) - 1} more" if len(symbols) > 1 else ""
        owner = libraries.owner(environment, first)
        yield Finding(
            evidence=tuple(
                Evidence(
                    claim=f"`{each.name}` is needed and is in none of",
                    seen=", ".join(each.wanted_of) or "its libraries",
                    where=first.path,
                )
                for each in symbols[:5]
            ),
            summary=f"{owner} needs the symbol `{symbols[0].name}`{more}, and `{others[0] if others else 'what it loads'}` does not have it.",
            confidence="certain",
            about=frozenset({f"symbols of {one.path}" for one in rows}),
            fixes=(_fix(environment, first, others),),
        )


def _versions(environment: Environment) -> Iterator[Finding]:
    """Interface versions outside the C and C++ runtimes, which have their own rules."""
    for unmet in libraries.unmet_versions(environment):
        if unmet.of_runtime:
            continue
        first = unmet.needing[0]
        yield Finding(
            evidence=libraries.versions_seen(unmet),
            summary=f"{libraries.owner(environment, first)} needs {unmet.highest} of `{unmet.library}`, and `{unmet.path}` does not have it.",
            confidence="certain",
            severity="note" if all(map(libraries.is_optional, unmet.needing)) else None,
            about=frozenset({f"file {unmet.path}"}),
            fixes=(_fix(environment, first, (unmet.path,)),),
        )


def _fix(environment: Environment, library: Library, others: tuple[str, ...]) -> Fix:
    names = [library.distribution, *(libraries.distribution_of(environment, path) for path in others)]
    known = [name for name in names if name is not None]
    if not known:
        return Fix(text="Build it again for the libraries that are installed here.")
    like = environment.distribution(known[0])
    return packages.upgrade(environment, known, "Install releases that were built for each other.", like=like)


RULE = Rule(
    _match,
    needs=("libraries",),
    beats=("env-library-shadowed",),
    checks="symbols that libraries need of each other",
    hit="""
        distribution torchvision 0.15.0 checked
        library /env/torchvision/_C.so of torchvision
        lacks _ZN3c104warnEv /env/torch/lib/libc10.so
    """,
    miss="""
        distribution torchvision 0.15.0 checked
        library /env/torchvision/_C.so of torchvision
    """,
)
