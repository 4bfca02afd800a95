"""From a death in a worker to a finding: alone, repeated, as simple as it gets, and dead in plain Python as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from necropsy.crashed import own_report
from necropsy.fuzz import plain_run, test_writer
from necropsy.fuzz.campaign import Campaign, Suspect
from necropsy.fuzz.cheap_signature import Death
from necropsy.fuzz.configurations import PLAIN, SMALL_BLOCKS, Configuration
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.described_calls import described, shown
from necropsy.fuzz.engine import Ended, Engine
from necropsy.fuzz.function_names import without_types
from necropsy.fuzz.preconditions import Preconditions
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.shrinker import MOST_RUNS, NUMBERS, SMALL, Shrinker, with_margin
from necropsy.model import Diagnosis, Evidence, FuzzFinding, FuzzFirst, FuzzPrecondition, Gap, Report, Reproduced

REPEATED = 30
"""Calls in one process for a death that comes later than the damage."""
_RUNS = 5
_GUARDED = Configuration(guard="end", small_blocks=SMALL_BLOCKS)
_BOTH_ENDS = (_GUARDED, replace(_GUARDED, guard="begin"))
_FRESH_S = 2.0
"""Seconds of a call that is made for a precondition."""
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


@dataclass
class Findings:
    """The findings of a campaign, one for each cause."""

    engine: Engine
    python: str
    source: test_writer.Source
    tests: Path
    """The folder for the tests."""
    watch: Callable[[str], None] = lambda _text: None
    most_runs: int = MOST_RUNS
    found: list[FuzzFinding] = field(default_factory=list)
    causes: dict[int, Cause] = field(default_factory=dict)
    """Of the deaths among ``found``, by their places in it."""
    reports: list[Report] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def counts(self, op: OpDefinition, suspect: Suspect) -> bool:
        """A damaged heap dies in many ways: count it to a finding on the same op that damages it, if there is one."""
        if not suspect.death.of_the_heap:
            return False
        for at, one in enumerate(self.found):
            if one.call.target == op.name and one.rule in DAMAGE:
                self.found[at] = msgspec.structs.replace(one, times=one.times + suspect.times)
                self.causes[at].suspects.append(suspect)
                return True
        return False

    def of_document(self, identity: str) -> tuple[FuzzFinding, ...]:
        """All findings; those with a report name the document that it is in."""
        return tuple(one if one.report is None else msgspec.structs.replace(one, report=identity) for one in self.found)

    def add(self, op: OpDefinition, suspect: Suspect) -> None:
        """Turn a death into a finding, or into another time of one; a gap says where neither was possible."""
        limits = self.engine.limits
        if suspect.asks_for_memory:
            self.engine.limit_data(None)
        try:
            self._add(op, suspect)
        finally:
            self.engine.limit_data(limits.data)
            self.engine.use(PLAIN)

    def _add(self, op: OpDefinition, suspect: Suspect) -> None:
        self.watch(f"{op.name}: running a lethal call again")
        alone = self._alone(suspect)
        if alone is None:
            self._gap(op, suspect, "did not die when it was made again")
            return
        recipe = self._shrunk(op, alone)
        runs = [self._run(recipe, alone.repeated, fresh=True) for _ in range(_RUNS)]
        crashed = sum(one.kind in {"died", "hungry"} for one in runs)
        if not crashed:
            recipe, runs = alone.recipe, [self._run(alone.recipe, alone.repeated, fresh=True) for _ in range(_RUNS)]
            crashed = sum(one.kind in {"died", "hungry"} for one in runs)
        self.watch(f"{op.name}: diagnosing {alone.death.signature}")
        self._diagnose(op, suspect, recipe, alone, Reproduced(runs=_RUNS, crashed=crashed))

    def add_preconditions(self, campaign: Campaign) -> None:
        """Tell of each finding on this op what its calls have in common, where that can be learned."""
        seconds = self.engine.limits.seconds
        self.engine.limit_seconds(_FRESH_S)
        try:
            for at, cause in self.causes.items():
                if self.found[at].call.target == campaign.op.name:
                    self.watch(f"{campaign.op.name}: looking for the condition that the call breaks")
                    one = self._precondition(campaign, cause)
                    self.found[at] = msgspec.structs.replace(self.found[at], precondition=one)
        finally:
            self.engine.limit_seconds(seconds)
            self.engine.use(PLAIN)

    def _precondition(self, campaign: Campaign, cause: Cause) -> FuzzPrecondition | None:
        alone = cause.alone
        if any(one.asks_for_memory for one in cause.suspects):
            return None
        # A read at a wild address survives by chance, and not where the buffers are guarded.
        judges = _BOTH_ENDS if self.engine.has_guard and not alone.death.is_reliable else (alone.configuration,)
        others = frozenset().union(*(one.signatures for one in self.causes.values())) - cause.signatures
        is_guarded = judges[0].guard is not None
        preconditions = Preconditions(
            self.engine,
            campaign.op,
            alone.recipe,
            cause.signatures,
            others,
            limits=alone.death.is_reliable or is_guarded,
            judges=judges,
        )
        lethal = [one for suspect in cause.suspects for one in (suspect.recipe, *suspect.lethal)]
        return preconditions.learned(campaign.survivors, lethal, again=judges != (PLAIN,))

    # ------------------------------------------------------------ alone, and simpler

    def _run(self, recipe: Recipe, repeated: int, *, fresh: bool) -> Ended:
        return self.engine.run([recipe.call] * repeated, fresh=fresh)[-1]

    def _alone(self, suspect: Suspect) -> Alone | None:
        """The call that kills by itself, in the plainest configuration in which it does."""
        own = suspect.configuration
        before = tuple((one, REPEATED) for one in reversed(suspect.before))
        tries = ((suspect.recipe, 1), (suspect.recipe, 1), (suspect.recipe, REPEATED), *before)
        if own != PLAIN:
            alone = self._dying(tries[:1], PLAIN)
            if alone is not None and alone.death.signature == suspect.death.signature:
                return alone
        alone = self._dying(tries, own)
        if alone is None and own.guard is None and self.engine.has_guard:
            # The call may have met a block that was guarded for one before it.
            alone = self._dying(tuple((recipe, 1) for recipe, _ in tries[1:]), _GUARDED)
        return alone

    def _dying(self, tries: Sequence[tuple[Recipe, int]], configuration: Configuration) -> Alone | None:
        """The first of these calls that kills: the suspect's own, or one before that damaged the heap."""
        self.engine.use(configuration)
        for recipe, repeated in tries:
            end = self._run(recipe, repeated, fresh=True)
            if end.kind in {"died", "hungry"} and end.death is not None:
                return Alone(recipe, repeated, end.death, configuration)
        return None

    def _shrunk(self, op: OpDefinition, alone: Alone) -> Recipe:
        is_late = alone.repeated > 1 or alone.death.of_the_heap
        by_chance = is_late and alone.configuration.guard is None

        def dies(recipe: Recipe) -> bool:
            end = self._run(recipe, alone.repeated, fresh=by_chance)
            if end.death is None:
                return False
            return is_late or end.death.signature == alone.death.signature

        self.watch(f"{op.name}: making the call simpler")
        wild = alone.death.signal in {"SIGSEGV", "SIGBUS"} and not alone.death.of_the_stack
        recipe = Shrinker(op, dies, self.most_runs, SMALL if wild else NUMBERS).shrink(alone.recipe)
        if alone.death.of_the_stack:
            larger = with_margin(recipe)
            if dies(larger):
                return larger
        return recipe

    # ------------------------------------------------------------ the diagnosis

    def _diagnose(self, op: OpDefinition, suspect: Suspect, simplest: Recipe, alone: Alone, again: Reproduced) -> None:
        for recipe in [simplest, *([alone.recipe] if alone.recipe != simplest else [])]:
            place, is_new = test_writer.place_for(self.tests, op.name, recipe)
            report = None
            try:
                self._write(op, replace(alone, recipe=recipe), f"{op.name} dies of this call.", place)
                report = self._report(op, place, alone.configuration)
            finally:
                if report is None and is_new:
                    place.unlink(missing_ok=True)
            if report is not None:
                break
        if report is None or report.verdict is None:
            self._gap(op, suspect, f"died in {again.crashed} of {again.runs} workers, but not {alone.configuration}")
            return
        verdict = report.verdict
        known = next(
            (at for at, one in enumerate(self.found) if is_same_cause(one, verdict, report.signature, op.name)), None
        )
        if known is not None:
            if is_new:
                place.unlink(missing_ok=True)
            one = self.found[known]
            self.found[known] = msgspec.structs.replace(one, times=one.times + suspect.times)
            self.causes[known].suspects.append(suspect)
            return
        headline = f"{op.name} dies of this call: {verdict.rule}. {verdict.summary}"
        alone = replace(alone, recipe=recipe)
        self._write(op, alone, headline, place)
        self.reports.append(report)
        self.causes[len(self.found)] = Cause(alone, [suspect])
        self.found.append(self._finding(op, suspect, alone, again, report, verdict, place))

    def _write(self, op: OpDefinition, alone: Alone, headline: str, place: Path) -> None:
        text = test_writer.text_of(
            op.name,
            alone.recipe,
            repeated=alone.repeated,
            headline=headline,
            source=self.source,
            place=place,
            configuration=alone.configuration,
        )
        test_writer.write(place, text)

    def _report(self, op: OpDefinition, place: Path, configuration: Configuration) -> Report | None:
        """The report on a run of the test's call; None where it survived."""
        function = test_writer.function_name(op.name, configuration)
        document = plain_run.document_of(self.python, place.resolve(), function, guard=configuration.guard_options)
        if document is None:
            return None
        report = own_report(document) or next(iter(document.reports), None)
        return report if report is not None and report.verdict is not None and _is_native(report) else None

    def _finding(  # noqa: PLR0917 - one place calls it
        self,
        op: OpDefinition,
        suspect: Suspect,
        alone: Alone,
        again: Reproduced,
        report: Report,
        verdict: Diagnosis,
        place: Path,
    ) -> FuzzFinding:
        fields = {name: getattr(verdict, name) for name in Diagnosis.__struct_fields__}
        fields["culprit"] = verdict.culprit if op.is_python else _of_op(verdict, op)
        fields["evidence"] = (
            *verdict.evidence,
            Evidence(
                claim="this call ends the process",
                seen=shown(op.name, alone.recipe)[:2000],
                where=f"a run {alone.configuration}",
            ),
        )
        with contextlib.suppress(ValueError):
            place = place.resolve().relative_to(Path.cwd())
        return FuzzFinding(
            **fields,
            signature=report.signature,
            call=described(op.name, alone.recipe, alone.repeated),
            test=str(place),
            first=FuzzFirst(execution=suspect.execution, seconds=round(suspect.seconds, 3)),
            times=suspect.times,
            reproduced=again,
            needs=alone.configuration.needs,
            report="",  # the document's id, once it has one
            elements=sum(one.size for one in alone.recipe.tensors()),
        )

    def _gap(self, op: OpDefinition, suspect: Suspect, why: str) -> None:
        said = f" ({suspect.death.said})" if suspect.death.said else ""
        died = f"a death by {suspect.death.signal or suspect.death.signature}{said} at call {suspect.execution:,}"
        self.gaps.append(Gap(part=f"{op.name}: {died}", why=f"the call {why}: {shown(op.name, suspect.recipe)[:300]}"))


def _is_native(report: Report) -> bool:
    end = report.crash.exit
    return report.crash.fault is not None or (end is not None and end.kind == "signaled")


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
        and mine.line == other.line
    )


def _of_op(verdict: Diagnosis, op: OpDefinition) -> object:
    culprit = verdict.culprit
    return culprit if culprit is None or culprit.op is not None else msgspec.structs.replace(culprit, op=op.name)
