"""A requirement of a package is not met.

What happened
-------------
An installed package says in its metadata which versions of other packages it works with. Another version is installed.
pip checks this when it installs something, but a later ``pip install`` may change the version again, with only a
warning.

How to be sure
--------------
The ``Requires-Dist`` line of the package's METADATA file, and the version in the other one's. ``pip check`` shows such lines too.

How to fix it now
-----------------
Install a version that all packages accept: ``EXE -m pip install 'numpy<2.0.0,>=1.23.5'`` with the interpreter's own path as EXE. The
finding names the whole range that all checked packages accept together.

How to prevent it
-----------------
Install all packages in one command or from one file of constraints, so that pip sees all requirements at once.

What it is often mistaken for
-----------------------------
A bug of the package that is used: the traceback ends in it, although another one was replaced.

Sources
-------
- https://packaging.python.org/en/latest/specifications/core-metadata/#requires-dist-multiple-use
- https://pip.pypa.io/en/stable/topics/dependency-resolution/
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Distribution, Environment, Fix, Requirement
from necropsy.rule import Finding, Rule, several
from necropsy.rules import packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    unmet: dict[str, list[tuple[Distribution | None, Requirement, Distribution]]] = {}
    for who, requirement, installed in packages.required(environment):
        if requirement.specifier and not packages.meets(installed.version, requirement.specifier):
            unmet.setdefault(installed.name, []).append((who, requirement, installed))
    for name, rows in sorted(unmet.items()):
        installed = rows[0][2]
        told = ", ".join(
            f"{f'{who.name} {who.version}' if who is not None else 'the command line'} asks for {name}{asked.specifier}"
            for who, asked, _ in rows[:3]
        )
        more = f" and {len(rows) - 3} more do" if len(rows) > 3 else ""
        yield Finding(
            evidence=(*(packages.quoted(who, asked) for who, asked, _ in rows), packages.there(installed)),
            summary=f"{told}{more}, and {name} {installed.version} is installed.",
            confidence="certain",
            about=frozenset({name}),
            fixes=(_fix(environment, installed, [who.name for who, _, _ in rows if who is not None]),),
        )


def _fix(environment: Environment, installed: Distribution, asking: list[str]) -> Fix:
    wanted = packages.together(environment, installed.name)
    if packages.is_possible(wanted):
        return packages.install(
            environment, f"{installed.name}{wanted}", "Install a version that all accept.", like=installed
        )
    return packages.upgrade(
        environment,
        [*asking, installed.name],
        f"No version of {installed.name} serves all of them; have versions chosen that fit together.",
        like=installed,
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("distributions",),
    checks="requirements of packages",
    hit="""
        distribution keras 3.5.0 checked
        requires h5py>=3.11
        distribution h5py 3.9.0 checked
    """,
    miss="""
        distribution keras 3.5.0 checked
        requires h5py>=3.11
        distribution h5py 3.11.0 checked
    """,
)
