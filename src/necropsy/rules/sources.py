"""What rules on Python sources share: which places they ask about, and how these are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from necropsy.model import Confidence, Culprit, Environment, Evidence, Fix, Location, PythonPlace, SourceUse
from necropsy.model.op import UseKind
from necropsy.rule import Finding, Found


def uses(environment: Environment, kind: UseKind) -> Iterator[SourceUse]:
    """The places of this kind."""
    return (one for one in environment.uses or () if one.kind == kind)


def place(one: SourceUse) -> str:
    """``train.py:12``"""
    return f"{PurePath(one.path).name}:{one.line}"


def found(
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
