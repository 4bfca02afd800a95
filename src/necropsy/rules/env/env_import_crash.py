"""Importing a package ends the process.

What happened
-------------
The package was imported in a process of its own, and that process was killed by a signal or ended by native code. Every program that imports the package
ends there, without a Python exception.

How to be sure
--------------
``necropsy run EXE -c 'import PACKAGE'`` shows the whole report: the instruction, the stack and the cause. The finding quotes that cause where a rule knows it.

How to fix it now
-----------------
Do what the quoted cause advises. Where none is known: ``EXE -m pip install --force-reinstall --no-deps 'PACKAGE==VERSION'`` rules out damaged files, and a
fresh environment rules out the other packages.

How to prevent it
-----------------
Import every package once when an image or an environment is built, and pin what was tried.

What it is often mistaken for
-----------------------------
A failing program: it has not started yet. An import error, which is an exception that can be caught.

Sources
-------
- https://docs.python.org/3/library/faulthandler.html
- https://man7.org/linux/man-pages/man7/signal.7.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Import
from necropsy.rule import Finding, Rule, several
from necropsy.rules import imports, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.imports or ():
        if one.outcome == "died":
            yield _finding(environment, one)


def _finding(environment: Environment, one: Import) -> Finding:
    how = one.how or "it ended without a word"
    if one.module is None:
        what = f"A process that has imported {imports.spelled(environment, one)} dies when it ends ({how})"
    else:
        what = f"Importing {one.module} of {imports.spelled(environment, one)} ends the process ({how})"
    cause = f": {one.summary}" if one.summary and len(one.summary) < 200 else "."
    seen = Evidence(claim="how the process ended", seen=how, where=f"import {one.module or one.distribution}")
    place = (Evidence(claim="where it died", seen=one.place),) if one.place is not None else ()
    return Finding(
        evidence=(seen, *place, *imports.verdict(one)),
        summary=what + cause,
        confidence="certain",
        about=imports.causes(environment, one),
        fixes=(*(imports.advice(one) or (_report(environment, one),)), *_again(environment, one)),
    )


def _report(environment: Environment, one: Import) -> Fix:
    return Fix(text="See the whole report of that death.", command=imports.supervised(environment, one))


def _again(environment: Environment, one: Import) -> tuple[Fix, ...]:
    distribution = environment.distribution(one.distribution)
    if distribution is None:
        return ()
    return (packages.again(environment, distribution, "Or install it again, which rules out damaged files."),)


RULE = Rule(
    _match,
    needs=("imports",),
    yields=True,
    checks="imports that end the process",
    hit="""
        distribution faiss-cpu 1.8.0 checked
        import faiss-cpu died faiss
        import-how killed by SIGILL
        import-place _swigfaiss.so
        import-rule illegal-instruction This processor has no AVX2, and faiss was built to use it.
    """,
    miss="""
        distribution faiss-cpu 1.8.0 checked
        import faiss-cpu imported
    """,
)
