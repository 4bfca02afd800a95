"""A variable has a value, or a flag in it, that its reader does not understand.

What happened
-------------
Most programs ignore a value that they do not understand, often without a word, so the setting has no effect. XLA ends the process: an unknown flag in
XLA_FLAGS when the first computation is compiled, one in TF_XLA_FLAGS at the first operation. Flags come and go from release to release.

How to be sure
--------------
The log says ``Unknown flag in XLA_FLAGS: --xla_foo``, ``Could not open file``, ``Failed to parse the env-var`` or ``Invalid value for environment variable``.
XLA takes a value that does not begin with a dash as the name of a file of flags.

How to fix it now
-----------------
Correct the value, or take the variable out: ``unset XLA_FLAGS``.

How to prevent it
-----------------
Set variables in the script that starts the program, next to the version of the framework that they are for.

What it is often mistaken for
-----------------------------
A crash of the compiler: the process ends with SIGABRT long after the import, in the middle of the first training step.

Sources
-------
- https://github.com/openxla/xla/blob/main/xla/parse_flags_from_env.cc
- https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/util/env_var.h
- https://gcc.gnu.org/onlinedocs/libgomp/Environment-Variables.html
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, UnreadSetting
from necropsy.rule import Finding, Rule, several
from necropsy.rules import related

_WHEN = {"XLA_FLAGS": "when the first XLA computation is compiled", "TF_XLA_FLAGS": "at the first operation"}
_XLA_ONLY = ("--xla_gpu_", "--xla_cpu_", "--xla_dump_", "--xla_hlo_")


def _match(environment: Environment) -> Finding | None:
    return several([*_values(environment), *_flags(environment), *_misplaced(environment)])


def _values(environment: Environment) -> Iterator[Finding]:
    for row, value in related.known(environment):
        if "values" in row and not related.fits(row["values"], value, row):
            name = row["name"]
            yield Finding(
                evidence=(related.evidence(name, value), Evidence(claim="what is understood", seen=row["expected"])),
                summary=f"{name}={value} is not understood: it has to be {row['expected']}. Another value {row['else']}.",
                confidence="certain",
                severity=row["severity"],
                about=frozenset({f"variable {name}"}),
                fixes=(related.unset(name, "Take it out."),),
            )


def _flags(environment: Environment) -> Iterator[Finding]:
    for one in environment.unread or ():
        if one.variable not in _WHEN:
            continue
        if one.flag is None:
            yield _finding(environment, one.variable, None, f"{one.variable} names a file that cannot be opened", one)
        else:
            yield _finding(environment, one.variable, one.flag, f"{' and '.join(one.searched)} does not know it", one)


def _misplaced(environment: Environment) -> Iterator[Finding]:
    told = {one.flag for one in environment.unread or ()}
    if not any(one.name.startswith(("tensorflow", "jax")) and one.checked for one in environment.distributions or ()):
        return
    for name, prefixes, other in (("XLA_FLAGS", ("--tf_",), "TF_XLA_FLAGS"), ("TF_XLA_FLAGS", _XLA_ONLY, "XLA_FLAGS")):
        for word in _words((environment.variables or {}).get(name, "")):
            if word.startswith(prefixes) and word not in told:
                yield _finding(environment, name, word, f"it is a flag for {other}", None)


def _finding(environment: Environment, name: str, flag: str | None, why: str, one: UnreadSetting | None) -> Finding:
    value = (environment.variables or {}).get(name, "")
    left = [word for word in _words(value) if word != flag] if flag is not None else []
    ends = f"A program that uses it ends {_WHEN[name]} (SIGABRT)."
    summary = f"{flag} in {name} is not understood: {why}. {ends}" if flag is not None else f"{why}. {ends}"
    fix = (
        related.export(name, " ".join(map(shlex.quote, left)), "Take the flag out.")
        if left
        else related.unset(name, "Take it out.")
    )
    searched = tuple(Evidence(claim="searched for the flag", seen=each) for each in (one.searched if one else ()))
    return Finding(
        evidence=(Evidence(claim="the flag", seen=flag or value, where=name), *searched),
        summary=summary,
        confidence="certain",
        severity="error",
        about=frozenset({f"flag {flag or name}"}),
        fixes=(fix,),
    )


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return []


RULE = Rule(
    _match,
    title="A variable has a value that its reader does not understand",
    severity="warning",
    needs=("variables",),
    checks="values of variables",
    hit="""
        variable TF_ENABLE_ONEDNN_OPTS off
    """,
    miss="""
        variable TF_ENABLE_ONEDNN_OPTS 0
    """,
)
