"""What `necropsy triage` makes of many reports: groups of deaths, one for each bug."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Confidence, Noun
from necropsy.model.concluded import Culprit

DeathSource = Literal["live", "capsule", "core", "minidump", "sanitizer", "debugger", "log"]
"""How a death was seen, from the most informative on: a live capture (`necropsy run`), a kept report, a core, a Windows
minidump, a sanitizer's output, a debugger's or the system's crash text, a log."""
GroupStatus = Literal["new", "known", "closed", "regression"]
"""``new``: first seen in this run; ``closed``: by `triage close`; ``regression``: a closed one that came back in a
version that should have the fix."""


class GroupMember(Noun, frozen=True, kw_only=True):
    """One death of a group."""

    path: str
    """The file that it was read from."""
    line: int | None = None
    """Of a log: the line at which the text on this death begins."""
    id: str | None = None
    """Of the document, where it has one."""
    pid: int | None = None
    at: str | None = None
    """When it died; ISO 8601 in UTC. None where a text does not tell."""
    source: DeathSource
    fit: float | None = None
    """How well it fits its group: 1 for the same place, 0 for nothing in common."""


class DayCount(Noun, frozen=True, kw_only=True):
    """How many deaths a day had: ``2026-11-24``, in UTC."""

    day: str
    count: int


class MergedFrame(Noun, frozen=True, kw_only=True):
    """One call in a merged stack: only what tells where it is."""

    function: str
    module: str | None = None
    """The library of a native function, without its folder."""
    line: str | None = None
    """``train.py:7``; of native functions only with debug information."""
    python: bool = False


class MergedStack(Noun, frozen=True, kw_only=True):
    """Deaths of one group that have the same calls."""

    count: int
    frames: tuple[MergedFrame, ...]
    """Innermost first: the program's own calls, and the lines of Python that led to them."""


class BugGroup(Noun, frozen=True, kw_only=True):
    """Deaths that have one cause at one place."""

    id: str
    """Stays for ever: no later run changes it."""
    aliases: tuple[str, ...] = ()
    """Ids of groups that were merged into this one; they still lead here."""
    title: str
    """A line for a ticket: ``null pointer in score_rows, called from train.py:7 score()``."""
    count: int
    first: str | None = None
    last: str | None = None
    """When the first and the last of them died, as far as known."""
    rule: str | None = None
    confidence: Confidence | None = None
    end: str | None = None
    """How they ended: ``SIGSEGV``, ``exited 1``, ``0xC0000409``."""
    culprit: Culprit | None = None
    names: tuple[str, ...] = ()
    """The functions that they have in common, innermost first."""
    signatures: tuple[str, ...] = ()
    versions: dict[str, dict[str, int]] = {}
    """By library: how many deaths each of its versions had."""
    hosts: dict[str, int] = {}
    trend: tuple[DayCount, ...] = ()
    status: GroupStatus = "known"
    fixed_in: str | None = None
    """Of a closed one: the version that has the fix."""
    closed_at: str | None = None
    """Of a closed one and of a regression: when it was closed; ISO 8601 in UTC."""
    why: tuple[str, ...] = ()
    """Why its members are one bug, in sentences: the frames, the message, the line that they share."""
    worst: GroupMember | None = None
    """The member that fits worst; None of a group whose members are all alike."""
    texts_only: bool = False
    """No member has native frames."""
    members: tuple[GroupMember, ...] = ()
    """At most 1,000, the latest last."""
    example: GroupMember | None = None
    """The most informative member."""
    stacks: tuple[MergedStack, ...] = ()
    """The different stacks of its members, the most frequent first; at most 20."""


class SuggestedMerge(Noun, frozen=True, kw_only=True):
    """Two groups that a newcomer shows to be one."""

    groups: tuple[str, str]
    """The older one first."""
    evidence: str


class SkippedInput(Noun, frozen=True, kw_only=True):
    """A file that could not be read, and why, in one line."""

    path: str
    why: str


class Triage(Noun, frozen=True, kw_only=True):
    """The groups of everything that was read."""

    groups: tuple[BugGroup, ...] = ()
    """By count, then by the last death."""
    deaths: int = 0
    files: int = 0
    """How many were read in this run."""
    unchanged: int = 0
    """How many had been read before, and have not changed since."""
    without_death: int = 0
    """How many could be read and have no death in them."""
    skipped: tuple[SkippedInput, ...] = ()
    suggested_merges: tuple[SuggestedMerge, ...] = ()
    corrections: tuple[str, ...] = ()
    """What was corrected by hand, in sentences, oldest first."""
