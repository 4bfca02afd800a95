"""The reduction of one program: the death that it is about, the stages, and the best program at each moment."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.crashed import signal_name
from necropsy.errors import InputError
from necropsy.model import Frame, Gap, Report
from necropsy.reduce.command import PythonCommand
from necropsy.reduce.criterion import Death
from necropsy.reduce.lanes import Lanes
from necropsy.reduce.passes import drop_unused, passes
from necropsy.reduce.program import Pass, Program
from necropsy.reduce.runner import Outcome, Runner
from necropsy.reduce.shortcut import Stack
from necropsy.reduce.statements import count_statements, drop_never_ran
from necropsy.reduce.trials import Count, DifferentDeath, OutOfBudgetError, Trials
from necropsy.reduce.walking import accepted_programs
from necropsy.reduce.workspace import Workspace

_MOST_ROUNDS = 6
_FIRST_LIMIT_S = 3600.0
_LEAST_LIMIT_S = 2.0
_LEAST_BUSY_S = 1.0
_LEAST_IDLE_S = 1.0
_TIMES_AS_IDLE = 3
_TIMES_AS_LONG = 5
_ALWAYS, _ALWAYS_SLOW = 8, 5
"""After this many deaths in as many runs, a program counts as one that always dies; a slow one after fewer.

Of those that die in 6 of 10 runs, 2 % and 8 % pass for that. Their candidates are refused too soon, so more is left.
"""
_ENOUGH_DEATHS = 5
_MOST_RATE_RUNS = 60
_AGAIN = 3
"""Times as many runs as before, where a rate seems to have fallen."""
_QUICK_START_S = 3.0
"""A program that starts as fast as this is run from its start after each stage; another one after each round."""
_FAMILIES = ("CUDA_", "GLIBC_", "KMP_", "LD_", "MALLOC_", "MKL_", "OMP_", "OPENBLAS_", "TF_", "XLA_")
"""The names of variables that libraries read begin like this."""
_LEAST_NAME = 2
_CALLED = re.compile(r"(\w+)\s*\(")


class NothingToReduceError(InputError):
    """The program does not die natively, or not again."""


@dataclass
class Stage:
    """What one stage cost, and how many statements it left."""

    name: str
    trials: int
    statements: int
    seconds: float


@dataclass
class Reduced:
    """What came of it. ``program`` is the smallest one that was seen to die the same death from a fresh start."""

    command: PythonCommand
    original: Program
    """With the files that it opens, once that is known."""
    program: Program
    death: Death
    first: Report
    last: Report
    count: Count
    stages: list[Stage] = field(default_factory=list)
    others: tuple[DifferentDeath, ...] = ()
    rate_before: float = 1.0
    rate: float = 1.0
    runs: int = 1
    seconds: float = 0.0
    finished: bool = False
    gaps: list[Gap] = field(default_factory=list)


class Campaign:
    """Cuts a program down. ``watch`` is called before each trial: the stage, the statements left, what was done."""

    def __init__(
        self,
        command: PythonCommand,
        folder: Path,
        workspace: Workspace,
        *,
        budget_s: float = float("inf"),
        timeout_s: float | None = None,
        runs: int = 10,
        keep: Sequence[str] = (),
        jobs: int = 1,
        watch: Callable[[str, int, Count], None] = lambda _stage, _statements, _count: None,
    ) -> None:
        self.command = command
        self.workspace = workspace
        self.runs = runs
        self.keep = frozenset(keep)
        self.watch = watch
        self.deadline = time.monotonic() + budget_s
        self._began = time.monotonic()
        self._limit_s = timeout_s
        copied = workspace.copy(folder)
        self.original = Program(copied.files, command.script, command.arguments, _variables(copied.files))
        self._left_out = copied.left_out
        self.runner = Runner(command, workspace, self.original.environment)
        self._stage = ""
        self.count = Count()
        self._statements = count_statements(self.original)
        self._current = self._verified = self.original
        self._checkpoints: list[Program] = []
        self._refused: set[object] = set()
        self._jobs = jobs
        self._lanes: Lanes | None = None
        self._seen: dict[bytes, Mapping[int, str] | None] = {}
        self._stack: Stack = ()
        """Of the last run for values."""

    def begin(self, signature: str | None = None) -> Reduced:
        """Run the program until it dies; with ``signature``, this death.

        Raises NothingToReduceError where it does not.
        """
        self._stage = "first run"
        count = self.count
        outcome: Outcome | None = None
        for _ in range(self.runs):
            self.watch(self._stage, self._statements, count)
            outcome = self.runner.fresh(self.original, self._limit_s or _FIRST_LIMIT_S)
            count.trials += 1
            if outcome.timed_out or (outcome.death is not None and signature in {None, outcome.death.signature}):
                break
        if outcome is None or outcome.death is None or outcome.report is None:
            raise NothingToReduceError(_why_not(outcome, count.trials))
        if signature not in {None, outcome.death.signature}:
            raise NothingToReduceError(
                f"it died of something else in {count.trials} runs: {outcome.death.signature}, not {signature}"
            )
        limit = self._limit_s or max(_LEAST_LIMIT_S, _TIMES_AS_LONG * outcome.seconds)
        self.trials = Trials(
            self.runner,
            outcome.death,
            timeout_s=limit,
            start_s=outcome.seconds,
            deadline=self.deadline,
            count=count,
            keep=self.keep,
        )
        self.trials.on_trial = lambda _: self.watch(self._stage, self._statements, count)
        self.result = Reduced(
            command=self.command,
            original=self.original,
            program=self.original,
            death=outcome.death,
            first=outcome.report,
            last=outcome.report,
            count=count,
            runs=count.trials,
        )
        if self._left_out:
            why = f"{len(self._left_out)} that are no plain files or cannot be read, such as {self._left_out[0]}"
            self.result.gaps.append(Gap(part="files", why=why))
        self._start_s = outcome.seconds
        return self.result

    def reduce(self) -> Reduced:
        """All stages, again and again, until nothing changes or the time is up.

        Raises NothingToReduceError where the death does not repeat, and KeyboardInterrupt where the user wants
        what there is; ``result`` has it.
        """
        result = self.result
        try:
            self.runner.prepare(self.original)
            if self.runner.why_fresh is not None:
                result.gaps.append(Gap(part="forks", why=self.runner.why_fresh))
            elif self.runner.why_imports is not None:
                why = f"each trial does the imports itself: {self.runner.why_imports}"
                result.gaps.append(Gap(part="forks", why=why))
            self._measure()
            if self._jobs > 1:
                self._lanes = Lanes(self.runner, self._jobs)
            self._rounds()
            result.finished = True
        except OutOfBudgetError:
            pass
        finally:
            if self._lanes is not None:
                self._lanes.close()
        return self.settle()

    def _measure(self) -> None:
        """How often it dies: in all of some runs, or in as many as it takes to see five deaths."""
        self._stage = "rate"
        runs, deaths, busy, idle = self.result.runs, 1, 0.0, 0.0
        always = _ALWAYS if self._start_s < _QUICK_START_S else _ALWAYS_SLOW
        while runs < always if deaths == runs else deaths < _ENOUGH_DEATHS and runs < _MOST_RATE_RUNS:
            runs += 1
            outcome = self.trials.one(self.original)
            deaths += self.trials.wanted.is_same(outcome.death)
            busy, idle = max(busy, outcome.busy), max(idle, outcome.idle)
        if self._limit_s is None:
            # Candidates that wait or loop forever would take all of the time limit, which a busy machine makes long.
            self.runner.busy_s = max(_LEAST_BUSY_S, _TIMES_AS_LONG * busy)
            self.runner.idle_s = max(_LEAST_IDLE_S, _TIMES_AS_IDLE * idle)
        if deaths == 1:
            raise NothingToReduceError(f"its crash does not repeat: it died in 1 of {runs} runs")
        self.result.runs = runs
        self.result.rate_before = self.result.rate = self.trials.rate = deaths / runs

    def _rounds(self) -> None:
        for number in range(_MOST_ROUNDS):
            before = self._current.digest()
            for name, steps in self._passes(number):
                self._run_stage(name, steps)
            self._verify()
            if self._current.digest() == before:
                return

    def _passes(self, number: int) -> Iterator[tuple[str, Pass]]:
        if number == 0:
            executed, opened = self._observed()
            if opened:
                unused = [path for path in self._current.files if path not in opened and path not in executed]
                yield "files that were not opened", drop_unused(unused)
                # Other files in the folder are not part of what is reduced.
                self.result.original = self.original.without_files(self.original.files.keys() - self._current.files)
            if executed:
                self.workspace.keep_links(opened)
                yield "what never ran", drop_never_ran(executed)
        yield from passes(
            number,
            self._values,
            lambda: self._stack,
            lambda: self._kept_calls,
            self._refused,
            is_cheap=self.trials.quiet_runs == 1,
        )

    @property
    def _kept_calls(self) -> frozenset[str]:
        """What is called on the line that died: its arguments stay."""
        thread = self.result.last.crash.crashed_thread
        own = next((frame for _, frame in self._own_frames(self.result.last)), None)
        names = frozenset(_CALLED.findall(own.code)) if own is not None and own.code else frozenset()
        native = {one.function for one in (thread.frames if thread is not None else None) or ()}
        return names & native or names

    def _own_frames(self, report: Report) -> Iterator[tuple[str, Frame]]:
        """The Python frames in files of the program, the innermost first, and the paths of these."""
        thread = report.crash.crashed_thread
        for frame in (thread.python if thread is not None else None) or ():
            path = os.path.relpath(self.workspace.work / (frame.source or "."), self.workspace.work)
            if path in self.original.files:
                yield path, frame

    def _run_stage(self, name: str, make: Pass) -> None:
        """All steps of a pass; what was accepted is ``_current``."""
        self._stage = name
        began, trials, before = time.monotonic(), self.trials.count.trials, self._current
        try:
            for program in accepted_programs(make, self._current, self.trials, self._lanes, self._refused):
                self._current = program
                self._checkpoints.append(program)
                self._statements = count_statements(program)
        finally:
            spent = self.trials.count.trials - trials
            self.result.stages.append(Stage(name, spent, self._statements, time.monotonic() - began))
        if self._current is not before and self._start_s < _QUICK_START_S:
            self._verify()

    def _verify(self) -> None:
        """Go back to the last program that dies from a fresh start, and not much more rarely than the first."""
        # Where the last one does not, half of what came since the last check is gone back, and so on.
        good, bad = -1, len(self._checkpoints)
        at = bad - 1
        while bad - good > 1:
            program = self._checkpoints[at]
            if self.trials.verified(program) and self._is_frequent(program):
                good = at
                self._take(program)
            else:
                bad = at
                self.trials.refuse(program)
            at = (good + bad) // 2
        self._checkpoints.clear()
        self._current = self._verified
        self._statements = count_statements(self._current)

    def _take(self, program: Program) -> None:
        self._verified = self.result.program = program
        if self.trials.report is not None:
            self.result.last = self.trials.report

    def _is_frequent(self, program: Program) -> bool:
        if self.trials.rate >= 1:
            return True
        runs = max(_ENOUGH_DEATHS, round(3 / self.trials.rate))
        rate = self.trials.measured_rate(program, runs)
        if rate < self.result.rate_before / 2:
            # A few runs are below half by chance, or the few of the original were above, and what a stage has done
            # would be lost.
            rate = (rate + _AGAIN * self.trials.measured_rate(program, _AGAIN * runs)) / (1 + _AGAIN)
            if rate < self.result.rate_before / 2 and self.result.runs < _AGAIN * runs:
                self._measure_again(_AGAIN * runs)
        if rate < self.result.rate_before / 2:
            return False
        self.result.rate = rate
        self.trials.rate = max(rate, self.trials.rate)  # the more often it dies, the fewer runs a candidate takes
        return True

    def _measure_again(self, runs: int) -> None:
        """The rate of the original, from more runs than it took to see some deaths."""
        result = self.result
        deaths = result.rate_before * result.runs + self.trials.measured_rate(self.original, runs) * runs
        result.runs += runs
        result.rate_before = deaths / result.runs

    def settle(self) -> Reduced:
        """After an interruption: keep what was accepted last if it dies from a fresh start."""
        is_larger = count_statements(self._current) > count_statements(self._verified)  # in the middle of a stage
        try:
            if self._current is not self._verified and not is_larger and self.trials.verified(self._current):
                self._take(self._current)
        finally:
            self.result.seconds = time.monotonic() - self._began
            self.result.others = tuple(self.trials.others.values())
        return self.result

    def _values(self, program: Program) -> Mapping[int, str] | None:
        """What expressions of an instrumented program were worth in a run that died."""
        key = program.digest()
        if key not in self._seen:
            self._seen[key] = self._values_of(program)
        return self._seen[key]

    def _values_of(self, program: Program) -> Mapping[int, str] | None:
        if self.runner.why_fresh is not None:
            return None
        for _ in range(self.trials.quiet_runs):
            self.trials.count.trials += 1
            outcome = self.runner.run(program, self.trials.timeout_s * _TIMES_AS_LONG, observe=True)
            if outcome.death is not None and outcome.death.signature == self.trials.wanted.signature:
                thread = outcome.report.crash.crashed_thread if outcome.report is not None else None
                if outcome.report is not None:
                    self._stack = [(path, one.line or 0) for path, one in self._own_frames(outcome.report)]
                return self.runner.values(thread.tid if thread is not None else None)
        return None

    def _observed(self) -> tuple[dict[str, set[int]], set[str]]:
        """The executed lines of one run that died, and the files that it opened.

        Observed, some programs do not die of the same any more: then there are no lines, and the files may be too few.
        """
        if self.runner.why_fresh is not None:
            return {}, set()
        opened: set[str] = set()
        for _ in range(self.trials.quiet_runs):
            self.trials.count.trials += 1
            outcome = self.runner.run(self.original, self.trials.timeout_s * _TIMES_AS_LONG, observe=True)
            lines, files = self.runner.observed()
            if self.trials.wanted.is_same(outcome.death):
                return lines, files
            opened |= files | lines.keys()
        return {}, opened


def _variables(files: Mapping[str, bytes]) -> dict[str, str]:
    """The environment variables that may matter: those of frameworks, and those that the program names."""
    texts = [data for path, data in files.items() if path.endswith(".py")]
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_FAMILIES) or (len(name) > _LEAST_NAME and any(name.encode() in text for text in texts))
    }


def _why_not(outcome: Outcome | None, runs: int) -> str:
    if outcome is None:
        return "it was not run"
    if outcome.timed_out:
        return f"it did not end within {outcome.seconds:.0f} s, and did not crash"
    how = f"ended with exit code {outcome.code}" if outcome.code >= 0 else f"was killed by {signal_name(-outcome.code)}"
    last = outcome.output.rstrip().rsplit("\n", 1)[-1].strip()
    if outcome.code > 0 and "Traceback (most recent call last)" in outcome.output:
        how = f"ended with a Python exception ({last})"
    return f"there is no native crash to reduce: the program {how}" + (f" in each of {runs} runs" if runs > 1 else "")
