"""What rules on C++ sources share: which defects they ask about, and how one becomes a finding."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePath

from necropsy.model import (
    CodeDefect,
    CodePlace,
    Confidence,
    Culprit,
    Environment,
    Evidence,
    Fix,
    Location,
    PythonPlace,
    SourceUse,
)
from necropsy.model.op import UseKind
from necropsy.rule import Finding, Found
from necropsy.rules import stacks


def defects(environment: Environment, rule: str) -> Iterator[CodeDefect]:
    """The defects that the rule of this name tells."""
    return (one for one in environment.code or () if one.rule == rule)


def place(one: CodeDefect) -> str:
    """``op.cc:12``"""
    return f"{PurePath(one.place.path).name}:{one.place.line}"


def found(
    one: CodeDefect,
    *,
    summary: str,
    fixes: tuple[Fix, ...],
    about: frozenset[str] = frozenset(),
    title: str | None = None,
) -> Finding:
    """A finding at the defect's place, with the line and the steps of the proof as evidence.

    Rules that see the same defect share the key ``path:line:column`` of the place; ``about`` adds others.
    """
    source = Evidence(claim="the source", seen=one.place.text, where=f"{one.place.path}:{one.place.line}")
    steps = tuple(Evidence(claim=each.claim, seen=each.seen, where=each.where) for each in one.facts)
    return Finding(
        evidence=(source, *steps),
        summary=summary,
        title=title,
        confidence=one.confidence,
        severity=one.severity,
        culprit=Culprit(
            function=one.function, source=one.place.path, line=one.place.line, op=one.op, kernel=one.kernel
        ),
        locations=tuple(_location(each) for each in (one.place, *one.others)),
        about=frozenset({f"{one.place.path}:{one.place.line}:{one.place.column}"}) | about,
        fixes=(*fixes, *_repair(one)),
    )


def _repair(one: CodeDefect) -> tuple[Fix, ...]:
    if one.repair is None:
        return ()
    size = f"--stack-size {one.stack} " if one.stack not in {None, stacks.DEFAULT} else ""
    command = f"necropsy check --fix --select {one.rule} {size}{shlex.quote(one.source or one.place.path)}"
    return (Fix(text=f"necropsy check --fix {one.repair}.", command=command),)


def _location(one: CodePlace) -> Location:
    return Location(path=one.path, line=one.line, column=one.column, end_line=one.end_line, role=one.role)


def of_op(one: CodeDefect) -> str:
    """`` (op Foo)``, or nothing where no op is known."""
    return f" (op {one.op})" if one.op else ""


def example(one: CodeDefect) -> str:
    """``, for example with input 1 = 0``: numbers for which it happens, where the analysis has some."""
    numbers = one.names.get("witness", "")
    return f"; for example with {numbers}" if numbers else ""


def told(one: CodeDefect, name: str) -> str:
    """What a sentence names: text, or a number."""
    return one.names[name] if name in one.names else str(one.numbers.get(name, ""))


def uses(environment: Environment, kind: UseKind) -> Iterator[SourceUse]:
    """The places of this kind."""
    return (one for one in environment.uses or () if one.kind == kind)


def place_of_use(one: SourceUse) -> str:
    """``train.py:12``"""
    return f"{PurePath(one.path).name}:{one.line}"


def found_use(
    one: SourceUse, *, summary: str, confidence: Confidence, fixes: tuple[Fix, ...], evidence: Found = ()
) -> Finding:
    """A finding at this place, with the line as its first evidence."""
    return Finding(
        evidence=(Evidence(claim="the source", seen=one.text, where=f"{one.path}:{one.line}"), *evidence),
        summary=summary,
        confidence=confidence,
        culprit=Culprit(function=one.name, python=PythonPlace(file=one.path, line=one.line)),
        locations=(Location(path=one.path, line=one.line, column=one.column, end_line=one.end_line, role="call"),),
        about=frozenset({f"{one.path}:{one.line}:{one.column}"}),
        fixes=fixes,
    )
