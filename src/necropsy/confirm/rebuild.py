"""The op built again from its source: at each level of optimisation, and with the checks that compilers know.

The program itself is not touched: when it loads its library, another build is loaded in its place
(``preload/replace_library.c``). What the checks are: GCC's manual, "Program Instrumentation Options".
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from necropsy.confirm import address_sanitizer, sampling
from necropsy.confirm.campaign import Lab, Trial
from necropsy.confirm.compiler import Builder
from necropsy.confirm.conclusions import CAUSES, SIGNS, ExperimentResult, proved_instead
from necropsy.confirm.tally import Tally, outcome_of, told
from necropsy.errors import NecropsyError
from necropsy.model import Change, Evidence, Experiment, Fix

LEVELS = ("-O0", "-O1", "-O2", "-O3")
CHECKED = ("-O1", "-g", "-fstack-protector-all", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-D_GLIBCXX_ASSERTIONS")
SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address")
UNDEFINED = ("-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=undefined")
"""What the standard leaves undefined: a compiler may make of it what it likes, at one level this, at the next that."""
STACK = frozenset({"stack-overflow-recursion", "stack-overflow-large-frame", "stack-overflow-small-stack"})
_FAMILIES = (
    STACK,
    frozenset({"stack-smash", "buffer-overflow-fortify"}),
    frozenset({"heap-corruption", "double-free", "heap-buffer-overflow", "use-after-free"}),
    frozenset({"null-dereference"}),
    frozenset({"integer-divide-by-zero"}),
)

Flags = tuple[str, ...]


class Builds:
    """Builds of one source, made on all processors while the runs go on; what is asked for first is made first."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._pool: ThreadPoolExecutor | None = None
        self._jobs: dict[Flags, Future[Path]] = {}

    def order(self, wanted: Sequence[Flags]) -> None:
        """Begin to make them."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=max(1, min(4, os.cpu_count() or 1)))
        for flags in wanted:
            if flags not in self._jobs:
                self._jobs[flags] = self._pool.submit(self.builder.build, flags)

    def get(self, flags: Flags) -> Path:
        """The finished build with ``flags``; raises ``NecropsyError`` if it cannot be made."""
        self.order([flags])
        return self._jobs[flags].result()

    def close(self) -> None:
        """Begin no more of them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


@dataclass(frozen=True)
class Rebuild:
    """``--op-source``: the op of the crash, built in other ways; ``--op-fixed``: its source as it was corrected."""

    rule: str
    builder: Builder
    shares: frozenset[str] = frozenset()
    corrected: Builder | None = None
    titles: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Titles of rules that a check may prove instead."""
    _builds: dict[Builder, Builds] = field(default_factory=dict, compare=False)
    _done: dict[str, tuple[Experiment, Tally]] = field(default_factory=dict, compare=False)

    @property
    def text(self) -> str:
        """What it changes, in words."""
        name, source = self.builder.library.name, self.builder.source.name
        checks = "" if self.rule in STACK else ", with checks"
        fixed = f"; and from {self.corrected.source.name}, the corrected source" if self.corrected is not None else ""
        return f"{name} built again from {source}: {', '.join(LEVELS)}{checks}{fixed}"

    @property
    def _wanted(self) -> tuple[Flags, ...]:
        """Most informative first, in case the budget ends. For a full stack, no check adds anything."""
        levels = tuple((level,) for level in LEVELS)
        return levels if self.rule in STACK else (SANITIZED, CHECKED, *levels)

    def prepare(self) -> None:
        """Begin to compile; the runs of other experiments are made meanwhile."""
        self._of(self.builder).order(self._wanted)

    def _of(self, builder: Builder) -> Builds:
        return self._builds.setdefault(builder, Builds(builder))

    def close(self) -> None:
        """Begin no more builds."""
        for builds in self._builds.values():
            builds.close()

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Each build, run until it is decided; the checked ones say who did it."""
        self.prepare()
        rows: list[Experiment] = []
        proofs: list[bool] = []
        seen: Trial | None = None
        tallies: dict[Flags, Tally] = {}
        for flags in self._wanted:
            row, rule, tally = self._one(lab, flags)
            rows.append(row)
            if row.conclusive and tally is not None:
                tallies[flags] = tally
            if flags in {CHECKED, SANITIZED} and rule is not None and (proof := proof_of(self.rule, rule)) is not None:
                proofs.append(proof)
                seen = seen or (lab.last if proof or rule in CAUSES else None)
        fixes, evidence = self._by_level(tallies), self._levels(tallies)
        if evidence and self.rule not in STACK:
            row, undefined = self._undefined(lab)
            rows.append(row)
            evidence += undefined
        if self.corrected is not None:
            more, fix = self._by_source(lab, self.corrected, tallies)
            rows, fixes = rows + more, [*fixes, *fix]
        # A check that fires says what happened first; the other one may only have seen the same as before.
        proved = {self.rule: True in proofs} if proofs else {}
        result = ExperimentResult(tuple(rows), proved, tuple(fixes), evidence=evidence)
        return result if seen is None or seen.culprit is None else self._named(result, seen)

    def _named(self, result: ExperimentResult, seen: Trial) -> ExperimentResult:
        """Add what the first firing check saw: who did it, and what the death was a symptom of."""
        rule, claim = seen.rule or "", "the first wrong access that the compiler's checks saw"
        said = rule + (f", {seen.where}" if seen.where else "")
        first = Evidence(claim=claim, seen=said, where="the run of the op built with them")
        evidence = (first, *result.evidence)
        if rule not in CAUSES or (proof_of(self.rule, rule) and self.rule not in SIGNS):
            return dataclasses.replace(result, culprit=seen.culprit, evidence=evidence)
        found = proved_instead(rule, self.titles.get(rule, rule), claim, result.experiments[0], seen.culprit)
        proofs = {**result.proofs, rule: True}
        return dataclasses.replace(result, proofs=proofs, evidence=evidence, instead=found, is_cause=True)

    def _levels(self, tallies: Mapping[Flags, Tally]) -> tuple[Evidence, ...]:
        """The optimisation levels at which it dies, if they differ."""
        dies = [flags[0] for flags, one in tallies.items() if len(flags) == 1 and one.crashed]
        lives = [flags[0] for flags, one in tallies.items() if len(flags) == 1 and not one.crashed]
        if not (dies and lives):
            return ()
        seen = f"it dies at {', '.join(dies)}, and lives at {', '.join(lives)}"
        return (Evidence(claim="the level of optimisation decides", seen=seen, where="the op built at each"),)

    def _undefined(self, lab: Lab) -> tuple[Experiment, tuple[Evidence, ...]]:
        """If the optimisation level decides, behaviour may be undefined: find the first such place."""
        row, rule, _tally = self._one(lab, UNDEFINED)
        seen = lab.last.seen if lab.last is not None and rule == "sanitizer-report" else None
        if seen is None:
            return row, ()
        said = next((one.seen for one in seen.evidence if "runtime error: " in one.seen), None)
        if said is None:
            return row, ()
        place, _, what = said.partition(": runtime error: ")
        claim = "its behaviour is undefined, so the compiler may do anything with it"
        return row, (
            Evidence(claim=claim, seen=f"{Path(place).name}: {what}", where="the run of the op built with checks"),
        )

    def _by_level(self, tallies: Mapping[Flags, Tally]) -> list[Fix]:
        """Levels that need less stack. Damaged memory is damaged at every level, noticed or not."""
        lives = [" ".join(flags) for flags, one in tallies.items() if not one.crashed]
        if self.rule not in STACK or not lives or len(lives) == len(tallies):
            return []
        text = (
            f"Build {self.builder.source.name} with {' or '.join(lives)}: frames are smaller there, or the recursion "
            "is a loop, and it fits. It only moves the limit, and another compiler may not do it."
        )
        return [Fix(text=text, command=f"g++ {lives[0]} ...", verified=True)]

    def _by_source(
        self, lab: Lab, corrected: Builder, tallies: Mapping[Flags, Tally]
    ) -> tuple[list[Experiment], list[Fix]]:
        """Test the corrected source if the old one dies: with the sanitizer, and as the library was built.

        The sanitizer sees damage each time, so two clean runs suffice, however rarely the plain program dies.
        """
        died = [flags for flags, one in tallies.items() if one.crashed]
        plain = [flags for flags in died if flags != SANITIZED]
        plain.sort(
            key=lambda flags: tallies[flags] is not lab.baseline
        )  # as the library was built, where that is known
        tried = dict.fromkeys(plain[:1], lab.enough)
        if SANITIZED in died:
            seen = tallies[SANITIZED]
            steady = seen.crashed == len(seen.outcomes) and sampling.enough(seen.crashed, len(seen.outcomes))
            tried = {SANITIZED: sampling.EVERY_TIME if steady else lab.enough, **tried}
        self._of(corrected).order(list(tried))
        rows, crashed = [], 0
        for flags, enough in tried.items():
            row, _rule, tally = self._one(lab, flags, corrected, enough)
            rows.append(row)
            crashed += tally.crashed if tally is not None else 0
        if not rows or not (crashed or all(row.conclusive for row in rows)):
            return rows, []
        checked = "under AddressSanitizer too" if SANITIZED in tried else "which no address check has tested"
        text = (
            f"Take {corrected.source.name}: built from it, it lives where {self.builder.source.name} dies, {checked}."
        )
        if crashed:
            text = f"{corrected.source.name} does not correct it: the library built from it crashes too."
        return rows, [Fix(text=text, verified=not crashed)]

    def _one(
        self, lab: Lab, flags: Flags, corrected: Builder | None = None, enough: int | None = None
    ) -> tuple[Experiment, str | None, Tally | None]:
        """One build of the old source, or of ``corrected``, which must survive ``enough`` runs."""
        builder = corrected or self.builder
        mark = "" if corrected is None else f" from {corrected.source.name}"
        name = "op " + " ".join(flags) + mark
        what = f"the op built{mark} with {' '.join(flags)}"
        predicts = "a check says what is wrong, where there is one" if len(flags) > 1 else "-"
        if corrected is not None:
            predicts = "it survives"
        try:
            change = self._change(self._of(builder).get(flags), flags)
        except NecropsyError as error:
            row = Experiment(
                name=name, change=what, predicts="-", runs=0, crashed=0, outcome=str(error), rule=self.rule
            )
            return row, None, None
        known = self._known(lab, change)
        if known is not None:
            # What the compiler made of it is a library that was run already, to the byte.
            like, tally = known
            row = msgspec.structs.replace(
                like,
                name=name,
                change=what,
                predicts=predicts,
                runs=0,
                crashed=0,
                outcome=f"the same bytes as {like.change}, which {like.outcome}",
                rule=self.rule,
                conclusive=True,
            )
            return row, None, tally
        tally = self._tally(lab, name, change, flags, enough)
        last = lab.last if tally.outcomes else None
        rule = last.rule if last is not None and tally.crashed else None
        row = Experiment(
            name=name,
            change=what,
            predicts=predicts,
            runs=len(tally.outcomes),
            crashed=tally.crashed,
            outcome=_words(tally, rule, last.where if last is not None else None),
            rule=self.rule,
            means=_frame(self.rule, last.measures) if last is not None and tally.crashed else None,
            conclusive=bool(tally.crashed)
            or (lab.is_known and tally.outcome == "survives" and len(tally.outcomes) >= (enough or lab.enough)),
        )
        if corrected is None and tally.outcomes and tally.outcome == "survives" and self.rule not in STACK:
            row = msgspec.structs.replace(row, means="the error does not show in this build")
        if row.conclusive:
            self._done[_digest(change)] = (row, tally)
        return row, rule, tally

    def _tally(self, lab: Lab, name: str, change: Change, flags: Flags, enough: int | None) -> Tally:
        """Enough runs, because damage can go unnoticed."""
        if self.rule in STACK and enough is None:
            return lab.tally(name, change)
        # What dies every time is known to live after a second run; what dies now and then is asked what it shows once.
        least = enough or (lab.enough if lab.enough <= sampling.EVERY_TIME else 1)
        tally, most = Tally(ended_early=not lab.is_known), enough or 1
        if enough is None and flags == SANITIZED and self.corrected is not None and lab.enough > sampling.EVERY_TIME:
            most = sampling.AT_ONCE  # so often that it is known to see it each time
        while lab.add(tally, name, change):
            last = tally.outcomes[-1]
            if last == "survives":
                if len(tally.outcomes) >= least:
                    break
            elif enough is not None:
                break
            else:
                said = flags == SANITIZED and proof_of(self.rule, (lab.last.rule if lab.last else None) or "")
                # Another death twice is no accident; what the sanitizer has seen was there.
                if len(tally.outcomes) >= (most if said or last != "another" else max(most, 2)):
                    break
        return tally

    def _known(self, lab: Lab, change: Change) -> tuple[Experiment, Tally] | None:
        """A known result for the same bytes and variables, from another build or the original library."""
        if not self._done and lab.is_known:
            first = told(lab.baseline)
            own = Change(library=(str(self.builder.library), str(self.builder.library)))
            row = msgspec.structs.replace(first, change="the library itself", means=_frame(self.rule, lab.plain))
            self._done[_digest(own)] = (row, lab.baseline)
        return self._done.get(_digest(change))

    def _change(self, built: Path, flags: Flags) -> Change:
        library = (str(self.builder.library), str(built))
        if flags == UNDEFINED:
            return Change(library=library, environment={"UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1"})
        if flags != SANITIZED:
            return Change(library=library)
        options = address_sanitizer.options(abort_on_error=1)
        preload = address_sanitizer.preload(address_sanitizer.runtime() or "libasan.so")
        return Change(library=library, preload=preload, environment={"ASAN_OPTIONS": options})


def _digest(change: Change) -> str:
    """Identifies the bytes together with the variables."""
    built = Path(change.library[1]).read_bytes() if change.library is not None else b""
    return hashlib.sha256(built + repr((change.preload, change.environment)).encode()).hexdigest()


def _words(tally: Tally, rule: str | None, where: str | None) -> str:
    said = outcome_of(tally)
    if rule is None:
        return said
    return f"{said}, by {rule}" + (f", {where}" if where else "")


def _frame(rule: str, measures: Mapping[str, float]) -> str | None:
    """Stack bytes of one recursion level, or else the largest frame."""
    each, largest = measures.get("per_level"), measures.get("largest")
    if rule not in STACK:
        return None
    if rule == "stack-overflow-recursion" and each:
        return f"{each:,.0f} bytes for each level of the recursion"
    return f"its largest frame has {largest:,.0f} bytes" if largest else None


def proof_of(claimed: str, found: str) -> bool | None:
    """Whether what a check found is what the rule claims; None where it does not say."""
    if claimed == found:
        # That it met a damaged object again does not say who had damaged it.
        return None if claimed == "damaged-object" else True
    mine = next((family for family in _FAMILIES if claimed in family), None)
    other = next((family for family in _FAMILIES if found in family), None)
    if other is None:
        return None
    # A bad pointer is what damaged memory looks like from where it is used: the check says who damaged it.
    return mine is other or claimed in SIGNS
