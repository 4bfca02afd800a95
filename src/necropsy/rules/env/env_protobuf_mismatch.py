"""The protobuf that is installed does not support a package's generated code.

What happened
-------------
Packages bring Python code that ``protoc`` generated. The protobuf package that runs it has to be at least as new as the generator was; and from
4.0 on it refuses code that was generated before 3.20.

How to be sure
--------------
The generated files (``*_pb2.py``) name the generator's version in their head. On import, protobuf raises ``VersionError: Detected incompatible
Protobuf Gencode/Runtime versions`` or ``TypeError: Descriptors cannot be created directly``.

How to fix it now
-----------------
Install a protobuf in the range that the finding names: ``EXE -m pip install 'protobuf>=5.28.3'``.

How to prevent it
-----------------
Do not install ``protobuf`` by itself with ``--upgrade`` or another version beside a framework that names a range.

What it is often mistaken for
-----------------------------
A bug of TensorFlow, because the traceback ends in one of its files.

Sources
-------
- https://protobuf.dev/support/cross-version-runtime-guarantee/
- https://protobuf.dev/news/2022-05-06/#python-updates
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from necropsy.model import Distribution, Environment, Evidence
from necropsy.rule import Finding, Rule
from necropsy.rules import packages

_CHECKED_SINCE = Version("5.26")
"""The first runtime that generated code asks for its version."""
_OLD = Version("3.20")
_REFUSES_OLD = Version("4.0")


def _match(environment: Environment) -> Finding | None:
    runtime = environment.distribution("protobuf")
    number = packages.version(runtime.version) if runtime is not None else None
    if runtime is None or number is None:
        return None
    rows = list(_unsupported(environment, number))
    if not rows:
        return None
    one, made, specifier = rows[0]
    wanted = packages.together(environment, "protobuf", *(each for _, _, each in rows))
    text = "Install a protobuf that supports all of it."
    if packages.is_possible(wanted):
        fix = packages.install(environment, f"protobuf{wanted}", text, like=runtime)
    else:
        text = "No version of protobuf serves all packages; have versions chosen that fit together."
        fix = packages.upgrade(environment, [*(one.name for one, _, _ in rows), "protobuf"], text, like=runtime)
    by = "before 3.20" if made < _OLD else f"by protobuf {made}"
    evidence = tuple(
        Evidence(
            claim=f"what generated code of {one.name} {one.version}",
            seen="a version before 3.20" if made < _OLD else f"Protobuf Python Version: {made}",
            where=f"{one.location}, *_pb2.py",
        )
        for one, made, _ in rows
    )
    return Finding(
        evidence=(*evidence, packages.there(runtime)),
        summary=f"Code of {one.name} {one.version} was generated {by}, which protobuf {runtime.version} does not support ({specifier} does).",
        confidence="certain",
        about=frozenset({"protobuf"}),
        fixes=(fix,),
    )


def _unsupported(environment: Environment, runtime: Version) -> Iterator[tuple[Distribution, Version, str]]:
    """Distributions with rejected generated code, its generator, and supporting versions."""
    in_python = (environment.variables or {}).get("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION") == "python"
    for one in packages.checked(environment):
        made = packages.version(one.generated_by) if one.generated_by and one.name != "protobuf" else None
        if made is None:
            continue
        if made < _OLD:
            if runtime >= _REFUSES_OLD and not in_python:
                yield one, made, "<4"
        elif made >= _CHECKED_SINCE and runtime < made:
            yield one, made, f">={made}"


RULE = Rule(
    _match,
    needs=("distributions",),
    beats=("env-package-conflict",),
    checks="protobuf's generated code",
    hit="""
        distribution tensorflow 2.20.0 checked
        requires protobuf>=5.28.0
        generated-by 5.28.3
        distribution protobuf 4.25.3 checked
    """,
    miss="""
        distribution tensorflow 2.20.0 checked
        requires protobuf>=5.28.0
        generated-by 5.28.3
        distribution protobuf 6.31.1 checked
    """,
)
