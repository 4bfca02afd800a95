"""A library that a package needs cannot be found.

What happened
-------------
A compiled file of a package names another library that it needs (``NEEDED``), and the dynamic loader cannot find it. A
system package is not installed, or its folder is not on a search path.

How to be sure
--------------
``readelf -d FILE | grep NEEDED`` shows the name; ``ldd FILE`` says ``not found``. On import: ``cannot open shared object file: No such file or directory``.

How to fix it now
-----------------
Install what brings it, for example ``apt-get install libgl1`` for libGL.so.1; the finding names it where it is known.

How to prevent it
-----------------
In a container image, install the libraries of the system that the packages need, and import each package once while the image is built.

What it is often mistaken for
-----------------------------
A missing Python package: the import fails, and the module is there.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://packages.debian.org/index
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Library, Severity
from necropsy.rule import Finding, Rule, several
from necropsy.rules import builds, libraries, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    asking: dict[str, list[Library]] = {}
    for one in libraries.own(environment):
        for need in one.needed or ():
            if need.path is None and not libraries.is_of_the_driver(need.name):
                asking.setdefault(need.name, []).append(one)
    for name, needing in sorted(asking.items()):
        yield _finding(environment, name, needing)


def _finding(environment: Environment, name: str, needing: list[Library]) -> Finding:
    first = min(needing, key=lambda one: one.path)
    more = f" and {len(needing) - 1} more files" if len(needing) > 1 else ""
    return Finding(
        evidence=tuple(
            Evidence(claim="what needs it", seen=f"NEEDED {name}", where=one.path)
            for one in sorted(needing, key=lambda one: one.path)[:5]
        ),
        summary=f"`{name}` cannot be found; {libraries.owner(environment, first)} needs it (`{first.path.rsplit('/', 1)[-1]}`{more}).",
        confidence="certain",
        severity=_severity(environment, needing),
        about=frozenset({f"library {name}"}),
        fixes=_fixes(environment, name, first),
    )


def _severity(environment: Environment, needing: list[Library]) -> Severity:
    """Packages bring plugins for libraries that few people have; what is one of many files need not be loaded."""
    if all(libraries.is_optional(one) for one in needing):
        return "note"
    needed = {need.path for one in libraries.own(environment) for need in one.needed or ()}
    for one in needing:
        others = [each for each in libraries.own(environment) if each.distribution == one.distribution]
        if one.path in needed or len(needing) * 2 >= len(others):
            return "error"
    return "warning"


def _fixes(environment: Environment, name: str, library: Library) -> tuple[Fix, ...]:
    row = builds.package_of(name) or {}
    found = []
    if row.get("apt"):
        found.append(
            Fix(text=f"Install what brings `{name}` (Debian, Ubuntu).", command=f"apt-get install --yes {row['apt']}")
        )
    if row.get("dnf"):
        found.append(Fix(text=f"Install what brings `{name}` (Fedora, RHEL).", command=f"dnf install -y {row['dnf']}"))
    if not found and row.get("pip"):
        found.append(packages.install(environment, row["pip"], f"Install what brings `{name}`."))
    one = environment.distribution(library.distribution) if library.distribution is not None else None
    if not found and one is not None:
        found.append(packages.again(environment, one, f"Install a build of {one.name} that brings what it needs."))
    return tuple(found) or (
        Fix(text="Install the package of the system that brings it.", command=f"apt-file search {name}"),
    )


RULE = Rule(
    name="env-library-missing",
    subject=Environment,
    title="A library that a package needs cannot be found",
    match=_match,
    page=__doc__ or "",
    severity="error",
    needs=("libraries",),
    checks="libraries that are needed",
    hit="""
        distribution opencv-python 4.10.0 checked
        library /env/lib/python3/site-packages/cv2/cv2.abi3.so of opencv-python
        needed libGL.so.1
    """,
    miss="""
        distribution opencv-python 4.10.0 checked
        library /env/lib/python3/site-packages/cv2/cv2.abi3.so of opencv-python
        needed libGL.so.1 /usr/lib/libGL.so.1 by ld.so.cache
        needed libcuda.so.1
    """,
    references=("https://man7.org/linux/man-pages/man8/ld.so.8.html",),
)
