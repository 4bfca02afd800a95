"""The JSON document: what is written for one run, one file or one question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from necropsy.model import other_kinds
from necropsy.model.base import Gap, Noun
from necropsy.model.concluded import Diagnosis, NotTried, Report
from necropsy.model.environment import Limit
from necropsy.model.observed import Crash, Exit
from necropsy.model.op import Binary

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
    "folders",
]
DocumentKind = Literal["run", "profile", "diagnosis", "doctor", "audit", "dataset", "reduction", "fuzz", "triage"]


class Process(Noun, frozen=True, kw_only=True):
    """One process of the run; ``started`` is ISO 8601 in UTC, ``wall_s`` seconds.

    ``peak_rss``, ``peak_address_space``: the most memory in bytes that it had resident, and that it had mapped.
    """

    pid: int
    parent: int | None = None
    role: str | None = None
    """``command``: the one that was asked for; ``child``: one that it started, or a child of that."""
    command: tuple[str, ...] | None = None
    executable: str | None = None
    python: str | None = None
    """The version of its Python, as it was found in its memory; None where it ended well, or runs none."""
    started: str | None = None
    wall_s: float | None = None
    exit: Exit | None = None
    """``running``: it was alive when the command ended."""
    stacks: tuple[other_kinds.StackUse, ...] | None = None
    """Of `necropsy run --always`: of threads that were alive when it ended. Of `necropsy profile`: of all threads that
    were seen."""
    peak_rss: int | None = None
    peak_address_space: int | None = None
    memory: tuple[other_kinds.ResourceUse, ...] | None = None
    """Of `necropsy profile`: what was in use over time, at most 200 of the looks at it, oldest first. Of a longer run,
    that of several looks in a row at which the most memory was resident."""
    peaks: other_kinds.ResourceUse | None = None
    """Of `necropsy profile`: the most of each that was seen, each at a time of its own."""
    marks: tuple[other_kinds.ProfileMark, ...] | None = None
    """Of `necropsy profile`: its children, jumps in the number of threads, the largest rises of its memory and its
    peak, by time."""
    memory_of_tree: tuple[other_kinds.TreeUse, ...] | None = None
    """Of `necropsy profile` and the command only: the memory of it and its descendants together, as ``memory``."""
    heap: other_kinds.HeapUse | None = None
    """Of `necropsy profile --heap`: who allocated its memory."""
    limits: tuple[Limit, ...] | None = None
    """Of `necropsy profile`: those that were set, with the most that was seen of each. Else of the command where it
    ended with an exit code that is not 0, and of processes that SIGKILL ended."""


class Tool(Noun, frozen=True, kw_only=True):
    """Who wrote the document."""

    name: str
    version: str


class Subject(Noun, frozen=True, kw_only=True):
    """What the document is about."""

    kind: SubjectKind
    command: tuple[str, ...] | None = None
    """``process``: the command and its arguments."""
    path: str | None = None
    """A file that was read."""
    text: str | None = None
    """What was given in words: ``139``."""


class Passed(Noun, frozen=True, kw_only=True):
    """A rule that was asked and found nothing; ``checks`` says in a few words what it looks at."""

    rule: str
    checks: str | None = None


class Document(Noun, frozen=True, kw_only=True):
    """The JSON document. ``schema`` 1: fields may be added, never renamed."""

    schema: Literal[1] = 1
    kind: DocumentKind
    """``run``: of `necropsy run`; ``profile``: of `necropsy profile`; ``diagnosis``: of `explain`, `open`, `attach`.
    ``doctor`` and ``dataset``: of `necropsy doctor`; ``audit``: of `necropsy check`; ``reduction``: of
    `necropsy reduce`, with the report on the original crash and the one on the reduced program's; ``fuzz``: of
    `necropsy fuzz`, with the reports on its findings; ``triage``: of `necropsy triage`."""
    id: str
    """Begins with the time, so that names sort by it: ``20261121T004512Z-9f86d081``."""
    tool: Tool
    complete: bool
    """False where Ctrl-C ended a campaign of `necropsy fuzz`; else always true: a document is written whole or not at
    all."""
    subject: Subject
    host: str | None = None
    """The name of the machine or container that the run was on; None where a file was read."""
    processes: tuple[Process, ...] = ()
    """The command first, then its children by their start."""
    reports: tuple[Report, ...] = ()
    """One for each death, by cause: what explains others first, then the command's own, then by time; none after a run
    that ended well."""
    findings: tuple[Diagnosis, ...] = ()
    """Of doctor, audit and dataset: each on its own, errors first, then warnings, then notes."""
    not_tried: tuple[NotTried, ...] = ()
    """As ``findings``; of a death they stand in its report."""
    gaps: tuple[Gap, ...] = ()
    """What could not be observed of the run as a whole."""
    passed: tuple[Passed, ...] = ()
    """Of doctor and audit: the rules that were asked and found nothing."""
    dataset: other_kinds.Dataset | None = None
    """Of ``doctor --data`` and ``check_dataset``: what the walk over the dataset saw."""
    reduction: other_kinds.Reduction | None = None
    """Of ``reduce``: what became of the program."""
    fuzz: other_kinds.Fuzzing | None = None
    """Of ``fuzz``: the calls that were made, and what was found."""
    binaries: tuple[Binary, ...] | None = None
    """Of ``check``: the built libraries that were read, and what they take of the stack."""
    comparison: other_kinds.Comparison | None = None
    """Of `necropsy profile --compare`: what became worse since an older profile."""
    failed_checks: tuple[other_kinds.FailedCheck, ...] | None = None
    """Of `necropsy profile --fail-on`: the conditions that the run met, for which the exit code is 3."""
    smallest_limits: tuple[other_kinds.SmallestLimit, ...] | None = None
    """Of `necropsy profile --limits`."""
    triage: other_kinds.Triage | None = None
    """Of `necropsy triage`: the groups of the deaths that were read."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What the supervisor knows of a run: its processes (the command's first), native deaths by time, the log's end."""

    processes: tuple[Process, ...]
    crashes: tuple[Crash, ...] = ()
    log_tail: str | None = None
    gaps: tuple[Gap, ...] = ()
    timed_out: bool = False
    cores: Mapping[tuple[int, str | None], Callable[[], BinaryIO]] = field(default_factory=dict)
    """An ELF core compressed by gzip for each death of which one was taken, by process and time (``Crash.at``).

    The function waits until it is written, and raises OSError where it was not.
    """
    ends: Mapping[int, Crash] = field(default_factory=dict)
    """By process: of those that ended by an exit code which is not 0 what they said last, where stderr was not read."""
