"""Looks for the smallest limits with which a command still works: on its stack, and on its address space.

A limit is bisected. Each step is one run of the command under that limit (``confirm.runner``). What is found is run
again, alone and with both limits together, before it is called enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from necropsy.confirm import measure
from necropsy.confirm.runner import Runner, TrialRun
from necropsy.confirm.stack_size import size_text
from necropsy.errors import InputError
from necropsy.model import Change, Document, Gap, SmallestLimit

PLAIN, CHECKS = 2, 2
"""Runs of the unchanged command, and further runs with what was found."""
_HEADROOM = 1.25
_PATIENCE_S = 30
_NUMBER_ONLY = "exit-status-only"
_MOST_RAISED = 5
"""How often a limit is raised that does not hold when it is checked."""


@dataclass(frozen=True)
class _Kind:
    """A limit: what it is called, and how closely it is bisected, in bytes and as a share."""

    name: Literal["RLIMIT_STACK", "RLIMIT_AS"]
    what: str
    measure: str
    least: int
    grain: int
    share: float

    def change(self, octets: int) -> Change:
        return Change(stack_limit=octets) if self.name == "RLIMIT_STACK" else Change(address_space=octets)

    def is_close(self, low: int, high: int) -> bool:
        """Bisected far enough."""
        return high - low <= max(self.grain, self.share * high)

    def rounded(self, octets: float) -> int:
        """Up to a whole step."""
        return -(-int(octets) // self.grain) * self.grain


_STACK = _Kind("RLIMIT_STACK", "stack", "main_peak", least=16 << 10, grain=4 << 10, share=0.04)
_MEMORY = _Kind("RLIMIT_AS", "address space", "mapped", least=1 << 20, grain=1 << 20, share=0.02)


class _SpentError(Exception):
    pass


@dataclass
class LimitSearch:
    """The runs of one command; ``tell`` is given a line on how far it is."""

    runner: Runner
    budget_s: float | None = None
    tell: Callable[[str], None] = lambda _text: None
    longer: float | None = None
    """A run that takes so many times as long as the unchanged ones does not work, and nor does one without an end."""
    runs: int = 0
    gaps: list[Gap] = field(default_factory=list)
    document: Document | None = None
    """Of the first run, without limits."""
    same_output: bool = False
    """The unchanged command writes the same to stdout each time, so a run with other output does not count."""
    _output: str | None = None
    _plain: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def conduct(self) -> tuple[SmallestLimit, ...]:
        """What was found, stack first. Raises InputError where the command does not work without limits."""
        self._run_plain()
        found: list[SmallestLimit] = []
        try:
            found.append(self._smallest(_STACK))
            found.append(self._smallest(_MEMORY))
            self._check_together(*found)
        except _SpentError:
            what = "address space" if len(found) == 1 else "both limits together" if found else "stack, address space"
            self.gaps.append(Gap(part=f"smallest {what}", why=f"the budget was spent after {self.runs} runs"))
        return tuple(found)

    def _check_together(self, stack: SmallestLimit, memory: SmallestLimit) -> None:
        both = Change(stack_limit=stack.bytes, address_space=memory.bytes)
        if self.works(self._run(both, "both limits together")) is not None:
            why = "with both limits together it fails; take the larger ones, which leave a quarter to spare"
            self.gaps.append(Gap(part="smallest limits", why=why))

    def works(self, run: TrialRun) -> str | None:
        """None if the run did what the unchanged command does; else what it did."""
        if run.outcome == "hangs":
            return "it does not end in time"
        if run.outcome == "cannot-run":
            return "it cannot be run" + (f": {run.why}" if run.why else "")
        if run.outcome != "survives":
            verdict = run.report.verdict if run.report is not None else None
            if verdict is not None and verdict.rule != _NUMBER_ONLY:
                return verdict.title
            return f"it ends with exit code {run.status}"
        if self.same_output and run.output != self._output:
            return "its output is another one"
        return None

    def _run_plain(self) -> None:
        outputs, slowest = [], 0.0
        for number in range(PLAIN):
            run = self._run(Change(), f"without limits, {number + 1} of {PLAIN}", always=not number)
            if (why := self.works(run)) is not None:
                often = "" if not number else ", though it did not in the run before"
                raise InputError(f"the command fails without limits{often}: {why}")
            outputs.append(run.output)
            if not number:
                self._plain, self.document = measure.of_run(run), run.document
            slowest = max(slowest, run.wall_s)
        if self.longer is not None:
            self.runner.timeout_s = self.longer * slowest + _PATIENCE_S
        self.same_output, self._output = len(set(outputs)) == 1, outputs[0]

    def _smallest(self, kind: _Kind) -> SmallestLimit:
        before = self.runs
        low, high, why = self._bracket(kind)
        while not kind.is_close(low, high):
            middle = min(max(kind.rounded((low + high) / 2), low + kind.grain), high - kind.grain)
            if middle <= low:
                break
            failed = self._under(kind, middle)
            if failed is None:
                high = middle
            else:
                low, why = middle, failed
        high = self._checked(kind, high)
        return SmallestLimit(
            name=kind.name,
            bytes=high,
            fails_at=low if why is not None else None,
            fails=why,
            runs=self.runs - before,
            spare=kind.rounded(high * _HEADROOM),
        )

    def _bracket(self, kind: _Kind) -> tuple[int, int, str | None]:
        """A limit with which it fails, one with which it works, and how it fails."""
        used = int(self._plain.get(kind.measure, 8 << 20))
        high = kind.rounded(used * 1.05 + kind.grain)
        while self._under(kind, high) is not None:
            if high > 64 * used + (1 << 30):
                raise InputError(f"the command fails with every limit on its {kind.what} that was tried")
            high = kind.rounded(high * 2)
        failed = self._under(kind, kind.least)
        return (kind.least, kind.least, None) if failed is None else (kind.least, high, failed)

    def _checked(self, kind: _Kind, octets: int) -> int:
        """The limit, or one a little higher, with which it works in each further run. Raises InputError."""
        for _ in range(_MOST_RAISED):
            if all(self._under(kind, octets) is None for _ in range(CHECKS)):
                return octets
            octets = kind.rounded(octets * (1 + kind.share) + kind.grain)
        raise InputError(
            f"the command works only sometimes with a limit of {size_text(octets)} on its {kind.what}: "
            "no smallest one can be told"
        )

    def _under(self, kind: _Kind, octets: int) -> str | None:
        return self.works(self._run(kind.change(octets), f"{size_text(octets)} of {kind.what}"))

    def _run(self, change: Change, what: str, *, always: bool = False) -> TrialRun:
        if self.budget_s is not None and self.runs >= PLAIN and time.monotonic() - self._began > self.budget_s:
            raise _SpentError
        self.runs += 1
        self.tell(f"necropsy: run {self.runs}: {what}")
        return self.runner.run(change, always=always)
