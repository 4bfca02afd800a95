"""A module is imported from elsewhere than from the installed package.

What happened
-------------
``import NAME`` takes the first module of that name on ``sys.path``. The folder of the script or the working directory,
PYTHONPATH and the user's own site-packages come before the installed packages. A file or folder of the same name there
hides the package.

How to be sure
--------------
``python -c 'import NAME; print(NAME.__file__)'`` shows the file that is taken, if the import works at all.

How to fix it now
-----------------
Rename the file in the working directory. Or run without the other folder: ``env -u PYTHONPATH python ...``, ``python
-s ...`` for the user's site-packages.

How to prevent it
-----------------
Give scripts names that no package has, do not set PYTHONPATH in a shell's start-up file, and use virtual environments.

What it is often mistaken for
-----------------------------
A broken package: ``AttributeError: partially initialized module`` and missing names come from the wrong file.

Sources
-------
- https://docs.python.org/3/library/sys_path_init.html
- https://docs.python.org/3/using/cmdline.html#envvar-PYTHONPATH
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath

from necropsy.model import Distribution, Environment, Evidence, Fix, Shadow
from necropsy.rule import Finding, Rule, several
from necropsy.rules import packages

_WHERE = {
    "PYTHONPATH": "a folder of PYTHONPATH",
    "user-site": "the user's own site-packages",
    "working-directory": "the working directory",
    "other": "another folder on sys.path",
}


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    by_cause: dict[tuple[str, str], list[tuple[Distribution, Shadow]]] = {}
    for one in packages.checked(environment):
        for shadow in one.shadows or ():
            # A folder of other packages hides many; a file in the working directory is a cause of its own.
            cause = shadow.found if shadow.source == "working-directory" else shadow.found.rpartition("/")[0]
            by_cause.setdefault((shadow.source, cause), []).append((one, shadow))
    for (source, cause), rows in by_cause.items():
        yield _finding(environment, source, cause, rows)


def _finding(environment: Environment, source: str, cause: str, rows: list[tuple[Distribution, Shadow]]) -> Finding:
    one, first = rows[0]
    shadows = [shadow for _, shadow in rows]
    more = f"; so do {len(rows) - 1} more modules" if len(rows) > 1 else ""
    return Finding(
        evidence=tuple(
            Evidence(claim=f"what `import {each.module}` takes", seen=each.found, where=f"before {each.installed}")
            for each in shadows[:5]
        ),
        summary=f"`import {first.module}` takes `{first.found}`, from {_WHERE[source]}, and not from the installed {one.name}{more}.",
        confidence="certain",
        # The whole package is hidden by a file that is none; by another copy of it, what follows is not known.
        severity="error" if source == "working-directory" else "warning",
        about=frozenset({f"folder {cause}"}),
        fixes=(_fix(environment, [one for one, _ in rows], source, first),),
    )


def _fix(environment: Environment, hidden: list[Distribution], source: str, shadow: Shadow) -> Fix:
    if source == "PYTHONPATH":
        return Fix(text="Take that folder out of PYTHONPATH; without any.", command="unset PYTHONPATH")
    if source == "user-site":
        return Fix(
            text="Remove the user's own copy.",
            command=packages.uninstall(environment, *dict.fromkeys(one.name for one in hidden)),
        )
    path = PureWindowsPath(shadow.found) if "\\" in shadow.found else PurePosixPath(shadow.found)
    return Fix(
        text="Give the file or folder another name.",
        command=shlex.join(["mv", str(path), str(path.with_name(f"my_{path.name}"))]),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("distributions",),
    checks="where modules are imported from",
    hit="""
        distribution numpy 2.1.0 checked
        shadow numpy /home/u/numpy.py /env/lib/python3/site-packages/numpy working-directory
    """,
    miss="""
        distribution numpy 2.1.0 checked
    """,
)
