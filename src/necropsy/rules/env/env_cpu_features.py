"""A package needs instructions that this processor does not have.

What happened
-------------
The package was compiled for newer processors. The first of its instructions that this processor does not know ends the program with SIGILL (``Illegal
instruction``), mostly on import and without any message. The official TensorFlow needs AVX. Virtual machines and emulators often hide what the real
processor has.

How to be sure
--------------
``grep -o -w avx /proc/cpuinfo | head -1`` prints nothing. ``python -c 'import tensorflow'`` ends with the exit status 132.

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

from necropsy.model import Distribution, Environment, Evidence, Fix, Interpreter
from necropsy.rule import Finding, Rule, several
from necropsy.rules import builds, cuda, packages


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    processor, interpreter = environment.processor, environment.interpreter
    # A kernel that lists no features says nothing about the processor.
    if processor is None or interpreter is None or not processor.flags:
        return
    for one in packages.checked(environment):
        for row in builds.instructions_of(one.name):
            lacking = [name for name in row["needs"] if name not in processor.flags]
            if not lacking or row["machine"] != interpreter.machine or not _is_official(one, row["since"]):
                continue
            listed = ", ".join(name.upper() for name in lacking)
            yield Finding(
                evidence=(
                    Evidence(
                        claim="the features of this processor", seen=f"no {', '.join(lacking)}", where=processor.told_by
                    ),
                    Evidence(
                        claim=f"{one.name} from {row['since']} on needs",
                        seen=", ".join(row["needs"]),
                        where="the table of builds",
                    ),
                    packages.there(one),
                ),
                summary=f"{one.name} {one.version} needs {listed}, which this processor does not have{f' ({processor.name})' if processor.name else ''}: importing it ends with SIGILL.",
                confidence="certain",
                about=frozenset({f"processor of {one.name}"}),
                fixes=(_fix(interpreter),),
            )


def _fix(interpreter: Interpreter) -> Fix:
    text = "Give the virtual machine the features of the real processor (QEMU's `-cpu host`), or use a newer processor"
    if not interpreter.conda or interpreter.prefix is None:
        return Fix(text=f"{text}.")
    command = f"conda install --prefix {shlex.quote(interpreter.prefix)} --channel conda-forge tensorflow"
    return Fix(text=f"{text}, or install conda-forge's build, which needs less.", command=command)


def _is_official(one: Distribution, since: str) -> bool:
    """A wheel of PyPI's; what was built elsewhere, or by conda, may need less."""
    return any("manylinux" in tag for tag in one.tags) and not cuda.is_older(one.version, since)


RULE = Rule(
    name="env-cpu-features",
    subject=Environment,
    title="A package needs instructions that this processor does not have",
    match=_match,
    page=__doc__ or "",
    severity="error",
    needs=("processor", "distributions"),
    checks="the processor's instructions",
    hit="""
        distribution tensorflow 2.20.0 checked cp311-cp311-manylinux_2_17_x86_64
        processor fpu sse sse2 ssse3 sse4_1 sse4_2 popcnt
    """,
    miss="""
        distribution tensorflow 2.20.0 checked cp311-cp311-manylinux_2_17_x86_64
        processor fpu sse sse2 ssse3 sse4_1 sse4_2 popcnt avx
    """,
    references=("https://www.tensorflow.org/install/pip#hardware_requirements",),
)
