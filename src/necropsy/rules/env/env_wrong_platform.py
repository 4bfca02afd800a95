"""A package was built for another processor or operating system.

What happened
-------------
A package's compiled code is for another processor or system than the interpreter: a folder that was copied or mounted from another machine, a wheel
that was downloaded for another platform, or an image for another architecture.

How to be sure
--------------
The ``Tag:`` lines of the WHEEL file name another platform, or the header of its libraries another processor. On import: ``wrong ELF class``, ``invalid ELF
header``, or ``cannot open shared object file``.

How to fix it now
-----------------
Install it for this machine: ``EXE -m pip install --force-reinstall --no-deps 'NAME==VERSION'``.

How to prevent it
-----------------
Do not copy virtual environments between machines; install from the same list of versions instead.

What it is often mistaken for
-----------------------------
A damaged download: the files are whole, for another machine.

Sources
-------
- https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/
- https://man7.org/linux/man-pages/man5/elf.5.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Distribution, Environment, Evidence, Interpreter, Library
from necropsy.rule import Finding, Rule, several
from necropsy.rules import packages, wheel_tags


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    interpreter = environment.interpreter
    if interpreter is None:
        return
    for one in packages.checked(environment):
        tagged = bool(one.tags) and not wheel_tags.fits_platform(one.tags, interpreter)
        strange = [
            each
            for each in environment.libraries or ()
            if each.distribution == one.name and _is_strange(each, interpreter)
        ]
        whole = [each for each in environment.libraries or () if each.distribution == one.name]
        # Some packages bring a few libraries for other machines along, which they never load.
        if tagged or (strange and len(strange) == len(whole)):
            yield _finding(environment, one, interpreter, strange, tagged=tagged)


def _is_strange(library: Library, interpreter: Interpreter) -> bool:
    if library.system is not None and interpreter.system is not None and library.system != interpreter.system:
        return True
    return None not in {library.machine, interpreter.machine} and library.machine != interpreter.machine


def _finding(
    environment: Environment, one: Distribution, interpreter: Interpreter, strange: list[Library], *, tagged: bool
) -> Finding:
    evidence = []
    if tagged:
        evidence.append(
            Evidence(claim="what it was built for", seen=f"Tag: {one.tags[0]}", where=wheel_tags.file_of(one))
        )
    for library in strange[:1]:
        more = f", as {len(strange) - 1} more are" if len(strange) > 1 else ""
        evidence.append(Evidence(claim="a library of it", seen=f"{_kind(library)}{more}", where=library.path))
    what = _kind(strange[0]) if strange else wheel_tags.platforms(one.tags)
    here = f"{interpreter.system} {interpreter.machine}"
    evidence.append(Evidence(claim="the interpreter", seen=here, where=interpreter.executable))
    return Finding(
        evidence=tuple(evidence),
        summary=f"{one.name} {one.version} was built for {what}, and this interpreter runs on {here}.",
        confidence="certain",
        about=frozenset({f"build of {one.name}"}),
        fixes=(packages.again(environment, one, "Install it for this machine."),),
    )


def _kind(library: Library) -> str:
    return " ".join(part for part in (library.system, library.machine) if part)


RULE = Rule(
    _match,
    needs=("distributions", "interpreter", "libraries"),
    beats=("env-python-abi-mismatch",),
    checks="the platform that packages were built for",
    hit="""
        distribution h5py 3.9.0 checked cp311-cp311-win_amd64
    """,
    miss="""
        distribution h5py 3.9.0 checked cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64
        library /env/lib/python3/site-packages/h5py/h5.so of h5py
    """,
)
