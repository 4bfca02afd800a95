"""NumPy's binary interface is not the one that a package was built for.

What happened
-------------
NumPy 2.0 changed the binary interface (ABI) that compiled packages use. What was built for NumPy 1.x does not work with NumPy 2 and later: the
import fails, or the program crashes. What requires NumPy 2 does not work with 1.x either.

How to be sure
--------------
The package requires ``numpy<2`` (or was built before NumPy 2 was there) and numpy 2.x is installed, or the other way round. Only packages with
compiled code count. The import prints ``A module that was compiled using NumPy 1.x cannot be run in NumPy 2.x``.

How to fix it now
-----------------
Install the other generation: ``EXE -m pip install 'numpy<2'`` with the interpreter's own path as EXE; or a newer release of the package, which
was built for NumPy 2.

How to prevent it
-----------------
Keep ``numpy<2`` in the requirements while one of the packages is older than NumPy 2 (June 2024).

What it is often mistaken for
-----------------------------
A broken installation of NumPy: NumPy itself works.

Sources
-------
- https://numpy.org/doc/stable/dev/depending_on_numpy.html#numpy-2-abi-handling
- https://numpy.org/devdocs/numpy_2_0_migration_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Distribution, Environment, Evidence
from necropsy.rule import Finding, Found, Rule
from necropsy.rules import compatibility, packages

_FRAMEWORKS_OF_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel")


def _match(environment: Environment) -> Finding | None:
    numpy = environment.distribution("numpy")
    number = packages.version(numpy.version) if numpy is not None else None
    if numpy is None or number is None:
        return None
    rows = list(_built_for_another(environment, number.major))
    if not rows:
        return None
    names = ", ".join(f"{one.name} {one.version}" for one, _, _ in rows)
    wanted = packages.together(environment, "numpy", *(specifier for _, specifier, _ in rows))
    text = "Install the generation that it was built for."
    if packages.is_possible(wanted):
        fix = packages.install(environment, f"numpy{wanted}", text, like=numpy)
    else:
        text = "No version of numpy serves all packages; have versions chosen that fit together."
        fix = packages.upgrade(environment, [*(one.name for one, _, _ in rows), "numpy"], text, like=numpy)
    return Finding(
        evidence=(*(one for _, _, found in rows for one in found), packages.there(numpy)),
        summary=f"{names} {'was' if len(rows) == 1 else 'were'} built for another NumPy ABI ({rows[0][1]}), and numpy {numpy.version} is installed.",
        confidence="certain",
        about=frozenset({"numpy"}),
        fixes=(fix,),
    )


def _built_for_another(environment: Environment, major: int) -> Iterator[tuple[Distribution, str, Found]]:
    """Distributions built for another generation, for which versions, and the evidence."""
    for one in packages.checked(environment):
        if one.name == "numpy" or not packages.is_native(environment, one):
            continue
        declared = next((each for each in one.requires if each.name == "numpy" and each.applies), None)
        if declared is not None and declared.specifier and not _allows(declared.specifier, major):
            yield one, declared.specifier, (packages.quoted(one, declared),)
            continue
        old = next(
            (each for each in environment.libraries or () if each.distribution == one.name and each.numpy == 1), None
        )
        if old is not None and major >= 2:
            claim = "it was compiled for NumPy 1.x: it imports only the module of that"
            yield one, "<2", (Evidence(claim=claim, seen="numpy.core._multiarray_umath", where=old.path),)
            continue
        built = (
            compatibility.needs_of_tensorflow(one.version, "numpy") if one.name in _FRAMEWORKS_OF_TENSORFLOW else None
        )
        if built is not None and not _allows(built, major):
            claim = f"{one.name} {one.version} was built for numpy{built}, whatever it requires"
            yield one, built, (Evidence(claim=claim, seen=f"{one.name} {one.version}", where=one.metadata),)


def _allows(specifier: str, major: int) -> bool:
    """Some version of this generation meets the specifier."""
    return any(packages.meets(f"{major}.{minor}.{patch}", specifier) for minor in range(40) for patch in (0, 99))


RULE = Rule(
    _match,
    needs=("distributions",),
    beats=("env-package-conflict",),
    checks="NumPy's ABI",
    hit="""
        distribution tensorflow 2.15.1 checked cp311-cp311-manylinux_2_17_x86_64
        requires numpy<2.0.0,>=1.23.5
        distribution numpy 2.1.0 checked cp311-cp311-manylinux_2_17_x86_64
    """,
    miss="""
        distribution tensorflow 2.15.1 checked cp311-cp311-manylinux_2_17_x86_64
        requires numpy<2.0.0,>=1.23.5
        distribution numpy 1.22.0 checked cp311-cp311-manylinux_2_17_x86_64
    """,
)
