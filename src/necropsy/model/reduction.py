"""What a reduction did: the program before and after, and what it took."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Gap, Noun

FileKind = Literal["python", "data", "other"]


class ReducedFile(Noun, frozen=True, kw_only=True):
    """One file of the reduced program. ``other``: a library, or something else that is not shortened."""

    path: str
    """Relative to the folder that the program was run in."""
    kind: FileKind
    lines_before: int
    lines: int


class ReductionStage(Noun, frozen=True, kw_only=True):
    """One stage; ``statements`` is how many were left after it."""

    name: str
    trials: int
    statements: int
    seconds: float


class OtherDeath(Noun, frozen=True, kw_only=True):
    """Another death that some trials died; ``path``: the folder with a program that does."""

    signature: str
    count: int
    path: str | None = None


class Isolation(Noun, frozen=True, kw_only=True):
    """What kept the trials from doing harm. ``landlock``: the kernel forbade them to write outside of their copy.

    ``network``: it forbade TCP as well.
    """

    landlock: bool
    network: bool
    gaps: tuple[Gap, ...] = ()


class Reduction(Noun, frozen=True, kw_only=True):
    """A reduction. Without ``signature`` there was no crash to reduce."""

    command: tuple[str, ...]
    """It runs the reduced program, in ``output``."""
    signature: str | None = None
    statements_before: int
    statements: int
    lines_before: int
    lines: int
    bytes_before: int
    bytes: int
    """Lines and bytes are those of Python and data files."""
    files: tuple[ReducedFile, ...] = ()
    trials: int
    """Forks and starts of an interpreter."""
    cached: int = 0
    """Candidates that had been tried before."""
    rejected_without_run: int = 0
    """Candidates that could not die the same death, as the code shows."""
    timed_out: int = 0
    """Trials that were ended, because they waited or ran for too long. They count as trials that do not die."""
    seconds: float
    trials_per_second: float | None = None
    stages: tuple[ReductionStage, ...] = ()
    rate_before: float | None = None
    rate: float | None = None
    """In which part of the runs the original and the reduced program die."""
    runs: int = 0
    """How many runs of the original ``rate_before`` rests on."""
    variables: tuple[str, ...] = ()
    """Environment variables that were set, and without which it does not die."""
    other_deaths: tuple[OtherDeath, ...] = ()
    isolation: Isolation
    finished: bool
    """False where the budget or Ctrl-C ended it."""
    output: str | None = None
    """The folder with the reduced program."""
