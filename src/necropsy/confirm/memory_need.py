"""How much memory the program needs and how much it may use.

A limit of the shell (RLIMIT_AS, RLIMIT_DATA: setrlimit(2)) is lifted if the hard limit permits; one that the program
sets is raised as it is set (``preload/own_memory.c``). A surviving run then shows the need. Limits of control groups
cannot be lifted: two runs with smaller inputs (``--scale``) show the need instead.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from necropsy.confirm.campaign import Lab
from necropsy.confirm.conclusions import ExperimentResult, proved_instead
from necropsy.confirm.parameter_sweep import Scale
from necropsy.confirm.tally import Tally, outcome_of
from necropsy.model import Change, Crash, Environment, Evidence, Experiment, Fix

ALLOCATION, KILLED = "allocation-failed", "out-of-memory-killed"
RULES = frozenset({ALLOCATION, KILLED})
SYMPTOMS = frozenset(
    {"abort", "bad-jump", "check-failed", "invalid-read", "invalid-write", "null-dereference", "uncaught-cpp-exception"}
)
"""How unchecked failed allocations, or the wrong library, make a program end."""
HEADROOM = 1.25
_MIB = 1 << 20
_BY_ITSELF = ", which the program or the script that starts it sets,"
_SMALLER = (4, 16, 64, 256)
"""Fractions of a number's range that are tried until the input is small enough."""


@dataclass(frozen=True)
class Lifted:
    """Lifts address space and data segment limits; ``limits``: permitted bytes by these names, if limited."""

    rule: str
    limits: Mapping[str, int]
    shares: frozenset[str] = frozenset()
    title: str = ""
    """The title of the memory rule, if ``rule`` is another one."""
    own: bool = False
    """The program or its launcher has set these limits: its own call is changed."""

    @property
    def text(self) -> str:
        """What it changes, in words."""
        allowed = " and ".join(f"of {size(octets)} on its {what}" for what, octets in self.limits.items())
        return f"the limit {allowed}{_BY_ITSELF if self.own else ''} is lifted"

    def _change(self, octets: int) -> Change:
        """Address space limit in bytes; -1: none."""
        return Change(own_memory=octets) if self.own else Change(address_space=octets, data_limit=-1)

    @property
    def most(self) -> int:
        """Runs of a program that dies every time."""
        return 4

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Run it without the limits, and then with a limit of what it took and a quarter more."""
        tally = lab.tally("no-memory-limit", self._change(-1))
        last = lab.last
        if tally.outcome == "cannot-run" and not self.own:
            return self._refused(lab, tally)
        decided = tally.outcomes and tally.outcome == "survives" and lab.is_known and len(tally.outcomes) >= lab.enough
        if not decided or last is None:
            reason = "the limit is not the reason"
            if self.own:
                reason = "the limit is not the reason, or it is set past the C library"
            means = reason if tally.crashed else None
            return ExperimentResult(
                (self._row("no-memory-limit", self.text, tally, means, conclusive=bool(tally.crashed)),)
            )
        needed, resident = last.measures.get("mapped"), last.measures.get("rss")
        took = ", ".join(
            f"{size(int(octets))} {what}"
            for octets, what in ((needed, "of address space"), (resident, "of memory at once"))
            if octets
        )
        rows = [self._row("no-memory-limit", self.text, tally, f"it takes {took}" if took else None, conclusive=True)]
        allowed = ", ".join(f"{size(octets)} of {what}" for what, octets in self.limits.items())
        seen = (
            (
                Evidence(
                    claim="what it needs, against what it is allowed",
                    seen=f"{took}; {allowed} are allowed",
                    where="a run without the limit",
                ),
            )
            if took
            else ()
        )
        fixes: tuple[Fix, ...] = ()
        if needed and "address space" in self.limits:
            fixes = (self._enough(lab, int(needed), rows),)
        if "data segment" in self.limits:
            # No counter keeps the most that it was: it is lifted, or not.
            fix = Fix(
                text="Start it without a limit on its data segment.", command="ulimit -d unlimited", verified=True
            )
            if self.own:
                fix = Fix(text="Remove the limit on its data segment (RLIMIT_DATA).", verified=True)
            fixes = (*fixes, fix)
        if self.rule == ALLOCATION:
            return ExperimentResult(tuple(rows), {self.rule: True}, fixes, evidence=seen)
        claim = "without the limit on its memory it lives"
        found = proved_instead(ALLOCATION, self.title, claim, rows[0])
        return ExperimentResult(tuple(rows), {self.rule: False, ALLOCATION: True}, fixes, evidence=seen, instead=found)

    def _refused(self, lab: Lab, lifted: Tally) -> ExperimentResult:
        """If the limit stays, a preloaded library records refusals; they may be handled, so they prove nothing."""
        row = self._row("no-memory-limit", self.text, lifted, None, conclusive=False)
        trial = lab.run("refused-memory", Change(checker="memory"))
        if trial is None or trial.outcome not in {"same", "another"}:
            return ExperimentResult((row,))
        who, _, octets = (trial.why or "").partition(" ")
        said = f"{who} refused a request for {size(int(octets))}" if octets.isdigit() else "none was refused"
        seen = Experiment(
            name="refused-memory",
            change="what memory is refused is written down (malloc, calloc, realloc)",
            predicts="-",
            runs=1,
            crashed=1,
            outcome=f"{said}, before it died" if octets else said,
            rule=self.rule,
        )
        if not octets.isdigit():
            return ExperimentResult((row, seen))
        allowed = ", ".join(f"{size(limit)} of {what}" for what, limit in self.limits.items())
        claim = "the last failed allocation before the crash"
        evidence = (Evidence(claim=claim, seen=f"{said}; {allowed} are allowed", where="an observed run"),)
        text = (
            f"The limit is {allowed}, and a request for {size(int(octets))} failed. Raise the limit where it was set "
            "(a batch system, a shell), or use less memory. Check the result of each allocation."
        )
        return ExperimentResult((row, seen), fixes=(Fix(text=text),), evidence=evidence)

    def _enough(self, lab: Lab, needed: int, rows: list[Experiment]) -> Fix:
        wanted = -(-int(needed * HEADROOM) // _MIB) * _MIB
        tally = lab.tally(f"memory-limit-{wanted}", self._change(wanted))
        lives = bool(tally.outcomes) and tally.outcome == "survives"
        what = f"a limit of {size(wanted)} on its address space{_BY_ITSELF if self.own else ''}"
        means = f"{size(needed)} are needed, and a quarter more" if lives else None
        rows.append(self._row(f"memory-limit-{wanted}", what, tally, means, conclusive=lives or bool(tally.crashed)))
        text = f"Start it with a limit of {size(wanted)} on its address space: it takes {size(needed)}."
        verified = True if lives and len(tally.outcomes) >= lab.enough else False if tally.crashed else None
        if self.own:
            who, now = "The program, or the script that starts it,", size(self.limits["address space"])
            text = (
                f"{who} limits its address space to {now}, and needs {size(needed)}: set the limit to {size(wanted)}."
            )
            return Fix(text=text, verified=verified)
        return Fix(text=text, command=f"ulimit -v {wanted >> 10}", verified=verified)

    def _row(self, name: str, change: str, tally: Tally, means: str | None, *, conclusive: bool) -> Experiment:
        return Experiment(
            name=name,
            change=change,
            predicts="it survives",
            runs=len(tally.outcomes),
            crashed=tally.crashed,
            outcome=outcome_of(tally),
            rule=self.rule,
            means=means,
            conclusive=conclusive,
        )


@dataclass(frozen=True)
class Measured:
    """The need of a program killed when memory ran out, from smaller inputs; ``allowed``: bytes, or None if unknown."""

    rule: str
    allowed: int | None
    scales: Sequence[Scale] = ()
    shares: frozenset[str] = field(default=frozenset())

    @property
    def text(self) -> str:
        """What it changes, in words."""
        if not self.scales:
            return "nothing that can be changed here: what it used when it was killed is measured"
        return f"smaller inputs, by {{{self.scales[0].name}}}: how much memory they take"

    @property
    def most(self) -> int:
        """Runs of a program that dies every time."""
        return len(_SMALLER) + 3 if self.scales else 0

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Measure two inputs that are small enough, and say what the large one takes."""
        used = lab.plain.get("rss")
        allowed = f"; {size(self.allowed)} are allowed" if self.allowed is not None else ""
        seen: tuple[Evidence, ...] = ()
        if used:
            claim = "how much memory it had when it was killed"
            seen = (Evidence(claim=claim, seen=f"{size(int(used))}{allowed}", where="runs of the unchanged program"),)
        if not self.scales:
            why = (
                "could not be run: only who has set the limit can lift it; "
                "with --scale NAME=LO..HI smaller inputs are measured"
            )
            return ExperimentResult((self._row("memory", 0, 0, why, None, conclusive=False),), evidence=seen)
        return self._by_inputs(lab, self.scales[0], seen)

    def _by_inputs(self, lab: Lab, scale: Scale, seen: tuple[Evidence, ...]) -> ExperimentResult:
        points: dict[int, float] = {}
        runs = crashed = 0
        for value in (scale.low, *(scale.low + (scale.high - scale.low) // part for part in _SMALLER)):
            if value in points:
                continue
            trial = lab.run(f"{scale.name}-{value}", Change(arguments={scale.name: str(value)}))
            if trial is None:
                break
            runs, crashed = runs + 1, crashed + (trial.outcome in {"same", "another"})
            resident = trial.measures.get("rss")
            if trial.outcome == "survives" and resident:
                points[value] = resident
            if len(points) == 2:
                break
        if len(points) < 2:
            outcome = "no two inputs were small enough" if runs else "not run: the budget was spent"
            return ExperimentResult(
                (self._row("memory", runs, crashed, outcome, None, conclusive=False),), evidence=seen
            )
        (small, less), (large, more) = sorted(points.items())
        each = (more - less) / (large - small)
        needed = more + each * (scale.high - large)
        outcome = (
            f"{scale.name}={small:,} takes {size(int(less))}, {large:,} takes {size(int(more))}: "
            f"{scale.high:,} would take {size(int(needed))}"
        )
        # A process that enters a control group of its own has a limit that was not read: it was killed at it.
        used = lab.plain.get("rss", 0)
        limit = self.allowed or used
        too_much = bool(limit) and needed > limit
        why = "that are allowed" if self.allowed else "that it was killed at"
        means = f"{'more than' if too_much else 'no more than'} the {size(int(limit))} {why}" if limit else None
        row = self._row("memory", runs, crashed, outcome, means, conclusive=True)
        claim = "what it needs, by two smaller inputs"
        found = (*seen, Evidence(claim=claim, seen=outcome, where=f"runs with {scale.name}={small} and {large}"))
        if not too_much or each <= 0:
            return ExperimentResult((row,), evidence=found)
        most = int(large + (limit / HEADROOM - more) / each)
        rows: list[Experiment] = [row]
        fixes: tuple[Fix, ...] = ()
        if large < most < scale.high:
            tally = lab.tally(f"{scale.name}-{most}", Change(arguments={scale.name: str(most)}))
            lives = bool(tally.outcomes) and tally.outcome == "survives"
            rows.append(
                self._row(
                    f"{scale.name}-{most}",
                    len(tally.outcomes),
                    tally.crashed,
                    outcome_of(tally),
                    "it takes four fifths of what is allowed" if lives else None,
                    conclusive=lives and len(tally.outcomes) >= lab.enough,
                    change=f"{scale.name}={most:,}",
                )
            )
            text = f"Use a {scale.name} of at most {most:,}: that needs four fifths of what is allowed."
            fixes = (Fix(text=text, verified=True if rows[-1].conclusive else False if tally.crashed else None),)
        return ExperimentResult(tuple(rows), {self.rule: True}, fixes, evidence=found)

    def _row(
        self,
        name: str,
        runs: int,
        crashed: int,
        outcome: str,
        means: str | None,
        *,
        conclusive: bool,
        change: str | None = None,
    ) -> Experiment:
        return Experiment(
            name=name,
            change=change or (self.text if self.scales else "no limit on its memory"),
            predicts="it takes less memory, and survives",
            runs=runs,
            crashed=crashed,
            outcome=outcome,
            rule=self.rule,
            means=means,
            conclusive=conclusive,
        )


def study(crash: Crash, rule: str, scales: Sequence[Scale] = ()) -> Lifted | Measured | None:
    """The study of the memory that was wanted for; None where no limit is known that it could have come up against."""
    if rule == KILLED:
        return Measured(rule, crash.memory_limit, scales)
    limits = _limits()
    if limits:
        return Lifted(rule, limits)
    own = _own(crash.environment)
    return Lifted(rule, own, own=True) if own else None


def refused(rule: str, environment: Environment, title: str) -> Lifted | None:
    """The study of a death by refused memory, given the dead process's limits; None if there was no limit."""
    ours = _limits()
    if ours:
        return Lifted(rule, ours, frozenset({ALLOCATION}), title)
    own = _own(environment)
    return Lifted(rule, own, frozenset({ALLOCATION}), title, own=True) if own else None


def _own(environment: Environment | None) -> dict[str, int]:
    """Limits at death that this process lacks: the program has set them itself."""
    limits = (environment.limits if environment is not None else None) or {}
    names = {"address space": "RLIMIT_AS", "data segment": "RLIMIT_DATA"}
    return {what: limits[name] for what, name in names.items() if limits.get(name, -1) >= 0}


def _limits() -> dict[str, int]:
    """Soft limits in bytes, which the runs inherit."""
    kinds = (("address space", resource.RLIMIT_AS), ("data segment", resource.RLIMIT_DATA))
    found = {what: resource.getrlimit(kind)[0] for what, kind in kinds}
    return {what: octets for what, octets in found.items() if octets != resource.RLIM_INFINITY}


def size(octets: int) -> str:
    """Mebibytes, as limits and tools for memory give them."""
    return f"{octets / _MIB:,.0f} MiB"
