"""The JSON document: what is written for one run, one file or one question."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Noun
from necropsy.model.concluded import Diagnosis, NotTried, Report
from necropsy.model.observed import Exit, Gap

SubjectKind = Literal[
    "process",
    "core",
    "minidump",
    "capsule",
    "log",
    "exit-status",
    "environment",
    "source",
    "binary",
    "dataset",
]
DocumentKind = Literal["run", "diagnosis", "doctor", "audit", "dataset"]


class StackUse(Noun, frozen=True, kw_only=True):
    """How much of its stack a thread used at the most: ``size`` and ``peak`` in bytes."""

    tid: int
    name: str | None = None
    size: int | None = None
    peak: int | None = None


class Process(Noun, frozen=True, kw_only=True):
    """One process of the run; ``started`` is ISO 8601 in UTC, ``wall_s`` seconds.

    ``peak_rss``, ``peak_address_space``: the most memory in bytes that it had resident, and that it had mapped.
    """

    pid: int
    parent: int | None = None
    role: str | None = None
    command: tuple[str, ...] | None = None
    executable: str | None = None
    python: str | None = None
    started: str | None = None
    wall_s: float | None = None
    exit: Exit | None = None
    stacks: tuple[StackUse, ...] | None = None
    peak_rss: int | None = None
    peak_address_space: int | None = None


class Tool(Noun, frozen=True, kw_only=True):
    """Who wrote the document."""

    name: str
    version: str


class Subject(Noun, frozen=True, kw_only=True):
    """What the document is about."""

    kind: SubjectKind
    command: tuple[str, ...] | None = None
    path: str | None = None
    text: str | None = None


class Document(Noun, frozen=True, kw_only=True):
    """The JSON document. ``schema`` 1: fields may be added, never renamed."""

    schema: Literal[1] = 1
    kind: DocumentKind
    id: str
    tool: Tool
    complete: bool
    subject: Subject
    processes: tuple[Process, ...] = ()
    reports: tuple[Report, ...] = ()
    findings: tuple[Diagnosis, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    gaps: tuple[Gap, ...] = ()
