"""Files of an installed package are gone.

What happened
-------------
Files that the package's RECORD lists are not there. Often another distribution that shared them was uninstalled, an installation was interrupted, a
cleaner removed them, or an image was slimmed too far.

How to be sure
--------------
The finding names the files. ``EXE -m pip show --files NAME`` lists what should be there.

How to fix it now
-----------------
Reinstall the package without changing its version: ``EXE -m pip install --force-reinstall --no-deps 'NAME==VERSION'``.

How to prevent it
-----------------
Do not delete files in site-packages; do not install two distributions that own the same files.

What it is often mistaken for
-----------------------------
A bug of the package: ``ModuleNotFoundError`` or ``cannot open shared object file`` name a file that other people have.

Sources
-------
- https://packaging.python.org/en/latest/specifications/recording-installed-packages/
- https://pip.pypa.io/en/stable/cli/pip_install/#cmdoption-force-reinstall
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.model import Distribution, Environment, Evidence
from necropsy.rule import Finding, Rule, several
from necropsy.rules import packages

_LIBRARY = re.compile(r"\.(?:so(?:\.\w+)*|pyd|dll|dylib)$")
_LEFT_OUT = re.compile(
    r"/(?:tests?|testing|examples?|docs?|include|licenses?)/|\.(?:pyi|h|hpp|md|txt|rst|typed|exe|c|pyx|pxd|cmake|a|lib)$",
    re.IGNORECASE,
)
"""What people remove to save space; the package works without it."""


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in packages.checked(environment):
        gone = [path for path in one.missing or () if _matters(one, path)]
        if gone:
            yield _finding(environment, one, gone)


def _matters(one: Distribution, path: str) -> bool:
    """Code, or data beside a package's code; scripts and documents are not imported."""
    if _LEFT_OUT.search(path):
        return False
    top = path.removeprefix(one.location).lstrip("/").partition("/")[0]
    return path.endswith(".py") or _LIBRARY.search(path) is not None or top in one.modules


def _finding(environment: Environment, one: Distribution, gone: list[str]) -> Finding:
    gone = sorted(gone, key=lambda path: (not _LIBRARY.search(path), not path.endswith(".py")))
    libraries = [path for path in gone if _LIBRARY.search(path)]
    code = [path for path in gone if path.endswith(".py")]
    what = (
        f"{len(gone)} files of {one.name} {one.version} are gone"
        if len(gone) > 1
        else f"A file of {one.name} {one.version} is gone"
    )
    return Finding(
        evidence=(
            *(Evidence(claim="a file that is listed and not there", seen=path, where="RECORD") for path in gone[:5]),
            packages.there(one),
        ),
        summary=f"{what}, such as `{gone[0]}`." if len(gone) > 1 else f"{what}: `{gone[0]}`.",
        confidence="certain",
        severity="error" if libraries or code else "warning",
        about=frozenset({one.name, *(f"library {path.rsplit('/', 1)[-1]}" for path in libraries)}),
        fixes=(packages.again(environment, one, "Reinstall the package."),),
    )


RULE = Rule(
    _match,
    needs=("distributions",),
    beats=("env-library-missing", "env-duplicate-distribution"),
    checks="the files of packages",
    hit="""
        distribution numpy 2.1.0 checked
        missing numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so
    """,
    miss="""
        distribution numpy 2.1.0 checked
        missing numpy/tests/test_all.py
        missing scripts-3.10/numpy-config
    """,
)
