"""``--op-source`` for data races: the op built with ThreadSanitizer, which says which two accesses race.

It sees the accesses of code that was built with it, and the locks of pthreads. TensorFlow, Python and OpenMP were not
built with it: the locks and queues by which they keep threads apart are unknown to it, and what it reports of their
memory may be false (ThreadSanitizer's manual, "Non-instrumented code"). So only a race counts whose two stacks both
begin in the op.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from necropsy.confirm.campaign import Lab, Trial
from necropsy.confirm.checkers import LOG
from necropsy.confirm.compiler import Builder
from necropsy.confirm.conclusions import ExperimentResult, proved_instead
from necropsy.confirm.rebuild import STACK
from necropsy.errors import NecropsyError
from necropsy.model import Change, Crash, Evidence, Experiment, Fix

RULE = "data-race"
# The headers must not know of it: protobuf's messages have another layout then than the ones that TensorFlow was built
# with (PROTOBUF_TSAN in its port_def.inc), and the op dies while it is loaded.
FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread", "-U__SANITIZE_THREAD__")
_TRIES = 4
"""Runs: an access that another thread makes too is seen whenever both are made, not only when they meet."""
NAME = "op with ThreadSanitizer"


@dataclass(frozen=True)
class RaceBuild:
    """The op of the crash, built so that races in it are seen. ``title``: of the rule on data races."""

    rule: str
    builder: Builder
    title: str
    shares: frozenset[str] = frozenset({RULE})

    @property
    def text(self) -> str:
        """What it changes, in words."""
        return f"{self.builder.library.name} built again from {self.builder.source.name} with ThreadSanitizer"

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Run the build a few times, until it tells of a race in the op."""
        try:
            change = _change(self.builder, self.builder.build(FLAGS))
        except NecropsyError as error:
            return ExperimentResult((self._row(0, 0, str(error)),))
        runs = crashed = 0
        note = None
        # What dies every time does the same every time: one run shows it.
        sure = lab.is_known and lab.baseline.crashed == len(lab.baseline.outcomes) and self.rule != RULE
        for _ in range(1 if sure else _TRIES):
            trial = lab.run(NAME, change)
            if trial is None:
                break
            runs, crashed = runs + 1, crashed + (trial.outcome in {"same", "another"})
            if trial.outcome == "cannot-run" or not trial.measures.get("checked"):
                why = trial.why or "ThreadSanitizer did not start"
                return ExperimentResult((self._row(runs, crashed, f"could not be run: {why}"),))
            if trial.rule == RULE:
                return self._seen(trial, runs, crashed)
            note = trial.why or note
        if not runs:
            return ExperimentResult((self._row(0, 0, "not run: the budget was spent"),))
        return ExperimentResult((self._row(runs, crashed, "no race between two accesses of the op was seen", note),))

    def _seen(self, trial: Trial, runs: int, crashed: int) -> ExperimentResult:
        row = self._row(runs, crashed, f"a race: {trial.where}", conclusive=True)
        claim = "ThreadSanitizer saw two threads access the same memory, with no lock between them"
        evidence = (Evidence(claim=claim, seen=trial.where or "", where="the run of the op built with it"),)
        if self.rule == RULE:
            return ExperimentResult((row,), {RULE: True}, culprit=trial.culprit, evidence=evidence)
        advice = "Let both places take the same lock (std::mutex) around what they share, or make it a std::atomic"
        fixes = (Fix(text=f"{advice}: {trial.where}." if trial.where else f"{advice}."),)
        found = proved_instead(RULE, self.title, claim, row, trial.culprit, fixes=fixes)
        return ExperimentResult((row,), {RULE: True}, evidence=evidence, instead=found)

    def _row(
        self, runs: int, crashed: int, outcome: str, means: str | None = None, *, conclusive: bool | None = None
    ) -> Experiment:
        return Experiment(
            name=NAME,
            change="the op built with ThreadSanitizer",
            predicts="it tells which two accesses race, where there are two",
            runs=runs,
            crashed=crashed,
            outcome=outcome,
            rule=RULE,
            means=means,
            conclusive=conclusive,
        )


def study(rule: str, builder: Builder, crash: Crash, title: str) -> RaceBuild | None:
    """The study of an op that may race; None where the stack was full, or only one thread was there."""
    if rule in STACK or (crash.threads is not None and len(crash.threads) < 2):
        return None
    return RaceBuild(rule, builder, title)


def _change(builder: Builder, built: Path) -> Change:
    runtime = subprocess.run(["g++", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=False)
    library = runtime.stdout.strip()
    if not Path(library).is_absolute():
        raise NecropsyError("could not be run: the compiler has no library of ThreadSanitizer")
    options = f"log_path={LOG} exitcode=0 halt_on_error=0 ignore_noninstrumented_modules=1 history_size=4 verbosity=1"
    return Change(
        library=(str(builder.library), str(built)),
        preload=(library, "libstdc++.so.6"),
        environment={"TSAN_OPTIONS": options},
        checker="thread-sanitizer",
    )
