"""A variable that nothing reads has almost the name of one that is read.

What happened
-------------
A program asks for a variable by its exact name. A misspelt one is never read and has no effect, and no message says
so.

How to be sure
--------------
The name occurs in none of the libraries and Python files of the checked packages, nor in the Python files of the working directory. Compare it, letter by
letter, with the documentation.

How to fix it now
-----------------
Set the variable that was meant, and remove the other: ``export RIGHT="$WRONG"; unset WRONG``.

How to prevent it
-----------------
Copy names from the documentation. Look at the log for what the setting should change.

What it is often mistaken for
-----------------------------
A setting without effect in this version of the framework.

Sources
-------
- https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
- https://docs.python.org/3/using/cmdline.html#environment-variables
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import Finding, Rule, several


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.unread or ():
        if one.meant is None:
            continue
        name, meant = one.variable, one.meant
        both = meant in (environment.variables or {})
        command = f"unset {name}" if both else f'export {meant}="${name}"; unset {name}'
        # The value is not shown: of an unknown variable, nobody knows what it holds.
        yield Finding(
            evidence=(
                Evidence(claim="the variable", seen=name, where="environment"),
                Evidence(claim="close to", seen=meant),
            ),
            summary=f"Nothing that was searched reads {name}: {meant} is probably meant.",
            confidence="likely",
            about=frozenset({f"variable {name}"}),
            fixes=(Fix(text="Remove it." if both else "Set the variable that was meant.", command=command),),
        )


RULE = Rule(
    _match,
    severity="warning",
    needs=("variables", "unread"),
    checks="names of variables",
    hit="""
        variable CUDA_VISIBLE_DEVICE 0
        unread CUDA_VISIBLE_DEVICE CUDA_VISIBLE_DEVICES
    """,
    miss="""
        variable CUDA_VISIBLE_DEVICES 0
    """,
)
