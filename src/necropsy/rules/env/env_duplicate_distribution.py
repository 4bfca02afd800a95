"""Two distributions own the same files.

What happened
-------------
Two distributions that are installed bring the same modules: tensorflow and tensorflow-cpu, opencv-python and opencv-python-headless, or one distribution
twice. The later one has overwritten files of the earlier, so that parts of both may be mixed; uninstalling one removes files of the other.

How to be sure
--------------
The RECORD files of both list the same files. ``pip list`` shows both.

How to fix it now
-----------------
Remove both, then install the one that is wanted: ``EXE -m pip uninstall --yes A B`` and ``EXE -m pip install A``.

How to prevent it
-----------------
Name only one of them in the requirements; see which other package asks for the second one with ``pip show``.

What it is often mistaken for
-----------------------------
A broken release of the package: each of them alone works.

Sources
-------
- https://packaging.python.org/en/latest/specifications/recording-installed-packages/
- https://github.com/opencv/opencv-python#installation-and-usage
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Distribution, Environment, Evidence, Fix, Overlap
from necropsy.rule import Finding, Rule, several
from necropsy.rules import packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for overlap in environment.overlaps or ():
        if overlap.first == overlap.second:
            yield _twice(environment, overlap)
        else:
            yield _two(environment, overlap)


def _two(environment: Environment, overlap: Overlap) -> Finding:
    first, second = environment.distribution(overlap.first), environment.distribution(overlap.second)
    kept, other = _kept(environment, overlap)
    installed = first if kept == overlap.first else second
    version = overlap.first_version if kept == overlap.first else overlap.second_version
    files = f"{overlap.files} files" if overlap.files > 1 else "a file"
    where = tuple(
        Evidence(claim="who owns it", seen=f"{one.name} {one.version}", where=one.metadata)
        for one in (first, second)
        if one is not None
    )
    return Finding(
        evidence=(Evidence(claim="a file that both own", seen=overlap.example, where=overlap.location), *where),
        summary=f"{overlap.first} {overlap.first_version} and {overlap.second} {overlap.second_version} both own {files}, such as `{overlap.example}`.",
        confidence="certain",
        about=frozenset({overlap.first, overlap.second}),
        fixes=(
            _fix(
                environment,
                [kept, other],
                f"{kept}=={version}",
                installed,
                f"Keep only one of them, for example {kept}.",
            ),
        ),
    )


def _twice(environment: Environment, overlap: Overlap) -> Finding:
    one = environment.distribution(overlap.first)
    versions = f"{overlap.first_version} and {overlap.second_version}"
    # pip removes one of them at a time.
    text = "Remove both and install one again."
    remove = packages.uninstall(environment, overlap.first)
    fix = packages.install(
        environment,
        f"{overlap.first}=={max((overlap.first_version, overlap.second_version), key=packages.order)}",
        text,
        like=one,
    )
    return Finding(
        evidence=(Evidence(claim="its installations in one folder", seen=versions, where=overlap.location),),
        summary=f"{overlap.first} is installed twice in one folder, as {versions}.",
        confidence="certain",
        about=frozenset({overlap.first}),
        fixes=(Fix(text=text, command=f"{remove} && {remove} && {fix.command}"),),
    )


def _kept(environment: Environment, overlap: Overlap) -> tuple[str, str]:
    """The required one, or else the one with the shorter name."""
    required = {asked.name for _, asked, _ in packages.required(environment)}
    names = sorted((overlap.first, overlap.second), key=lambda name: (name not in required, len(name)))
    return names[0], names[1]


def _fix(environment: Environment, remove: list[str], install: str, like: Distribution | None, text: str) -> Fix:
    fix = packages.install(environment, install, text, like=like)
    return Fix(text=text, command=f"{packages.uninstall(environment, *remove)} && {fix.command}")


RULE = Rule(
    _match,
    severity="warning",
    needs=("overlaps",),
    checks="distributions that own the same files",
    hit="""
        distribution tensorflow 2.20.0 checked
        distribution tensorflow-cpu 2.20.0 checked
        overlap tensorflow tensorflow-cpu 9000 tensorflow/python/_pywrap_tensorflow_internal.so
    """,
    miss="""
        distribution tensorflow 2.20.0 checked
    """,
)
