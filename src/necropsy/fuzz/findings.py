"""From a death in a worker to a finding: alone, repeated, as simple as it gets, and dead in plain Python as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from necropsy.fuzz import diagnosed_runs, sanitizer_tests, test_writer
from necropsy.fuzz.campaign import Campaign, Suspect
from necropsy.fuzz.causes import Alone, Cause, is_same_cause, merge_victims
from necropsy.fuzz.cheap_signature import NO_MEMORY
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.described_calls import described, shown
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.forked_runs import ForkedRuns
from necropsy.fuzz.lone_calls import BOTH_ENDS, LoneCalls
from necropsy.fuzz.other_ways import SHARED_KERNEL, survived_by_one_thread
from necropsy.fuzz.preconditions import Preconditions
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.remains import DAMAGE, remains_of, was_noticed_later
from necropsy.fuzz.sanitized_build import SanitizedBuild
from necropsy.fuzz.shrinker import MOST_RUNS
from necropsy.model import Diagnosis, Evidence, FuzzFinding, FuzzFirst, FuzzPrecondition, Gap, Report, Reproduced

_RUNS = 5
_SLOW_RUNS = 2
"""Of a call that does not end, each of which takes its whole time."""
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

    @property
    def lone(self) -> LoneCalls:
        """Makes the calls again, each by itself."""
        return LoneCalls(self.engine)

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
        if suspect.asks_for_memory or suspect.configuration.threads is not None:
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
        for alone in self.lone.of(suspect):
            crashed = self._try(op, suspect, alone)
            if crashed is None:
                return
            what, runs = ("did not end", _SLOW_RUNS) if is_slow else ("died", _RUNS)
            why = f"{what} in {crashed} of {runs} workers, but {'did' if is_slow else 'not'} {alone.configuration}"
        self._gap(op, suspect, why)

    def _try(self, op: OpDefinition, suspect: Suspect, alone: Alone, least: int = 0) -> int | None:
        """None where the call became a finding, or another time of one; or how many workers died of it.

        It does not become a finding if fewer than ``least`` workers died of it.
        """
        if self.forked is not None and diagnosed_runs.can_be_forked(alone):
            self.forked.prepare(guard=alone.configuration.guard is not None)
        self.watch(f"{op.name}: making the call simpler")
        simpler = self.lone.shrunk(op, alone, self.most_runs)
        recipe = simpler[-1]
        if self.plainer is not None and self.plainer.takes(op, replace(suspect, recipe=recipe)):
            return None
        many = _RUNS if alone.configuration.limit is None else _SLOW_RUNS
        crashed = 0
        # Of the simplest call, one halfway to it and the first one: the simplest of those that die most often.
        for one in {one.call: one for one in (simpler[-1], simpler[len(simpler) // 2], simpler[0])}.values():
            ends = [self.lone.run(one, alone.repeated, fresh=True) for _ in range(many)]
            deaths = sum(end.kind in {"died", "hungry"} for end in ends)
            if deaths > crashed:
                recipe, crashed = one, deaths
            if crashed == many:
                break
        if crashed < least:
            return crashed
        self.watch(f"{op.name}: diagnosing {alone.death.signature}")
        is_found = self._diagnose(op, suspect, recipe, alone, Reproduced(runs=many, crashed=crashed))
        return None if is_found else crashed

    def takes(self, op: OpDefinition, suspect: Suspect) -> bool:
        """Whether the call of a death elsewhere dies here as well, and is a finding; it is added to it."""
        guarded = BOTH_ENDS if self.engine.has_guard else ()
        found = next(
            (one for one in (PLAIN, *guarded) if self.lone.dying([(suspect.recipe, 1)], one) is not None), None
        )
        if found is None:
            return False
        times, gaps = sum(one.times for one in self.found), len(self.gaps)
        alone = self.lone.dying([(suspect.recipe, 1)], found)
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
            merge_victims(own, self.found, self.causes, self.reports, self.lone.dies_shortened)
            self.engine.use(PLAIN)

    def _precondition(self, campaign: Campaign, cause: Cause) -> FuzzPrecondition | None:
        alone = cause.alone
        configuration = alone.configuration
        if configuration.limit is not None or configuration.memory is not None or configuration.threads is not None:
            return None
        if any(one.asks_for_memory for one in cause.suspects):
            return None
        # A read at a wild address survives by chance, and not where the buffers are guarded.
        judges = BOTH_ENDS if self.engine.has_guard and not alone.death.is_reliable else (alone.configuration,)
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
        if was_noticed_later(remains_of(report, verdict)):
            if is_new:
                place.unlink(missing_ok=True)
            if self._is_found_with_guard(op, suspect, replace(alone, recipe=recipe), verdict, again.crashed):
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

    def _is_found_with_guard(
        self, op: OpDefinition, suspect: Suspect, alone: Alone, verdict: Diagnosis, least: int
    ) -> bool:
        """Whether the call dies with guarded buffers, where the access itself dies, in ``least`` workers as well."""
        own = alone.configuration
        if not self.engine.has_guard or own != Configuration(stack=own.stack, graph=own.graph):
            return False
        known = len(self.found)
        tries = [(alone.recipe, times) for times in dict.fromkeys((1, alone.repeated))]
        for one in BOTH_ENDS:
            guarded = self.lone.dying(tries, replace(one, graph=own.graph))
            if guarded is not None and self._try(op, suspect, guarded, least) is None:
                self.found[known:] = [_also_without_guard(one, verdict, own) for one in self.found[known:]]
                return True
        return False

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
        threads = alone.configuration.threads
        if threads is not None:
            fields["evidence"] += (survived_by_one_thread(guard=self.engine.has_guard),)
            fields["fixes"] = (SHARED_KERNEL, *verdict.fixes)
        with contextlib.suppress(ValueError):
            place = place.resolve().relative_to(Path.cwd())
        return FuzzFinding(
            **fields,
            signature=report.signature,
            call=described(op.name, alone.recipe, alone.repeated, () if threads is None else threads.beside),
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


def _also_without_guard(found: FuzzFinding, verdict: Diagnosis, own: Configuration) -> FuzzFinding:
    died = f"{verdict.rule}: {verdict.summary}"[:500]
    claim = "without guarded buffers, the process dies later of what the call did"
    evidence = (*found.evidence, Evidence(claim=claim, seen=died, where=f"a run {own}"))
    return msgspec.structs.replace(found, evidence=evidence)


def _of_op(verdict: Diagnosis, op: OpDefinition) -> object:
    culprit = verdict.culprit
    return culprit if culprit is None or culprit.op is not None else msgspec.structs.replace(culprit, op=op.name)
