"""Importing a package takes very long.

What happened
-------------
The package was imported in a process of its own, and that took more than 30 seconds, or did not end within the time limit. Often thousands of small files are
read from a network file system or a cold disk; else a module downloads, compiles or waits for something while it is imported.

How to be sure
--------------
``EXE -X importtime -c 'import PACKAGE'`` lists how long each module takes. Little processor time and many bytes from storage mean that the disk is slow.

How to fix it now
-----------------
Keep the environment on a local disk, or in a container image or one archive instead of many files on a network. ``EXE -m compileall SITE_PACKAGES`` makes the
bytecode once, where the folder was installed without it.

How to prevent it
-----------------
Import inside the functions that need it what few runs need, and warm the file cache before many processes start at once.

What it is often mistaken for
-----------------------------
A hang of the program: it has not started yet. A slow GPU: nothing has been sent to it.

Sources
-------
- https://docs.python.org/3/using/cmdline.html#cmdoption-X
- https://docs.python.org/3/library/compileall.html
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Import
from necropsy.rule import Finding, Rule, several
from necropsy.rules import imports

_SLOW_S = 30.0


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.imports or ():
        if one.outcome == "timeout":
            yield _endless(environment, one)
        elif one.outcome == "imported" and one.seconds is not None and one.seconds > _SLOW_S:
            yield _slow(environment, one, one.seconds)


def _endless(environment: Environment, one: Import) -> Finding:
    cause = f": {one.summary}" if one.summary and len(one.summary) < 200 else "."
    module = one.module or one.distribution
    return Finding(
        evidence=(
            Evidence(claim="what did not end in time", seen=f"import {module}", where="the process that imported it"),
            *imports.verdict(one),
        ),
        summary=f"Importing {module} of {imports.spelled(environment, one)} did not end within the time limit{cause}",
        confidence="certain",
        about=imports.causes(environment, one),
        fixes=(
            *imports.advice(one),
            Fix(text="See where it waits.", command=imports.supervised(environment, one)),
        ),
    )


def _slow(environment: Environment, one: Import, seconds: float) -> Finding:
    by_disk = one.cpu_s is not None and one.cpu_s < seconds / 2
    cpu = f", {one.cpu_s:.0f} s of it on the processor" if one.cpu_s is not None else ""
    read = f", {one.read_bytes / 1e6:,.0f} MB read from storage" if one.read_bytes else ""
    executable = environment.executable or "python"
    module = one.imported[0] if one.imported else one.distribution
    times = shlex.join([executable, "-X", "importtime", "-c", f"import {module}"])
    waits = "most of that time it waited" if by_disk else "most of that time it computed"
    return Finding(
        evidence=(Evidence(claim="how long the import took", seen=f"{seconds:.0f} s{cpu}{read}", where=module),),
        summary=f"Importing {imports.spelled(environment, one)} takes {seconds:.0f} s: {waits}.",
        confidence="certain",
        about=imports.causes(environment, one),
        fixes=(
            Fix(text="See which module takes how long.", command=times),
            *((Fix(text="Keep the environment on a local disk."),) if by_disk else ()),
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("imports",),
    yields=True,
    checks="how long imports take",
    hit="""
        distribution reader 1.0 checked
        import reader imported "" 45
    """,
    miss="""
        distribution reader 1.0 checked
        import reader imported "" 12
    """,
)
