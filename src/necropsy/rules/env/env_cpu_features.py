"""A package needs instructions that this processor does not have.

What happened
-------------
The package was compiled for newer processors. The first of its instructions that this processor does not know ends the program with SIGILL (``Illegal
instruction``), mostly on import and without any message. The official TensorFlow needs AVX. Virtual machines and emulators often hide what the real
processor has. A library may also be marked with the level of x86-64 that it needs (``x86-64-v3``): glibc 2.33 and later then refuses to load it.

Of a package that no table knows, the code of one small library is read. Packages that have files for several processors, or that ask the processor what it can
do, are left out.

How to be sure
--------------
``grep -o -w avx /proc/cpuinfo | head -1`` prints nothing. ``python -c 'import tensorflow'`` ends with the exit status 132. Of a marked library,
``readelf -n FILE`` shows ``x86 ISA needed``, and the loader says ``CPU ISA level is lower than required``.

How to fix it now
-----------------
Give the virtual machine the real processor's features (``-cpu host`` in QEMU and Proxmox), or use another machine. conda-forge's builds and builds of your
own need less: ``conda install -c conda-forge tensorflow``.

How to prevent it
-----------------
Compare the features of the oldest machine with what the package needs.

What it is often mistaken for
-----------------------------
A broken installation. TensorFlow's line *To enable the following instructions: AVX2 FMA* is harmless: it names what the processor has and the build does not use.

Sources
-------
- https://www.tensorflow.org/install/pip#hardware_requirements
- https://www.qemu.org/docs/master/system/qemu-cpu-models.html
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from necropsy.model import Distribution, Environment, Evidence, Fix, Interpreter, Processor
from necropsy.rule import X86_64, Finding, Occurs, Rule, several
from necropsy.rules import compatibility, cuda, libraries, packages


def _match(environment: Environment) -> Finding | None:
    processor = environment.processor
    # A kernel that lists no features says nothing about the processor.
    if processor is None or not processor.flags:
        return None
    surer = (*_by_the_table(environment, processor), *_by_their_marks(environment, processor))
    told = frozenset(key for one in surer for key in one.about)
    return several((*surer, *(one for one in _by_their_code(environment, processor) if not one.about & told)))


def _by_the_table(environment: Environment, processor: Processor) -> Iterator[Finding]:
    machine = _machine(environment)
    for one in packages.checked(environment):
        for row in compatibility.instructions_of(one.name):
            lacking = [name for name in row["needs"] if name not in processor.flags]
            if not lacking or row["machine"] != machine or not _is_official(environment, one, row["since"]):
                continue
            needs = Evidence(
                claim=f"{one.name} from {row['since']} on needs",
                seen=", ".join(row["needs"]),
                where="the table of builds",
            )
            yield Finding(
                evidence=(_seen(processor, lacking), needs, packages.there(one)),
                summary=f"{one.name} {one.version} needs {_listed(lacking)}, which this processor does not have{_named(processor)}: importing it ends with SIGILL.",
                confidence="certain",
                about=frozenset({f"processor of {one.name}"}),
                fixes=(_fix(environment.interpreter),),
            )


def _by_their_marks(environment: Environment, processor: Processor) -> Iterator[Finding]:
    """Libraries marked with an x86-64 level; one finding for each package."""
    told: set[str | None] = set()
    for one in libraries.own(environment):
        lacking = [
            name
            for level in range(2, (one.isa_level or 1) + 1)
            for name in compatibility.features_of_level(level)
            if name not in processor.flags
        ]
        if not lacking or one.distribution in told:
            continue
        told.add(one.distribution)
        level = f"x86-64-v{one.isa_level}"
        yield Finding(
            evidence=(
                _seen(processor, lacking),
                Evidence(claim="the level that it is marked to need", seen=level, where=one.path),
            ),
            summary=f"`{one.path.rpartition('/')[2]}` of {libraries.owner(environment, one)} needs a processor of level {level}, and this one lacks {_listed(lacking)}{_named(processor)}: the loader refuses it.",
            confidence="certain",
            about=frozenset({f"processor of {one.distribution}", f"file {one.path}"}),
            fixes=(Fix(text=f"{_NEWER}, or install a build for older ones."),),
        )


def _by_their_code(environment: Environment, processor: Processor) -> Iterator[Finding]:
    """Small libraries whose code was read: others of the package are mostly compiled alike."""
    for one in libraries.own(environment):
        brings = environment.distribution(one.distribution or "")
        if not one.unsupported or brings is None:
            continue
        need = one.unsupported[0]
        functions = f"{need.functions} functions" if need.functions > 1 else "a function"
        yield Finding(
            evidence=(
                Evidence(
                    claim=f"an instruction of {need.feature}", seen=f"`{need.text}` in {need.where}", where=one.path
                ),
                _seen(processor, [need.flag]),
                packages.there(brings),
            ),
            summary=f"{libraries.owner(environment, one)} was compiled for {need.feature}, which this processor does not have{_named(processor)}: {functions} of `{one.path.rpartition('/')[2]}` would end the program with SIGILL.",
            confidence="likely",
            severity="warning",
            about=frozenset({f"processor of {one.distribution}"}),
            fixes=(
                packages.from_source(environment, brings, "Compile it here, which takes a compiler and its tools."),
                Fix(text=f"{_NEWER}."),
            ),
        )


def _seen(processor: Processor, lacking: list[str]) -> Evidence:
    return Evidence(claim="the features of this processor", seen=f"no {', '.join(lacking)}", where=processor.told_by)


def _listed(lacking: list[str]) -> str:
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    return ", ".join(name.upper() for name in lacking[:3]) + more


def _named(processor: Processor) -> str:
    return f" ({processor.name})" if processor.name else ""


_NEWER = "Give the virtual machine the features of the real processor (QEMU's `-cpu host`), or use a newer processor"


def _fix(interpreter: Interpreter | None) -> Fix:
    if interpreter is None or not interpreter.conda or interpreter.prefix is None:
        return Fix(text=f"{_NEWER}.")
    command = f"conda install --prefix {shlex.quote(interpreter.prefix)} --channel conda-forge tensorflow"
    return Fix(text=f"{_NEWER}, or install conda-forge's build, which needs less.", command=command)


def _machine(environment: Environment) -> str | None:
    if environment.interpreter is not None:
        return environment.interpreter.machine
    return (environment.platform or "").rpartition(" ")[2]


def _is_official(environment: Environment, one: Distribution, since: str) -> bool:
    """A PyPI wheel (others may need less), or a dead process, whose library already met such an instruction."""
    official = environment.mapped or any("manylinux" in tag for tag in one.tags)
    return official and not cuda.is_older(one.version, since)


RULE = Rule(
    _match,
    needs=("processor", "distributions"),
    occurs=Occurs(linux=X86_64, windows=X86_64, macos=X86_64),
    checks="the processor's instructions",
    hit="""
        distribution tensorflow 2.20.0 checked cp311-cp311-manylinux_2_17_x86_64
        processor fpu sse sse2 ssse3 sse4_1 sse4_2 popcnt
    """,
    miss="""
        distribution tensorflow 2.20.0 checked cp311-cp311-manylinux_2_17_x86_64
        processor fpu sse sse2 ssse3 sse4_1 sse4_2 popcnt avx
    """,
)
