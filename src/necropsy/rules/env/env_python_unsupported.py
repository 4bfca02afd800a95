"""A package does not support this version of Python.

What happened
-------------
A package says in its metadata which versions of Python it supports, and this version is not among them. Or you named a
framework that has no build for this version yet, or no longer.

How to be sure
--------------
See ``Requires-Python`` in the METADATA file. pip refuses such a release, except with ``--ignore-requires-python``. If
no release fits, it says ``No matching distribution found``.

How to fix it now
-----------------
Use another version of Python: ``python3.12 -m venv ENV``, and install there. Or install a release of the package that
supports this version.

How to prevent it
-----------------
Do not move to a new version of Python before the frameworks have builds for it. That takes some months.

What it is often mistaken for
-----------------------------
A mistake in the package's name, because pip says that it finds no distribution.

Sources
-------
- https://packaging.python.org/en/latest/specifications/core-metadata/#requires-python
- https://www.tensorflow.org/install/pip
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules import compatibility, packages


def _match(environment: Environment) -> Finding | None:
    return several([*_installed(environment), *_without_build(environment)])


def _installed(environment: Environment) -> Iterator[Finding]:
    for one in packages.checked(environment):
        wanted = one.requires_python
        if environment.python is None or not wanted or packages.meets(environment.python, wanted):
            continue
        yield Finding(
            evidence=(
                Evidence(claim="what it supports", seen=f"Requires-Python: {wanted}", where=one.metadata),
                Evidence(claim="the interpreter", seen=f"Python {environment.python}", where=environment.executable),
            ),
            summary=f"{one.name} {one.version} supports Python {wanted}, and this is Python {environment.python}.",
            confidence="certain",
            about=frozenset({f"build of {one.name}"}),
            fixes=(packages.upgrade(environment, [one.name], "Install a release that supports it.", like=one),),
        )


def _without_build(environment: Environment) -> Iterator[Finding]:
    """A named framework that is not installed and cannot be."""
    for asked in environment.asked:
        if environment.distribution(asked.name) is not None or environment.python is None:
            continue
        newest = compatibility.newest_tensorflow() if asked.name in compatibility.TENSORFLOW else None
        if newest is None or compatibility.has_build_for(newest[1], environment.python):
            continue
        name, pythons = newest
        latest = pythons.rpartition("-")[2]
        yield Finding(
            evidence=(
                Evidence(claim="the requested package", seen=asked.text, where="the command line"),
                Evidence(claim="the Python versions of its newest known release", seen=f"{name}: {pythons}"),
            ),
            summary=f"{asked.name} has no build for Python {environment.python}; its newest release known here, {name}, has them for {pythons}.",
            confidence="likely",
            about=frozenset({f"build of {asked.name}"}),
            fixes=(
                Fix(
                    text=f"Make an environment with Python {latest} for it.",
                    command=f"python{latest} -m venv tensorflow-env && tensorflow-env/bin/python -m pip install {asked.name}",
                ),
            ),
        )


RULE = Rule(
    _match,
    needs=("distributions",),
    beats=("env-python-abi-mismatch",),
    checks="the versions of Python that packages support",
    hit="""
        distribution keras 3.5.0 checked
        requires-python >=3.12
    """,
    miss="""
        distribution keras 3.5.0 checked
        requires-python >=3.9
    """,
)
