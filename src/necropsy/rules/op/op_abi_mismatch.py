"""The library of a custom op, before it is loaded: the page is that of the rule on crashes of this name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules import ops
from necropsy.rules.crash import op_abi_mismatch as of_crashes

_FLAGS = "import tensorflow as tf; print(*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags())"


def _match(environment: Environment) -> Finding | None:
    return several([*_symbols(environment), *_releases(environment)])


def _symbols(environment: Environment) -> Iterator[Finding]:
    for one in environment.ops or ():
        names = ops.of_tensorflow(one)
        if not names:
            continue
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield Finding(
            evidence=(
                *(
                    Evidence(
                        claim="a symbol of TensorFlow that the installed one does not have", seen=name, where=one.path
                    )
                    for name in names[:5]
                ),
                *ops.abseil_seen(one),
                *ops.strings_seen(one),
            ),
            summary=f"`{one.path}` needs `{ops.short(names[0])}`{more}, which the installed TensorFlow does not have: {ops.reason(one)}.",
            confidence="certain",
            about=frozenset({f"symbols of {one.path}"}),
            fixes=_fixes(environment),
        )


def _releases(environment: Environment) -> Iterator[Finding]:
    """It names another major version's TensorFlow library."""
    for one in environment.libraries or ():
        if not one.is_op:
            continue
        for need in one.needed or ():
            there = ops.other_release(environment, need.name) if need.path is None else None
            if there is not None:
                yield Finding(
                    evidence=(
                        Evidence(claim="what it needs", seen=f"NEEDED {need.name}", where=one.path),
                        Evidence(claim="what the installed TensorFlow has", seen=there),
                    ),
                    summary=f"`{one.path}` needs `{need.name}` of another TensorFlow; the installed one has `{there}`.",
                    confidence="certain",
                    about=frozenset({f"library {need.name}"}),
                    fixes=_fixes(environment),
                )


def _fixes(environment: Environment) -> tuple[Fix, ...]:
    command = shlex.join([environment.executable or "python", "-c", _FLAGS])
    text = "Build it again for the TensorFlow that is installed: put the flags that this prints at the end of the g++ command."
    return (Fix(text=text, command=command),)


RULE = Rule(
    _match,
    page=of_crashes.RULE.page,
    needs=("ops", "libraries"),
    beats=("env-library-missing", "env-symbol-missing"),
    tried=of_crashes.RULE.tried,
    checks="whether custom ops fit TensorFlow",
    hit="""
        distribution tensorflow 2.20.0 checked
        op /home/u/op.so
        op-lacks _ZN4absl12lts_2023080212log_internal10LogMessageC1EPKci
        op-abseil 20230802 20250127
    """,
    miss="""
        distribution tensorflow 2.20.0 checked
        op /home/u/op.so
    """,
)
