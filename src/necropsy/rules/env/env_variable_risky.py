"""A variable is set that is known to cause crashes, or to hide them.

What happened
-------------
Some variables are meant for one experiment, or switch off a check that ends a program before it computes nonsense. Left in a start-up file, they act on
every program.

How to be sure
--------------
Unset the variable and run the program again: an error that shows then was hidden before.

How to fix it now
-----------------
``unset NAME``, and repair what it was set for.

How to prevent it
-----------------
Set such variables in front of one command (``NAME=1 python train.py``), not with ``export``.

What it is often mistaken for
-----------------------------
A repair: the message is gone, but not its cause.

Sources
-------
- https://openmp.llvm.org/design/Runtimes.html#environment-variables
- https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
- https://docs.python.org/3/using/cmdline.html#envvar-PYTHON_GIL
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence
from necropsy.rule import Finding, Rule, several
from necropsy.rules import related


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for row, value in related.known(environment):
        if "risky" in row and related.fits(row["risky"], value.strip(), row):
            name = row["name"]
            yield Finding(
                evidence=(related.evidence(name, value), Evidence(claim="described in", seen=row["source"])),
                summary=f"{name}={value} is a risk: {row['risk']}.",
                confidence="certain",
                severity=row["weight"],
                about=frozenset({f"variable {name}"}),
                fixes=(related.unset(name, row["remedy"] + "."),),
            )


RULE = Rule(
    _match,
    title="A variable is set that is known to cause or hide crashes",
    severity="warning",
    needs=("variables",),
    checks="risky variables",
    hit="""
        variable KMP_DUPLICATE_LIB_OK TRUE
    """,
    miss="""
        variable KMP_DUPLICATE_LIB_OK FALSE
    """,
)
