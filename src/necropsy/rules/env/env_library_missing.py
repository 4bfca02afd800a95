"""A library that a package needs cannot be found.

What happened
-------------
A compiled file of a package names another library that it needs (``NEEDED``), and the dynamic loader cannot find it. A
system package is not installed, or its folder is not on a search path. On Windows: a DLL that it imports is in none of these folders: its own,
Python's, those that packages add, System32. Since Python 3.8, PATH is not searched for what extension modules import.

How to be sure
--------------
``readelf -d FILE | grep NEEDED`` shows the name; ``ldd FILE`` says ``not found``. On import: ``cannot open shared object file: No such file or directory``. On Windows: ``dumpbin /dependents FILE``,
and ``DLL load failed while importing NAME: The specified module could not be found``.

How to fix it now
-----------------
Install what brings it, for example ``apt-get install libgl1`` for libGL.so.1; the finding names it where it is known. A DLL that is on PATH:
``os.add_dll_directory(FOLDER)`` before the import, or a copy of it beside the module.

How to prevent it
-----------------
In a container image, install the libraries of the system that the packages need, and import each package once while the image is built.

What it is often mistaken for
-----------------------------
A missing Python package: the import fails, and the module is there. On Windows, names that begin with ``api-ms-win-`` are no files and never missing.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://packages.debian.org/index
- https://docs.python.org/3/library/os.html#os.add_dll_directory
- https://learn.microsoft.com/windows/win32/dlls/dynamic-link-library-search-order
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix, Library, Severity
from necropsy.rule import Finding, Rule, several
from necropsy.rules import compatibility, libraries, packages, windows_dlls


def _match(environment: Environment) -> Finding | None:
    return several([*_findings(environment), *windows_dlls.missing(environment)])


def _findings(environment: Environment) -> Iterator[Finding]:
    asking: dict[str, list[Library]] = {}
    for one in libraries.own(environment):
        for need in one.needed or ():
            if need.path is None and not libraries.is_of_the_driver(need.name):
                asking.setdefault(need.name, []).append(one)
    required = _required(environment)
    alike: dict[tuple[str | None, Severity], list[str]] = {}
    for name, needing in sorted(asking.items()):
        severity = _severity(environment, needing, required)
        if severity == "error" or compatibility.package_of(name) is not None:
            yield _finding(environment, [name], needing, severity)
        else:
            alike.setdefault((needing[0].distribution, severity), []).append(name)
    # What a package's plugins lack is one thing to know: a toolkit for windows has dozens of them.
    for (_, severity), names in alike.items():
        users = {one.path: one for name in names for one in asking[name]}
        yield _finding(environment, names, list(users.values()), severity)


def _finding(environment: Environment, names: list[str], needing: list[Library], severity: Severity) -> Finding:
    files = sorted(needing, key=lambda one: one.path)
    first = files[0]
    more = f" and {len(needing) - 1} more files" if len(needing) > 1 else ""
    listed = f"`{names[0]}`" + (
        f" and {len(names) - 1} more librar{'y' if len(names) == 2 else 'ies'}" if len(names) > 1 else ""
    )
    lacked = {name: [one for one in files if any(need.name == name for need in one.needed or ())] for name in names}
    rows = [(name, one) for name, users in lacked.items() for one in users[: 5 if len(names) == 1 else 1]]
    return Finding(
        evidence=tuple(
            Evidence(claim="what needs it", seen=f"NEEDED {name}", where=one.path) for name, one in rows[:5]
        ),
        summary=f"{listed} cannot be found; {libraries.owner(environment, first)} needs {'it' if len(names) == 1 else 'them'} (`{first.path.rsplit('/', 1)[-1]}`{more}).",
        confidence="certain",
        severity=severity,
        about=frozenset(f"library {name}" for name in names),
        fixes=_fixes(environment, names[0]),
    )


def _required(environment: Environment) -> frozenset[str]:
    """Files loaded only with libraries that are not plugins."""
    own = libraries.own(environment)
    wanted = {need.path for one in own for need in one.needed or ()}
    found: set[str] = set()
    for one in own:
        if one.path not in wanted and not libraries.is_optional(one):
            found.update(libraries.closure(environment, one))
    return frozenset(found)


def _severity(environment: Environment, needing: list[Library], required: frozenset[str]) -> Severity:
    """Packages have plugins for rare libraries; one of many files may never be loaded."""
    if all(libraries.is_optional(one) for one in needing):
        return "note"
    for one in needing:
        others = [each for each in libraries.own(environment) if each.distribution == one.distribution]
        if one.path in required or len(needing) * 2 >= len(others):
            return "error"
    return "warning"


def _fixes(environment: Environment, name: str) -> tuple[Fix, ...]:
    row = compatibility.package_of(name) or {}
    found = []
    if row.get("apt"):
        found.append(
            Fix(text=f"Install what brings `{name}` (Debian, Ubuntu).", command=f"apt-get install --yes {row['apt']}")
        )
    if row.get("dnf"):
        found.append(Fix(text=f"Install what brings `{name}` (Fedora, RHEL).", command=f"dnf install -y {row['dnf']}"))
    if not found and row.get("pip"):
        found.append(packages.install(environment, row["pip"], f"Install what brings `{name}`."))
    # Were it a file of the package itself that is gone, another rule would say so: to install it again would not help.
    return tuple(found) or (
        Fix(text="Install the package of the system that brings it.", command=f"apt-file search {name}"),
    )


RULE = Rule(
    _match,
    needs=("libraries or dlls",),
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
)
