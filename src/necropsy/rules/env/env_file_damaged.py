"""A file of an installed package is truncated or was changed.

What happened
-------------
A file is shorter than it has to be, or its contents differ from what was installed. Possible reasons are a full disk
during the installation, an interrupted copy, and a patch made by hand.

How to be sure
--------------
A library ends before the segments that its header lists. Other files differ in size from RECORD, or with ``--deep`` in
their SHA-256. Importing a truncated library ends with SIGBUS.

How to fix it now
-----------------
Reinstall the package without changing its version: ``EXE -m pip install --force-reinstall --no-deps 'NAME==VERSION'``.

How to prevent it
-----------------
Check that there is room on the disk before installing; keep patches in a copy of the package with a version of its own.

What it is often mistaken for
-----------------------------
A bug of the package or of the memory: SIGBUS and strange syntax errors come from the file.

Sources
-------
- https://packaging.python.org/en/latest/specifications/recording-installed-packages/
- https://man7.org/linux/man-pages/man5/elf.5.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Damage, Distribution, Environment, Evidence
from necropsy.rule import Finding, Rule, several
from necropsy.rules import packages

_KINDS = {
    "truncated": "truncated",
    "size": "not as large as when it was installed",
    "hash": "not what was installed",
}


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in packages.checked(environment):
        if one.damaged:
            yield _finding(environment, one, one.damaged)


def _finding(environment: Environment, one: Distribution, damaged: tuple[Damage, ...]) -> Finding:
    rows = sorted(damaged, key=lambda each: (each.kind != "truncated", not each.native, each.path))
    first = rows[0]
    more = f"; {len(rows) - 1} more of its files are damaged or changed" if len(rows) > 1 else ""
    return Finding(
        evidence=tuple(Evidence(claim="a file", seen=_seen(each), where=each.path) for each in rows[:5]),
        summary=f"`{first.path}` of {one.name} {one.version} is {_KINDS[first.kind]}{more}.",
        confidence="certain",
        severity="error" if any(each.kind == "truncated" for each in rows) else "warning",
        about=frozenset({one.name, *(f"library {each.path.rsplit('/', 1)[-1]}" for each in rows)}),
        fixes=(packages.again(environment, one, "Reinstall the package."),),
    )


def _seen(each: Damage) -> str:
    if each.kind == "hash":
        return "its SHA-256 is not the one of RECORD"
    wanted = f", {each.recorded:,} in RECORD" if each.recorded is not None else ""
    end = ", less than its header asks for" if each.kind == "truncated" else ""
    return f"{each.size or 0:,} bytes{wanted}{end}"


RULE = Rule(
    _match,
    needs=("distributions",),
    beats=("env-library-missing",),
    checks="whether files are whole",
    hit="""
        distribution numpy 2.1.0 checked
        damaged numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so truncated
    """,
    miss="""
        distribution numpy 2.1.0 checked
    """,
)
