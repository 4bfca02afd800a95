"""The campaign on one op: proposes calls, lets workers make them, and keeps the first death of each kind."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from necropsy.fuzz.boundaries import LARGE
from necropsy.fuzz.cheap_signature import SLOW, Death
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.corpus import Kept, kind_of_result
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.engine import Call, Ended, Engine
from necropsy.fuzz.generator import Generator, Proposal, Seen
from necropsy.fuzz.inferred_ranks import inferred_ranks
from necropsy.fuzz.lethal_conditions import LethalConditions
from necropsy.fuzz.recipes import Recipe

BATCH = 40
"""Calls between two looks at what they have shown. It decides what is proposed, so it is not a matter of time."""
_FEW = 10
"""The same, of calls that take long."""
_LETHAL = 3
_EXCEPTIONS = 0.03
"""A change that killed this often and let nothing survive is left out, with exceptions; and what is likely to die."""
_MOST_DEATHS, _DEADLY = 40, 0.97
_MOST_REPEATED = 4000
_MOST_SURVIVORS, _MOST_LETHAL = 300, 40
"""Calls that are kept to learn a precondition from: accepted ones, and those of each kind of death."""
_HISTORY = 6
"""Calls before a death that may have done the damage."""
_MOST_LARGE = 8
"""Large calls that were accepted, and are made on a small stack as well, each time that it is its turn."""


@dataclass
class Suspect:
    """The first death of its kind, with the calls that the same worker had made before."""

    recipe: Recipe
    death: Death
    execution: int
    seconds: float
    before: tuple[Recipe, ...] = ()
    times: int = 1
    configuration: Configuration = PLAIN
    lethal: list[Recipe] = field(default_factory=list)
    """The first calls that died so."""
    asks_for_memory: bool = False
    """It dies because it asks for more memory than there is, without any limit of ours."""


@dataclass
class Tally:
    """What became of the calls."""

    executions: int = 0
    misused: int = 0
    """Calls that never reached the op, because Python refused their arguments; not among the executions."""
    accepted: int = 0
    refused: int = 0
    deaths: int = 0
    slow: int = 0
    hungry: int = 0
    seconds: float = 0.0
    refusals: Counter[str] = field(default_factory=Counter)
    """The messages of refused calls."""


class Campaign:
    """Calls of one op, until the time or the number of calls is reached."""

    def __init__(
        self,
        engine: Engine,
        op: OpDefinition,
        *,
        seed: int,
        deadline: float,
        most_calls: int | None = None,
        configurations: Sequence[Configuration] = (PLAIN,),
        first: Sequence[Recipe] = (),
        slow: bool = False,
        watch: Callable[[Campaign], None] = lambda _campaign: None,
    ) -> None:
        """Make no call yet.

        ``deadline``: a ``time.monotonic()``; ``configurations``: what batches take turns in; ``first``: the calls to
        begin with; ``slow``: a call that does not end in its time is a suspect.
        """
        self.engine, self.op = engine, op
        self.deadline, self.most_calls, self.watch = deadline, most_calls, watch
        self._configurations = tuple(configurations)
        self._turns = itertools.cycle(configurations)
        self._made: Counter[Configuration] = Counter()
        self._died: Counter[Configuration] = Counter()
        self._skipped: Counter[Configuration] = Counter()
        self.tally = Tally()
        self.suspects: dict[str, Suspect] = {}
        """By cheap signature."""
        self.kept = Kept()
        self.survivors: list[Recipe] = []
        """Accepted calls, each with the same chance of being kept."""
        self._first = {one.call: one for one in first}
        self._suspects_slow = slow
        self._has_made_first = False
        self._seen = Seen()
        self._generator = Generator(op, seed, self._seen)
        self._random = Random(f"{seed}:skip:{op.name}")  # noqa: S311 - it is to be repeatable
        self._sampling = Random(f"{seed}:sample:{op.name}")  # noqa: S311 - it is to be repeatable
        self._known: set[tuple[str, str]] = set()
        self._few: list[Proposal] = []
        self._large: list[Proposal] = []
        self._results: set[str] = set()
        self._messages: set[str] = set()
        self._lethal = LethalConditions(op, seed)
        self._killed: Counter[str] = Counter()
        self._survived: set[str] = set()
        self._history: list[Recipe] = []
        self._limits = engine.limits
        self._hungry: Suspect | None = None
        self._began = time.monotonic()

    @property
    def unmade(self) -> frozenset[Call]:
        """The first calls, if there was no time for all of them."""
        return frozenset() if self._has_made_first else frozenset(self._first)

    @property
    def light(self) -> list[Recipe]:
        """Accepted calls without a large result, each once."""
        several = {one.call: one for one in (*self.accepted, *self.survivors)}
        return [one for call, one in several.items() if call not in self._seen.heavy]

    @property
    def accepted(self) -> list[Recipe]:
        """One call for each different result, the first ones first."""
        return self._seen.accepted

    def run(self) -> None:
        """Make calls; what was found until an interrupt stays."""
        self._began = time.monotonic()
        self.engine.end_worker()
        self.engine.forget_compared()
        self.engine.guards_handles = bool(self.op.handles)
        try:
            if not self.op.is_python:
                self._seen.ranks = inferred_ranks(self.engine, self.op.name, self._generator.plain())
            proposals = self._generator.proposals()
            self._known.update(self._first)
            self._make_in_each([Proposal(one) for one in self._first.values()])
            self._has_made_first = not self._is_over()
            while not self._is_over():
                batch = self._batch(proposals)
                if not batch:
                    self._make_in_each(self._few)  # there are not many different ones
                    return
                self.engine.use(self._turn())
                if self.engine.configuration.stack is not None:
                    self._make(self._large)
                    self._large.clear()
                self._make(batch)
                self.watch(self)
        finally:
            self.tally.seconds = time.monotonic() - self._began
            self.engine.limit_seconds(self._limits.seconds)
            self.engine.use(PLAIN)
        self._judge_hunger()

    def make_again(self, recipes: Sequence[Recipe], configuration: Configuration) -> None:
        """Make calls in a configuration that the batches do not take turns in, until the deadline."""
        for at in range(0, len(recipes), _FEW):
            if time.monotonic() >= self.deadline or self.engine.is_stopped():
                return
            self.engine.use(configuration)
            self._make([Proposal(one) for one in recipes[at : at + _FEW]])
            self.watch(self)

    def _is_over(self) -> bool:
        tally = self.tally
        if self.engine.is_stopped():
            return True
        if time.monotonic() >= self.deadline or (self.most_calls is not None and tally.executions >= self.most_calls):
            return True
        made = tally.accepted + tally.refused + tally.deaths
        return tally.deaths >= _MOST_DEATHS and tally.deaths > _DEADLY * made

    def _make_in_each(self, proposals: Sequence[Proposal]) -> None:
        """Make calls in each configuration."""
        for configuration in dict.fromkeys(self._configurations):
            for at in range(0, len(proposals), BATCH):
                if self._is_over():
                    return
                self.engine.use(configuration)
                self._make(proposals[at : at + BATCH])
                self.watch(self)

    def _turn(self) -> Configuration:
        """The next configuration; one in which most calls die has every fourth of its turns only."""
        while True:
            one = next(self._turns)
            if one == PLAIN or self._died[one] < _MOST_DEATHS or 2 * self._died[one] < self._made[one]:
                return one
            self._skipped[one] += 1
            if self._skipped[one] % 4 == 0:
                return one

    def _batch(self, proposals: Iterator[Proposal]) -> list[Proposal]:
        """The next calls, none of which was made before; empty where nothing new comes."""
        found: list[Proposal] = []
        for _ in range(_MOST_REPEATED):
            proposal = next(proposals)
            is_known = proposal.recipe.call in self._known
            self._seen.note_proposal(again=is_known)
            if is_known or self._is_lethal(proposal):
                continue
            self._known.add(proposal.recipe.call)
            self._few += [proposal] if len(self._few) < _MOST_REPEATED else []
            found.append(proposal)
            if len(found) == BATCH:
                break
        return found

    def _is_lethal(self, proposal: Proposal) -> bool:
        deadly = any(self._killed[one] >= _LETHAL and one not in self._survived for one in proposal.changes)
        deadly = deadly or self._lethal.is_broken(proposal.recipe)
        return deadly and self._random.random() >= _EXCEPTIONS

    def _make(self, batch: Sequence[Proposal]) -> None:
        at = 0
        while at < len(batch):
            ended = self.engine.run([one.recipe.call for one in batch[at:]])
            before = self.tally.executions
            for proposal, end in zip(batch[at:], ended, strict=False):
                self._note(proposal, end)
            self._made[self.engine.configuration] += self.tally.executions - before
            at += max(1, len(ended))
            self._seen.compare(self.engine.compared)
            if time.monotonic() >= self.deadline or self.engine.is_stopped():
                return

    def _note(self, proposal: Proposal, end: Ended) -> None:
        tally, recipe = self.tally, proposal.recipe
        if end.kind == "stopped":
            return
        if end.kind == "misused":
            tally.misused += 1
            return
        tally.executions += 1
        if end.death is not None:
            self._died[self.engine.configuration] += 1
        if end.kind in {"accepted", "refused"}:
            self._survived.update(proposal.changes)
            self._lethal.note(recipe, died=False)
            self._history = [*self._history[-_HISTORY + 1 :], recipe]
        if end.kind == "accepted":
            if not self.engine.configuration.graph:  # it was made before
                self._sample(recipe)
            tally.accepted += 1
            is_large = recipe.elements >= LARGE and self.engine.configuration.stack is None
            self._large += [proposal] if is_large and len(self._large) < _MOST_LARGE else []
            self.kept.note("result", kind_of_result(recipe), recipe)
            if end.digest is not None and end.digest not in self._results:
                self._results.add(end.digest)
                self._seen.note(recipe, accepted=True, text=None, size=end.size)
        elif end.kind == "refused":
            tally.refused += 1
            text = self.engine.texts.get(end.message or "", "")
            tally.refusals[end.message or ""] += 1
            if end.message is not None and end.message not in self._messages:
                self._messages.add(end.message)
                self.kept.note("message", end.message, recipe)
                self._seen.note(recipe, accepted=False, text=text)
        else:
            self._killed.update(proposal.changes)
            self._lost(recipe, end)
            self._history = []

    def _sample(self, recipe: Recipe) -> None:
        if len(self.survivors) < _MOST_SURVIVORS:
            self.survivors.append(recipe)
        elif (at := self._sampling.randrange(self.tally.accepted + 1)) < _MOST_SURVIVORS:
            self.survivors[at] = recipe

    def _judge_hunger(self) -> None:
        """A correct op may reach our limit of memory; one that dies without it asks for what no machine has."""
        suspect = self._hungry
        if suspect is None or self.engine.is_stopped() or self._limits.data is None:
            return
        self.engine.limit_data(None)
        end = self.engine.run([suspect.recipe.call], fresh=True)[-1]
        self.engine.limit_data(self._limits.data)
        if end.death is not None:
            suspect.times = self.tally.hungry
            self.suspects[end.death.signature] = suspect

    def _lost(self, recipe: Recipe, end: Ended) -> None:
        tally = self.tally
        if end.kind == "slow":
            tally.slow += 1
            self.engine.limit_seconds(max(1.0, self.engine.limits.seconds / 2))
            if self._suspects_slow and self.engine.configuration == PLAIN:
                self.suspect(recipe, SLOW, Configuration(limit=self._limits.seconds), self._history)
        elif end.kind == "hungry" or end.death is None:
            tally.hungry += 1
            if end.death is not None and self._hungry is None:
                self._hungry = Suspect(
                    recipe, end.death, tally.executions, time.monotonic() - self._began, asks_for_memory=True
                )
        else:
            tally.deaths += 1
            self._lethal.note(recipe, died=True)
            self.suspect(recipe, end.death, self.engine.configuration, self._history)

    def suspect(
        self, recipe: Recipe, death: Death, configuration: Configuration, before: Sequence[Recipe] = ()
    ) -> None:
        """A call died; ``before``: calls that may have done the damage."""
        self.kept.note("death", death.signature, recipe)
        known = self.suspects.get(death.signature)
        if known is None:
            self.suspects[death.signature] = Suspect(
                recipe,
                death,
                self.tally.executions,
                time.monotonic() - self._began,
                tuple(before),
                configuration=configuration,
            )
            return
        known.times += 1
        if known.configuration != PLAIN and configuration == PLAIN:
            known.recipe, known.configuration, known.before = recipe, PLAIN, tuple(before)
        if len(known.lethal) < _MOST_LETHAL:
            known.lethal.append(recipe)
