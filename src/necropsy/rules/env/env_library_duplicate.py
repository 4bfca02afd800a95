"""Two versions of one library would be loaded together.

What happened
-------------
A library and another one that it needs ask for different versions of the same third library. Both are loaded, and their functions have the same names: calls
of the one end in the other.

How to be sure
--------------
``ldd FILE | grep NAME`` shows two versions. Only libraries without symbol versions are meant: with these, two versions can live side by side.

How to fix it now
-----------------
Install builds of both packages that were made for the same version: ``EXE -m pip install --upgrade A B``, or take both from conda-forge.

How to prevent it
-----------------
Take packages that share native libraries from one source.

What it is often mistaken for
-----------------------------
Memory corruption of unknown origin: structures of one version are read by functions of the other.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://gcc.gnu.org/wiki/Visibility
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Library
from necropsy.rule import Finding, Rule, several
from necropsy.rules import libraries, packages

_NUMBERED = re.compile(r"(?P<stem>lib[\w+-]+?)\.so(?:\.(?P<number>[\d.]+))?")


def _match(environment: Environment) -> Finding | None:
    return several(_loaded(environment) if environment.mapped else _findings(environment))


def _loaded(environment: Environment) -> Iterator[Finding]:
    by_stem: dict[str, list[Library]] = {}
    for one in environment.libraries or ():
        match = _NUMBERED.fullmatch(one.path.rsplit("/", 1)[-1])
        if match is not None and match["number"] and one.defines == ():
            by_stem.setdefault(match["stem"], []).append(one)
    for stem, found in by_stem.items():
        if len({one.path.rsplit("/", 1)[-1] for one in found}) < 2:
            continue
        names = [one.distribution for one in found if one.distribution is not None]
        text = "Install releases that were built for one version of it."
        yield Finding(
            evidence=tuple(Evidence(claim="a version of it that is loaded", seen=one.path) for one in found),
            summary=f"Two versions of {stem} are loaded into one process: {' and '.join(f'`{one.path}`' for one in found[:2])}.",
            confidence="certain",
            about=frozenset(f"file {one.path}" for one in found),
            fixes=(packages.upgrade(environment, names, text) if names else Fix(text=text),),
        )


def _findings(environment: Environment) -> Iterator[Finding]:
    told: set[tuple[str, ...]] = set()
    for one in libraries.own(environment):
        by_stem: dict[str, dict[str, str]] = {}
        for path, parent in libraries.closure(environment, one).items():
            match = _NUMBERED.fullmatch(path.rsplit("/", 1)[-1])
            library = libraries.at(environment, path)
            if match is not None and match["number"] and library is not None and not library.defines:
                by_stem.setdefault(match["stem"], {})[path] = parent
        for stem, found in by_stem.items():
            versions = tuple(sorted(found))
            if len({path.rsplit("/", 1)[-1] for path in versions}) < 2 or versions in told:
                continue
            told.add(versions)
            names = dict.fromkeys(
                name
                for path in (*found.values(), one.path)
                if (name := libraries.distribution_of(environment, path)) is not None
            )
            yield Finding(
                evidence=tuple(
                    Evidence(claim="a version of it", seen=path, where=f"needed by {found[path]}") for path in versions
                ),
                summary=f"`{one.path.rsplit('/', 1)[-1]}` would load two versions of {stem}: {' and '.join(f'`{path}`' for path in versions[:2])}.",
                confidence="certain",
                about=frozenset(f"file {path}" for path in versions),
                fixes=(
                    packages.upgrade(
                        environment, list(names) or [stem], "Install releases that were built for one version of it."
                    ),
                ),
            )


RULE = Rule(
    _match,
    severity="warning",
    needs=("libraries",),
    checks="versions of one library",
    hit="""
        distribution a 1.0 checked
        library /env/a.so of a
        needed libfoo.so.1 /usr/lib/libfoo.so.1
        needed libbar.so.1 /usr/lib/libbar.so.1
        library /usr/lib/libfoo.so.1
        library /usr/lib/libbar.so.1
        needed libfoo.so.2 /usr/lib/libfoo.so.2
        library /usr/lib/libfoo.so.2
    """,
    miss="""
        distribution a 1.0 checked
        library /env/a.so of a
        needed libfoo.so.1 /usr/lib/libfoo.so.1
        needed libbar.so.1 /usr/lib/libbar.so.1
        library /usr/lib/libfoo.so.1
        defines FOO_1
        library /usr/lib/libbar.so.1
        needed libfoo.so.2 /usr/lib/libfoo.so.2
        library /usr/lib/libfoo.so.2
        defines FOO_2
    """,
)
