"""What makes a finding: a call that kills by itself, the deaths counted to it, and when two causes are one."""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.fuzz.campaign import Suspect
from necropsy.fuzz.cheap_signature import Death
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.function_names import without_types
from necropsy.fuzz.recipes import Recipe
from necropsy.model import Diagnosis, FuzzFinding

DAMAGE = frozenset({"heap-corruption", "heap-buffer-overflow", "double-free", "use-after-free", "invalid-write"})
ACCESS = frozenset({"heap-buffer-overflow", "use-after-free", "invalid-read", "invalid-write"})


@dataclass(frozen=True)
class Alone:
    """A call that kills a process that made no other: ``repeated`` times, where once is not enough."""

    recipe: Recipe
    repeated: int
    death: Death
    configuration: Configuration = PLAIN


@dataclass
class Cause:
    """What a finding was made from: its call, and all deaths that were counted to it."""

    alone: Alone
    suspects: list[Suspect]

    @property
    def signatures(self) -> frozenset[str]:
        """The cheap signatures of its deaths."""
        return frozenset({self.alone.death.signature, *(one.death.signature for one in self.suspects)})


def is_same_cause(one: FuzzFinding, verdict: Diagnosis, signature: str | None, op: str) -> bool:
    """The same signature, or the same rule in the same function, whatever types it is compiled for.

    An access beyond a buffer has another rule where it hits memory that is not mapped.
    """
    if one.call.target != op:
        return False
    if one.signature == signature:  # none where nothing died: one finding of each rule
        return signature is not None or one.rule == verdict.rule
    mine, other = verdict.culprit, one.culprit
    if mine is None or other is None or mine.function is None or other.function is None:
        return False
    return (
        (one.rule == verdict.rule or {one.rule, verdict.rule} <= ACCESS)
        and without_types(mine.function) == without_types(other.function)
        and (mine.line == other.line or None in {mine.line, other.line})
    )
