"""A package cannot be imported.

What happened
-------------
The package was imported in a process of its own, and the import raised an exception: a library is missing or too old, a module is not installed, two packages
do not fit together, or a variable has a value that the package refuses.

How to be sure
--------------
``EXE -c 'import PACKAGE'`` prints the traceback; the finding quotes its last line and the file that raised it.

How to fix it now
-----------------
Do what the quoted cause advises. A module that is not installed: ``EXE -m pip install NAME``. Else install the package again, for this interpreter:
``EXE -m pip install --force-reinstall 'PACKAGE==VERSION'``.

How to prevent it
-----------------
Import every package once when an image or an environment is built.

What it is often mistaken for
-----------------------------
A package that is not installed: it is, and something that it needs is not. With several interpreters, a package that was installed for another one.

Sources
-------
- https://docs.python.org/3/library/exceptions.html#ImportError
- https://docs.python.org/3/reference/import.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Import
from necropsy.rule import Finding, Rule, several
from necropsy.rules import imports, packages

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[A-Za-z]\w*)'$")


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    told: dict[tuple[str | None, str | None], list[Import]] = {}
    for one in environment.imports or ():
        if one.outcome == "raised":
            told.setdefault((one.text, one.place), []).append(one)
    for rows in told.values():
        yield _finding(environment, rows)


def _finding(environment: Environment, rows: list[Import]) -> Finding:
    one = rows[0]
    names = " and ".join(imports.spelled(environment, each) for each in rows[:3])
    part = f"{one.module} of {names}" if one.imported else names
    text = one.text or "an exception"
    short = text if len(text) <= 160 else text[:157].rstrip() + "..."
    return Finding(
        evidence=(
            Evidence(claim=f"what `import {one.module}` raises", seen=text, where=one.place),
            *imports.verdict(one),
        ),
        summary=f"{part} cannot be imported: {short.rstrip('.')}.",
        confidence="certain",
        # A package whose other modules can be imported may not need this one.
        severity="warning" if all(each.imported for each in rows) else None,
        about=imports.causes(environment, one),
        fixes=_fixes(environment, one),
    )


def _fixes(environment: Environment, one: Import) -> tuple[Fix, ...]:
    if found := imports.advice(one):
        return found
    gone = _NO_MODULE.match(one.text or "")
    distribution = environment.distribution(one.distribution)
    if gone is not None and gone["name"] not in {one.module, *(distribution.modules if distribution else ())}:
        text = "Install what brings that module; its distribution may have another name."
        return (packages.install(environment, gone["name"], text, like=distribution),)
    if distribution is None:
        return (Fix(text="See the whole traceback.", command=imports.supervised(environment, one)),)
    return (
        Fix(
            text="See the whole traceback, and what necropsy makes of it.", command=imports.supervised(environment, one)
        ),
        packages.again(environment, distribution, "Reinstall the package."),
    )


RULE = Rule(
    _match,
    needs=("imports",),
    yields=True,
    checks="imports that raise an exception",
    hit="""
        distribution reader 1.0 checked
        import reader raised reader
        import-text ModuleNotFoundError: No module named helper
        import-place /env/lib/python3/site-packages/reader/__init__.py
    """,
    miss="""
        distribution reader 1.0 checked
        import reader imported
    """,
)
