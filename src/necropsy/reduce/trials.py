"""Decides about candidates: does the program still die the same death?"""

from __future__ import annotations

import ast
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from necropsy.model import Report
from necropsy.reduce.criterion import Death
from necropsy.reduce.expressions import last_name
from necropsy.reduce.lanes import Lanes, Running
from necropsy.reduce.program import Program
from necropsy.reduce.python_source import Source, compiles, source_of
from necropsy.reduce.runner import Outcome, Runner
from necropsy.reduce.unbound_names import unbound_names

_DOUBT = 0.01
"""How probable it may be that a candidate is refused though it dies."""
_MOST_RUNS = 60
_FRESH_RUNS = 2
"""A start takes longer on a busy machine, and the time limit may end it."""


class OutOfBudgetError(Exception):
    """The time is up: what was accepted so far is the result."""


@dataclass
class DifferentDeath:
    """A death that is not the one that is looked for."""

    death: Death
    count: int
    program: Program
    report: Report | None
    path: str | None = None
    """Where it was written."""


@dataclass
class Count:
    """What was done. ``trials``: forks and starts."""

    trials: int = 0
    cached: int = 0
    rejected_without_run: int = 0
    timed_out: int = 0


class Trials:
    """Runs candidates, and remembers what came of them."""

    def __init__(
        self,
        runner: Runner,
        wanted: Death,
        *,
        timeout_s: float,
        start_s: float,
        deadline: float,
        count: Count,
        keep: Collection[str] = (),
    ) -> None:
        """``start_s``: how long the original takes from its start; ``keep``: names of files and definitions."""
        self.runner = runner
        self.wanted = wanted
        self.timeout_s = timeout_s
        self.start_s = start_s
        self.rate = 1.0
        self.deadline = deadline
        self.keep = frozenset(keep)
        self.count = count
        self.others: dict[str, DifferentDeath] = {}
        self.report: Report | None = None
        self._known: dict[bytes, bool] = {}
        self._counting = threading.Lock()
        self.on_trial: Callable[[Program], None] = lambda _: None

    @property
    def quiet_runs(self) -> int:
        """How many runs without the death refuse a candidate."""
        return quiet_runs(self.rate)

    def accepts(self, candidate: Program, current: Program) -> bool:
        """The candidate still dies the same death. ``current`` is what was accepted last.

        Raises OutOfBudgetError where the time is up.
        """
        key = candidate.digest()
        known = self._known.get(key)
        if known is not None:
            self.count.cached += 1
            return known
        if self._is_refused(candidate, current):
            self.count.rejected_without_run += 1
            answer = False
        else:
            answer = any(self.wanted.is_same(outcome.death) for outcome in self._runs(candidate))
        self._known[key] = answer
        return answer

    def started(self, candidate: Program, current: Program, lanes: Lanes) -> Running | None:
        """The runs of a candidate, where it takes any to decide."""
        if candidate.digest() in self._known or self._is_refused(candidate, current):
            return None

        def run(runner: Runner, is_unwanted: Callable[[], bool]) -> list[Outcome]:
            outcomes: list[Outcome] = []
            while len(outcomes) < self.quiet_runs and not is_unwanted() and time.monotonic() <= self.deadline:
                with self._counting:
                    self.count.trials += 1
                outcomes.append(runner.run(candidate, self.timeout_s))
                if self.wanted.is_same(outcomes[-1].death):
                    break
            return outcomes

        return lanes.start(run)

    def decided(self, candidate: Program, current: Program, running: Running | None) -> bool:
        """As ``accepts``, of a candidate that was started. Raises OutOfBudgetError where the time is up."""
        key = candidate.digest()
        if running is None or key in self._known:
            return self.accepts(candidate, current)
        self.on_trial(candidate)
        outcomes = running.future.result()
        for outcome in outcomes:
            self._note(outcome, candidate, is_own=False)
        answer = any(self.wanted.is_same(outcome.death) for outcome in outcomes)
        if not answer and time.monotonic() > self.deadline:
            raise OutOfBudgetError
        self._known[key] = answer
        return answer

    def _is_refused(self, candidate: Program, current: Program) -> bool:
        """It need not be run."""
        return is_hopeless(candidate, current) or lost_names(candidate, current, self.keep)

    def _runs(self, program: Program) -> Iterator[Outcome]:
        for _ in range(self.quiet_runs):
            yield self.one(program)

    def one(self, program: Program) -> Outcome:
        """One run. Raises OutOfBudgetError where the time is up."""
        if time.monotonic() > self.deadline:
            raise OutOfBudgetError
        with self._counting:
            self.count.trials += 1
        self.on_trial(program)
        outcome = self.runner.run(program, self.timeout_s)
        self._note(outcome, program)
        return outcome

    def verified(self, program: Program) -> bool:
        """The program dies the same death in a new interpreter."""
        for _ in range(max(_FRESH_RUNS, self.quiet_runs)):
            with self._counting:
                self.count.trials += 1
            self.on_trial(program)
            outcome = self.runner.fresh(program, self.timeout_s + self.start_s)
            self._note(outcome, program)
            if self.wanted.is_same(outcome.death):
                return True
        return False

    def _note(self, outcome: Outcome, program: Program, *, is_own: bool = True) -> None:
        """``is_own``: of the campaign's own runner, whose folder reports are known to name."""
        if outcome.timed_out:
            self.count.timed_out += 1
        if outcome.death is None:
            return
        if self.wanted.is_same(outcome.death):
            if is_own:
                self.report = outcome.report
            return
        other = self.others.get(outcome.death.signature)
        if other is None:
            self.others[outcome.death.signature] = DifferentDeath(outcome.death, 1, program, outcome.report)
        else:
            other.count += 1

    def measured_rate(self, program: Program, runs: int) -> float:
        """How often the program dies the same death."""
        return sum(self.wanted.is_same(self.one(program).death) for _ in range(runs)) / runs

    def refuse(self, program: Program) -> None:
        """Do not accept it again: it does not die from a fresh start, or too rarely."""
        self._known[program.digest()] = False


def quiet_runs(rate: float) -> int:
    """How many runs without a death say that a program with this rate would have died: with 99 %."""
    if rate >= 1:
        return 1
    return min(_MOST_RUNS, math.ceil(math.log(_DOUBT) / math.log(1 - rate))) if rate > 0 else _MOST_RUNS


def is_hopeless(candidate: Program, current: Program) -> bool:
    """It cannot die the same death, so it need not be run."""
    for path, data in candidate.files.items():
        if not path.endswith(".py") or data == current.files.get(path):
            continue
        if not compiles(data):
            return True
        before, after = source_of(current.files.get(path, b"")), source_of(data)
        if before is None or after is None:
            continue
        if unbound_names(after.tree) - unbound_names(before.tree):
            return True
        if _lost_prototypes(before, after):
            return True
    return False


def lost_names(candidate: Program, current: Program, keep: frozenset[str]) -> bool:
    """A file, function or class that should stay is gone."""
    if not keep:
        return False
    return not (keep & _names(current)) <= _names(candidate)


def _names(program: Program) -> set[str]:
    """The names of files, functions and classes."""
    names = set(program.files)
    for path in program.python_files:
        source = source_of(program.files.get(path, b""))
        for node in ast.walk(source.tree) if source is not None else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
    return names


def _lost_prototypes(before: Source, after: Source) -> bool:
    """A function of ctypes that is still used has no declared types any more: it would die of a cut pointer."""
    lost = Counter(_prototypes(before.tree)) - Counter(_prototypes(after.tree))
    names = {name for name, _ in lost}
    nodes = [node for node in ast.walk(after.tree) if isinstance(node, ast.Attribute)]
    declared = {node.value for node in nodes if node.attr in {"argtypes", "restype"}}
    return bool(names) and any(node.attr in names and node not in declared for node in nodes)


def _prototypes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """``lib.gather.restype = ...`` as ``("gather", "restype")``."""
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and target.attr in {"argtypes", "restype"}:
                name = last_name(target.value)
                if name is not None:
                    yield name, target.attr
