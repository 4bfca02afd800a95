"""From a death in a worker to a finding: alone, repeated, as simple as it gets, and dead in plain Python as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from necropsy.fuzz import diagnosed_runs, sanitizer_tests, test_writer
from necropsy.fuzz.campaign import Campaign, Suspect
from necropsy.fuzz.causes import Alone, Cause, is_same_cause, merge_victims
from necropsy.fuzz.cheap_signature import NO_MEMORY, SLOW
from necropsy.fuzz.configurations import PLAIN, SANITIZED, SMALL_BLOCKS, Configuration
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.described_calls import described, shown
from necropsy.fuzz.engine import Ended, Engine
from necropsy.fuzz.forked_runs import ForkedRuns
from necropsy.fuzz.preconditions import Preconditions
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.remains import DAMAGE, remains_of
from necropsy.fuzz.sanitized_build import SanitizedBuild
from necropsy.fuzz.shrinker import MOST_RUNS, NUMBERS, SMALL, Shrinker, with_margin
from necropsy.model import Diagnosis, Evidence, FuzzFinding, FuzzFirst, FuzzPrecondition, Gap, Report, Reproduced

REPEATED = 30
"""Calls in one process for a death that comes later than the damage."""
_RUNS = 5
_SLOW_RUNS, _SLOW_TRIALS = 2, 8
"""Of a call that does not end, each of which takes its whole time: runs, and trials to make it simpler."""
_OTHERS = 4
"""Calls that died in the same way, to be tried where the first one does not die again."""
_GUARDED = Configuration(guard="end", small_blocks=SMALL_BLOCKS)
_BOTH_ENDS = (_GUARDED, replace(_GUARDED, guard="begin"))
_FAILS_S = 1.0
"""Seconds in which an allocation fails. Calls that get the memory take long to fill it, and are of no interest."""
_FRESH_S = 2.0
"""Seconds of a call that is made for a precondition."""


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
    forked: ForkedRuns | None = None
    """Where tests run for a diagnosis, if that is possible."""
    build: SanitizedBuild | None = None
    """What the engine has loaded, if that is a build with AddressSanitizer."""
    plainer: Findings | None = None
    """The findings without it: what dies there as well is one of these."""

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
        is_slow = suspect.configuration.limit is not None
        why = "ended when it was made again" if is_slow else "did not die when it was made again"
        for alone in self._alone(suspect):
            crashed = self._try(op, suspect, alone)
            if crashed is None:
                return
            what, runs = ("did not end", _SLOW_RUNS) if is_slow else ("died", _RUNS)
            why = f"{what} in {crashed} of {runs} workers, but {'did' if is_slow else 'not'} {alone.configuration}"
        self._gap(op, suspect, why)

    def _try(self, op: OpDefinition, suspect: Suspect, alone: Alone) -> int | None:
        """None where the call became a finding, or another time of one; or how many workers died of it."""
        if self.forked is not None and diagnosed_runs.can_be_forked(alone):
            self.forked.prepare(guard=alone.configuration.guard is not None)
        simpler = self._shrunk(op, alone)
        recipe = simpler[-1]
        if self.plainer is not None and self.plainer.takes(op, replace(suspect, recipe=recipe)):
            return None
        many = _RUNS if alone.configuration.limit is None else _SLOW_RUNS
        crashed = 0
        # Of the simplest call, one halfway to it and the first one: the simplest of those that die most often.
        for one in {one.call: one for one in (simpler[-1], simpler[len(simpler) // 2], simpler[0])}.values():
            ends = [self._run(one, alone.repeated, fresh=True) for _ in range(many)]
            deaths = sum(end.kind in {"died", "hungry"} for end in ends)
            if deaths > crashed:
                recipe, crashed = one, deaths
            if crashed == many:
                break
        self.watch(f"{op.name}: diagnosing {alone.death.signature}")
        is_found = self._diagnose(op, suspect, recipe, alone, Reproduced(runs=many, crashed=crashed))
        return None if is_found else crashed

    def takes(self, op: OpDefinition, suspect: Suspect) -> bool:
        """Whether the call of a death elsewhere dies here as well, and is a finding; it is added to it."""
        guarded = _BOTH_ENDS if self.engine.has_guard else ()
        found = next((one for one in (PLAIN, *guarded) if self._dying([(suspect.recipe, 1)], one) is not None), None)
        if found is None:
            return False
        times, gaps = sum(one.times for one in self.found), len(self.gaps)
        alone = self._dying([(suspect.recipe, 1)], found)
        if alone is not None:
            self.add(op, replace(suspect, death=alone.death, configuration=found, before=(), lethal=[]))
        taken = sum(one.times for one in self.found) > times
        del self.gaps[gaps:]
        return taken

    def add_preconditions(self, campaign: Campaign) -> None:
        """Tell of each finding on this op what its calls have in common, where that can be learned.

        Findings that have this in common with each other may be one.
        """
        seconds = self.engine.limits.seconds
        self.engine.limit_seconds(_FRESH_S)
        try:
            for at, cause in self.causes.items():
                is_made_here = cause.alone.configuration.sanitized == (self.build is not None)
                if self.found[at].call.target == campaign.op.name and is_made_here:
                    self.watch(f"{campaign.op.name}: looking for the condition that the call breaks")
                    one = self._precondition(campaign, cause)
                    self.found[at] = msgspec.structs.replace(self.found[at], precondition=one)
        finally:
            self.engine.limit_seconds(seconds)
            self.engine.use(PLAIN)
        if not self.source.is_of_framework:
            own = [at for at in self.causes if self.found[at].call.target == campaign.op.name]
            merge_victims(own, self.found, self.causes, self.reports)

    def _precondition(self, campaign: Campaign, cause: Cause) -> FuzzPrecondition | None:
        alone = cause.alone
        configuration = alone.configuration
        if configuration.limit is not None or configuration.memory is not None:
            return None
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
        learned = preconditions.learned(campaign.survivors, lethal, again=judges != (PLAIN,))
        cause.conditions = preconditions.conditions
        return learned

    # ------------------------------------------------------------ alone, and simpler

    def _run(self, recipe: Recipe, repeated: int, *, fresh: bool) -> Ended:
        end = self.engine.run([recipe.call] * repeated, fresh=fresh)[-1]
        is_meant = end.kind == "slow" and self.engine.configuration.limit is not None
        return replace(end, kind="died", death=SLOW) if is_meant else end

    def _alone(self, suspect: Suspect) -> Iterator[Alone]:
        """Calls that kill by themselves: the plainest configuration first, then others that died in the same way.

        What lies behind a buffer differs between one worker and another, and the process of the test. There is a
        forbidden page in all of them where the buffers are guarded.
        """
        own = suspect.configuration
        if own.limit is not None:
            alone = self._dying([(suspect.recipe, 1)], own)
            if alone is not None:
                yield alone
            return
        before = tuple((one, REPEATED) for one in reversed(suspect.before))
        tries = ((suspect.recipe, 1), (suspect.recipe, 1), (suspect.recipe, REPEATED), *before)
        others = tuple((one, 1) for one in suspect.lethal[:_OTHERS])
        if own not in {PLAIN, SANITIZED}:
            alone = self._dying(tries[:1], PLAIN)
            if alone is not None and alone.death.signature == suspect.death.signature:
                yield alone
        alone = self._dying((*tries, *others), own)
        if alone is not None:
            if own == PLAIN and self._needs_limit(alone):
                yield replace(alone, configuration=Configuration(memory=self.engine.limits.data))
                return  # without the limit it might use all of the machine's memory
            yield alone
        if not own.sanitized and self.engine.has_guard:
            # The call may have met a block that was guarded for one before it; and the test's arrays lie elsewhere.
            once = (
                *(() if alone is None else ((alone.recipe, 1),)),
                *((recipe, 1) for recipe, _ in tries[1:]),
                *others,
            )
            for configuration in (one for one in _BOTH_ENDS if one != own):
                alone = self._dying(once, configuration)
                if alone is not None:
                    yield alone

    def _dying(self, tries: Sequence[tuple[Recipe, int]], configuration: Configuration) -> Alone | None:
        """The first of these calls that kills: the suspect's own, or one before that damaged the heap."""
        self.engine.use(configuration)
        for recipe, repeated in tries:
            end = self._run(recipe, repeated, fresh=True)
            if end.kind in {"died", "hungry"} and end.death is not None:
                return Alone(recipe, repeated, end.death, configuration)
        return None

    def _needs_limit(self, alone: Alone) -> bool:
        """Whether it dies because an allocation fails: workers may have less memory than the process of a test."""
        data = self.engine.limits.data
        if data is None:
            return False
        self.engine.use(PLAIN)
        self.engine.limit_data(None)
        try:
            survives = all(self._run(alone.recipe, alone.repeated, fresh=True).death is None for _ in range(2))
        finally:
            self.engine.limit_data(data)
        return survives and all(self._run(alone.recipe, alone.repeated, fresh=True).death is not None for _ in range(2))

    def _shrunk(self, op: OpDefinition, alone: Alone) -> list[Recipe]:
        """The call, and ever simpler ones that die the same death."""
        is_late = alone.repeated > 1 or alone.death.of_the_heap
        by_chance = is_late and alone.configuration.guard is None

        def dies(recipe: Recipe) -> bool:
            end = self._run(recipe, alone.repeated, fresh=by_chance)
            if end.death is None:
                return False
            return is_late or end.death.signature == alone.death.signature

        self.watch(f"{op.name}: making the call simpler")
        wild = alone.death.signal in {"SIGSEGV", "SIGBUS"} and not alone.death.of_the_stack
        most = self.most_runs if alone.configuration.limit is None else _SLOW_TRIALS
        shrinker = Shrinker(op, dies, most, SMALL if wild else NUMBERS)
        seconds = self.engine.limits.seconds
        if alone.configuration.memory is not None:
            self.engine.limit_seconds(_FAILS_S)
        simplest = shrinker.shrink(alone.recipe)
        self.engine.limit_seconds(seconds)
        if alone.death.of_the_stack:
            larger = with_margin(simplest)
            if dies(larger):
                simplest = larger
        return [alone.recipe, *shrinker.lethal, simplest]

    # ------------------------------------------------------------ the diagnosis

    def _diagnose(self, op: OpDefinition, suspect: Suspect, simplest: Recipe, alone: Alone, again: Reproduced) -> bool:
        is_out_of_memory = False
        for recipe in [simplest, *([alone.recipe] if alone.recipe != simplest else [])]:
            kind = "_sanitized" if self.build is not None else ""
            place, is_new = test_writer.place_for(self.tests, op.name, recipe, kind)
            report = None
            try:
                self._write(op, replace(alone, recipe=recipe), f"{op.name} dies of this call.", place)
                report = self._report(op, place, alone)
                thrown = report.crash.cpp_exception if report is not None else None
                if alone.configuration.memory is not None and thrown is not None and thrown.type in NO_MEMORY:
                    is_out_of_memory, report = True, None  # a correct op ends so, too, just below the limit
            finally:
                if report is None and is_new:
                    place.unlink(missing_ok=True)
            if report is not None:
                break
        if report is None or report.verdict is None:
            return is_out_of_memory
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
            return True
        how = "dies of" if alone.configuration.limit is None else "does not end with"
        headline = f"{op.name} {how} this call: {verdict.rule}. {verdict.summary}"
        alone = replace(alone, recipe=recipe)
        self._write(op, alone, headline, place, verdict.rule)
        self.reports.append(report)
        test = place if is_new else None
        self.causes[len(self.found)] = Cause(alone, [suspect], report, remains_of(report, verdict), test)
        self.found.append(self._finding(op, suspect, alone, again, report, verdict, place))
        return True

    def _write(self, op: OpDefinition, alone: Alone, headline: str, place: Path, rule: str = "a report") -> None:
        if self.build is not None:
            text = sanitizer_tests.text_of(
                op.name, alone.recipe, headline=headline, rule=rule, source=self.source, place=place, build=self.build
            )
            test_writer.write(place, text)
            return
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

    def _report(self, op: OpDefinition, place: Path, alone: Alone) -> Report | None:
        """The report on a run of the test's call; None where it survived."""
        function = test_writer.function_name(op.name, alone.configuration)
        return diagnosed_runs.report_of(
            *(self.python, place.resolve(), function, alone), build=self.build, forked=self.forked
        )

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
                claim="this call does not end" if alone.configuration.limit else "this call ends the process",
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


def _of_op(verdict: Diagnosis, op: OpDefinition) -> object:
    culprit = verdict.culprit
    return culprit if culprit is None or culprit.op is not None else msgspec.structs.replace(culprit, op=op.name)
