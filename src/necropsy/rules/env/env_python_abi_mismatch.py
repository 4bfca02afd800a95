"""A package was built for another version of Python.

What happened
-------------
Compiled packages are built for one version of CPython each. A folder of packages that is used by another version (PYTHONPATH, a copied or upgraded
virtual environment, ``pip install --target``) holds extension modules that this interpreter does not even see.

How to be sure
--------------
The ``Tag:`` lines of the package's WHEEL file name another version (``cp39``) than the interpreter has, and none of them is ``abi3`` or ``none``. On
import: ``ModuleNotFoundError`` or ``ImportError`` for a module that is plainly there.

How to fix it now
-----------------
Install the package for this interpreter: ``EXE -m pip install --force-reinstall --no-deps 'NAME==VERSION'``. Where the folder comes from PYTHONPATH,
unset that.

How to prevent it
-----------------
Make a new virtual environment for each version of Python, and install with ``EXE -m pip`` rather than plain ``pip``.

What it is often mistaken for
-----------------------------
A missing package, or one that is damaged: all its files are there, for another interpreter.

Sources
-------
- https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/
- https://peps.python.org/pep-0425/
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.frame_filter import file_name
from necropsy.model import Distribution, Environment, Evidence, Interpreter
from necropsy.rule import Finding, Rule, several
from necropsy.rules import packages, wheel_tags


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    interpreter = environment.interpreter
    if interpreter is None:
        return
    by_cause: dict[str, list[Distribution]] = {}
    for one in packages.checked(environment):
        if one.tags and not wheel_tags.fits_python(one.tags, interpreter) and not _has_only_plain(environment, one):
            # A folder of another Python's packages is one cause; in the interpreter's own, each package is.
            cause = one.location if one.location in interpreter.python_path else one.name
            by_cause.setdefault(cause, []).append(one)
    for rows in by_cause.values():
        yield _finding(environment, rows[0], interpreter, more=len(rows) - 1)


def _has_only_plain(environment: Environment, one: Distribution) -> bool:
    """Its libraries are plain ones for ctypes: some such wheels name the Python that packed them."""
    own = [file_name(each.path) for each in environment.libraries or () if each.distribution == one.name]
    return bool(own) and all(name.startswith("lib") and ".cpython-" not in name for name in own)


def _finding(environment: Environment, one: Distribution, interpreter: Interpreter, *, more: int) -> Finding:
    what = wheel_tags.pythons(one.tags)
    others = f", as {more} more packages in {one.location} are" if more else ""
    return Finding(
        evidence=(
            Evidence(claim="what it was built for", seen=f"Tag: {one.tags[0]}", where=wheel_tags.file_of(one)),
            Evidence(claim="the interpreter", seen=wheel_tags.spelled(interpreter), where=interpreter.executable),
        ),
        summary=f"{one.name} {one.version} was built for {what}{others}, and this is {wheel_tags.spelled(interpreter)}.",
        confidence="certain",
        about=frozenset({f"build of {one.name}", f"folder {one.location}"}),
        fixes=(wheel_tags.for_this_python(environment, one),),
    )


RULE = Rule(
    _match,
    needs=("distributions", "interpreter"),
    beats=("env-module-shadowed",),
    checks="the Python that packages were built for",
    hit="""
        distribution h5py 3.9.0 checked cp39-cp39-manylinux_2_17_x86_64
    """,
    miss="""
        distribution h5py 3.9.0 checked cp39-abi3-manylinux_2_17_x86_64
        distribution six 1.16.0 checked py2-none-any py3-none-any
    """,
)
