"""The cause of each example's death put to the test, and held against the catalogue (``--confirm``).

Each example that dies is run by ``necropsy run --confirm``, as a user would run it, and the document that this writes
is judged: is the true cause confirmed, does the program live under a fix, is every rival that can be tested refuted?
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from demo.examples import Example, Op, Proof
from demo.workshop import Workshop
from necropsy import serialize
from necropsy.confirm import subreaper
from necropsy.confirm.tally import UNCHANGED
from necropsy.errors import NecropsyError
from necropsy.model import Diagnosis, Document, Experiment, Fix, Report

TIME_LIMIT_S = 900
"""Seconds that one campaign may take."""


@dataclass(frozen=True)
class Campaigned:
    """What came of one campaign: the death that was looked into, and what all its runs took."""

    report: Report | None
    seconds: float
    cpu_s: float
    """CPU time of everything that was started, in seconds."""
    runs: int = 0
    """How often the program was run, the first time included."""
    stderr: str = ""
    document: Document | None = None

    @property
    def verdict(self) -> Diagnosis | None:
        """The verdict, with what the experiments say of it."""
        return self.report.verdict if self.report is not None else None

    @property
    def rivals(self) -> tuple[Diagnosis, ...]:
        """The weaker rivals of the verdict."""
        return self.report.alternatives if self.report is not None else ()

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """Every experiment once, the verdict's first; the unchanged program is one."""
        found: dict[str, Experiment] = {}
        for diagnosis in (*((self.verdict,) if self.verdict else ()), *self.rivals):
            for one in diagnosis.experiments:
                # What two rules propose alike was run once, and stands with each of them.
                found.setdefault(one.name, one)
        return tuple(found.values())

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The advice that was tried, and under which it lived."""
        return tuple(fix for fix in (self.verdict.fixes if self.verdict else ()) if fix.verified)


def faults(proof: Proof, found: Campaigned, rules: Sequence[str]) -> Iterator[str]:
    """Everything that is not as the catalogue says, one sentence each. ``rules``: what the true cause is called."""
    verdict = found.verdict
    if verdict is None:
        last = (found.stderr.strip().splitlines() or ["no word was said"])[-1]
        yield f"nothing was put to the test: {last}"
        return
    if verdict.rule not in rules:
        yield f"the verdict is {verdict.rule}, not {' or '.join(rules)}"
    if verdict.status != "confirmed":
        yield f"{verdict.rule} is {verdict.status}, not confirmed"
    told = [f"{fix.text} {fix.command or ''}" for fix in found.fixes]
    if proof.fix is not None and not any(proof.fix in one for one in told):
        yield f"no fix with the words {proof.fix!r} was verified" + (f", but: {'; '.join(told)}" if told else "")
    if proof.fix is None and told:
        yield f"the catalogue says that no fix can be tried, and yet one was verified: {told[0]}"
    for rival in found.rivals:
        tested = any(one.rule == rival.rule or one.name != UNCHANGED for one in rival.experiments)
        if rival.status == "confirmed":
            yield f"{rival.rule} is also confirmed"
        elif tested and rival.status != "refuted" and rival.rule not in proof.undecided:
            yield f"{rival.rule}, a rival that can be tested, is {rival.status}"
    seen = {rival.rule for rival in found.rivals}
    yield from (f"{rule} no longer competes with it" for rule in proof.undecided if rule not in seen)


class ExampleProver:
    """Runs the campaigns of examples in ``workshop``, ``jobs`` at a time; ``ops`` are those of the catalogue.

    ``sources``: ops are built again from their sources too.
    """

    def __init__(self, workshop: Workshop, ops: dict[str, Op], jobs: int = 1, *, sources: bool = True) -> None:
        self.workshop, self.ops, self.jobs, self.sources = workshop, ops, jobs, sources
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = threading.Event()

    def command(self, example: Example, proof: Proof, document: Path) -> list[str]:
        """The words of ``necropsy run --confirm`` for one example."""
        words = [sys.executable, "-m", "necropsy", "run", "--quiet", "--confirm", "--yes", "--json", str(document)]
        sources = self.workshop.examples / "ops"
        if example.build and self.sources:
            words += ["--op-source", str(sources / self.ops[example.build].source)]
        if proof.corrected and self.sources:
            words += ["--op-fixed", str(sources / "corrected" / proof.corrected)]
        return [*words, *proof.options, "--", *self.workshop.command(example, self.ops)]

    def campaign(self, example: Example, proof: Proof) -> Campaigned:
        """One example's campaign, from its first run to its last.

        Raises:
            NecropsyError: its op cannot be built.

        """
        place = self.workshop.runs / "confirm" / example.name
        # What an earlier demo has found would be taken up again.
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        words = self.command(example, proof, place / "report.json")
        environment = {**os.environ, "NECROPSY_OUTPUT": str(place / "reports")}
        environment.setdefault("NECROPSY_BUILDS", str(self.workshop.cache / "builds"))
        return self.watched(words, place, example.stack, environment)

    def all(
        self, examples: Sequence[Example], progress: Callable[[str], None]
    ) -> Iterator[tuple[Example, Campaigned | NecropsyError]]:
        """The campaigns of ``examples`` in their order. Where it is left early, it ends them."""
        pool = ThreadPoolExecutor(max_workers=self.jobs)
        try:
            pending = [(example, pool.submit(self._one, example)) for example in examples]
            for number, (example, job) in enumerate(pending, 1):
                progress(f"proving {number} of {len(examples)}: {example.name}, {example.about}")
                yield example, job.result()
        finally:
            self._stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(self._running):
                process.terminate()
            pool.shutdown()
            self._stopped.clear()

    def _one(self, example: Example) -> Campaigned | NecropsyError:
        try:
            return self.campaign(example, example.proof or Proof())
        except NecropsyError as error:
            return error

    def watched(self, words: Sequence[str], place: Path, stack: int, environment: dict[str, str]) -> Campaigned:
        """Run ``words``, which write ``report.json`` into ``place``, under a soft RLIMIT_STACK of ``stack`` bytes."""
        limits = f'ulimit -S -c 0; ulimit -S -s {stack // 1024}; exec "$@"'
        kept = [sys.executable, "-I", "-S", subreaper.__file__, str(os.getpid()), "/bin/sh", "-c", limits, "sh", *words]
        began = time.monotonic()
        with (place / "stderr.txt").open("wb") as stderr, (place / "stdout.txt").open("wb") as stdout:
            process = subprocess.Popen(
                kept, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=place, env=environment
            )
            self._running.add(process)
            if self._stopped.is_set():
                process.terminate()
            try:
                cpu_s = _ended(process, began + TIME_LIMIT_S)
            finally:
                self._running.discard(process)
        report = place / "report.json"
        document = serialize.loads(report.read_bytes()) if report.exists() else None
        said = (place / "stderr.txt").read_text(errors="replace")
        return Campaigned(_tested(document), time.monotonic() - began, cpu_s, 1 + _runs(place), said, document)


def _ended(process: subprocess.Popen[bytes], deadline: float) -> float:
    """Wait for it, ending it at the deadline; the CPU time in seconds of it and of what it waited for."""
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_utime + usage.ru_stime
        if time.monotonic() > deadline:
            process.terminate()
        time.sleep(0.05)


def _runs(place: Path) -> int:
    """The runs that a campaign noted, one on each line below the first (see ``confirm.journal``)."""
    journals = place.glob("reports/campaigns/*/journal.jsonl")
    return sum(max(0, len(path.read_bytes().splitlines()) - 1) for path in journals)


def _tested(document: Document | None) -> Report | None:
    """The death that was put to the test: the one with experiments, or else the first."""
    reports = document.reports if document is not None else ()
    tested = (one for one in reports if one.verdict is not None and one.verdict.experiments)
    return next(tested, next(iter(reports), None))


class ProofRow(msgspec.Struct, frozen=True, kw_only=True):
    """One example's campaign, as JSON has it."""

    example: str
    rule: str | None
    status: str | None
    runs: int
    seconds: float
    cpu_s: float
    fixes: tuple[Fix, ...]
    no_fix: str | None
    rivals: dict[str, str]
    experiments: tuple[Experiment, ...]
    faults: tuple[str, ...]


def row(example: Example, found: Campaigned) -> ProofRow:
    """What is shown of one campaign."""
    proof, verdict = example.proof or Proof(), found.verdict
    return ProofRow(
        example=example.name,
        rule=verdict.rule if verdict else None,
        status=verdict.status if verdict else None,
        runs=found.runs,
        seconds=round(found.seconds, 1),
        cpu_s=round(found.cpu_s, 1),
        fixes=found.fixes,
        no_fix=proof.no_fix,
        rivals={rival.rule: rival.status for rival in found.rivals},
        experiments=found.experiments,
        faults=tuple(faults(proof, found, example.rule)),
    )
