"""The campaigns on the ops of a target, one after the other, and the document on all of them."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from necropsy import __version__, redact, sandbox
from necropsy.document import new_id
from necropsy.errors import NecropsyError
from necropsy.fuzz import campaign_summary, contract
from necropsy.fuzz.campaign import Campaign
from necropsy.fuzz.configurations import SMALL_STACK, GuardWish, rotation, why_unguarded
from necropsy.fuzz.corpus import Corpus
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.findings import Findings
from necropsy.fuzz.opened_target import OpenTarget
from necropsy.fuzz.recorded_calls import Recorded, drawn_calls, undrawn_calls
from necropsy.model import Document, Fuzzing, FuzzTarget, Gap, NotTried, Subject, Tool

if TYPE_CHECKING:
    from typing import Self

BUDGET_S = 60.0
TESTS = "tests/fuzz"
_MOST_DIAGNOSED = 6
"""Kinds of death of one op; one bug that damages the heap can have dozens."""

Watch = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a campaign goes. ``ops``: only these; ``tests``: the folder for tests; ``calls``: the most for each op."""

    ops: tuple[str, ...] = ()
    python: str = sys.executable
    budget_s: float = BUDGET_S
    seed: int = 0
    tests: Path = Path(TESTS)
    calls: int | None = None
    guard: GuardWish = "auto"
    stack_size: int = SMALL_STACK
    command: tuple[str, ...] = ()
    """A program whose calls of the target the campaign begins with."""
    corpus: Path | None = None
    """The folder of calls that earlier campaigns have kept."""
    jobs: int | None = None
    """How many processes run campaigns at the same time; by default one, and one for each CPU of a cluster."""
    ray: str | None = None
    """The address of the Ray cluster on which they run."""


def checked(options: Options) -> Options:
    """Return the options with the path of the interpreter, since workers run in a folder of their own.

    Raises:
        NecropsyError: there is no such interpreter, or this is not Linux.

    """
    if sys.platform != "linux":
        raise NecropsyError("necropsy fuzz works on Linux only so far")
    found = shutil.which(options.python)
    if found is None:
        raise NecropsyError(f"cannot run {options.python}: there is no such program")
    return replace(options, python=str(Path(found).absolute()))


def loaded(target: str, options: Options) -> OpenTarget:
    """Load the target. Raises ``NecropsyError`` if that is not possible."""
    guard = options.guard != "off" and why_unguarded(options.guard) is None
    return OpenTarget(target, options.python, guard=guard)


class Interrupts:
    """The first Ctrl-C lets the campaign end in order, the second one ends it at once."""

    def __init__(self) -> None:
        self.came = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._come)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _come(self, _number: int, _frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True

    def is_stopped(self) -> bool:
        """Whether Ctrl-C came."""
        return self.came


def campaigns(
    opened: OpenTarget,
    ops: Sequence[OpDefinition],
    options: Options,
    interrupts: Interrupts,
    watch: Watch,
    *,
    first: Recorded,
) -> tuple[Document, KeyboardInterrupt | None]:
    """Run a campaign on each op: the document on all, and the interrupt that ended them early.

    ``first``: calls that a program makes of the ops; the campaigns begin with them.

    Raises:
        NecropsyError: a test cannot be written.

    """
    engine = opened.engine
    engine.is_stopped = interrupts.is_stopped
    source = replace(opened.read.source, is_given=engine.offered.get("function", {}).get("has_given", False))
    findings = Findings(engine, options.python, source, options.tests, watch)
    unguarded = why_unguarded(options.guard, loaded=engine.has_guard) if options.guard != "off" else None
    findings.gaps += [unguarded] if unguarded is not None else []
    targets: list[FuzzTarget] = []
    not_tried: list[NotTried] = []
    interrupt: KeyboardInterrupt | None = None
    start, opened.start_s = opened.start_s, 0.0
    corpus = Corpus(options.corpus) if options.corpus is not None else None
    for number, op in enumerate(ops):
        why = op.why_not()
        if why is not None or interrupts.came:
            not_tried.append(NotTried(rule=op.name, reason=why or "Ctrl-C came before"))
            continue
        # On a busy machine the start may take all of the time: half of it is for calls.
        left = options.budget_s - (min(start, options.budget_s / 2) if number == 0 else 0.0)
        campaign = Campaign(
            engine,
            op,
            seed=options.seed,
            deadline=time.monotonic() + left,
            most_calls=options.calls,
            configurations=rotation(guard=engine.has_guard, stack=options.stack_size, is_python=op.is_python),
            first=[
                *first.calls.get(op.name, ()),
                *drawn_calls(engine.offered, op),
                *(corpus.recipes(op) if corpus is not None else ()),
            ],
            watch=lambda one: watch(campaign_summary.progress(one, len(findings.found))),
        )
        try:
            campaign.run()
            _finish(campaign, findings, interrupts)
            contract.compare(campaign, findings)
        except KeyboardInterrupt as error:
            interrupt = error
        targets.append(campaign_summary.summary(campaign, recorded=len(first.calls.get(op.name, ()))))
        findings.gaps += campaign_summary.gaps(campaign)
        if corpus is not None:
            corpus.keep(op, campaign.kept, campaign.unmade)
        if interrupt is not None:
            break
    findings.gaps += [*undrawn_calls(engine.offered), *(corpus.gaps if corpus is not None else ())]
    if interrupts.came and interrupt is None:
        interrupt = KeyboardInterrupt()
    document = _document(
        Subject(kind=opened.read.kind, path=opened.name),
        findings,
        targets,
        not_tried,
        options,
        complete=interrupt is None,
        start=start,
    )
    return document, interrupt


def _finish(campaign: Campaign, findings: Findings, interrupts: Interrupts) -> None:
    """Diagnose what was found; after Ctrl-C without making it simpler first."""
    # Where the heap was found damaged, another death often shows who damaged it.
    suspects = sorted(campaign.suspects.values(), key=lambda one: (one.death.of_the_heap, len(one.configuration.needs)))
    diagnosed = 0
    for suspect in suspects:
        if findings.counts(campaign.op, suspect):
            continue
        if diagnosed == _MOST_DIAGNOSED:
            said = suspect.death.said or suspect.death.signature
            why = f"{_MOST_DIAGNOSED} other kinds of death came before: {suspect.recipe.python[:300]}"
            findings.gaps.append(Gap(part=f"{campaign.op.name}: {said} was not diagnosed", why=why))
            continue
        diagnosed += 1
        if interrupts.came:
            findings.most_runs = 0
        findings.engine.is_stopped = lambda: False
        try:
            findings.add(campaign.op, suspect)
        finally:
            findings.engine.is_stopped = interrupts.is_stopped
    if not interrupts.came:
        findings.add_preconditions(campaign)


def _document(
    subject: Subject,
    findings: Findings,
    targets: Sequence[FuzzTarget],
    not_tried: Sequence[NotTried],
    options: Options,
    *,
    complete: bool,
    start: float,
) -> Document:
    version = sandbox.version()
    gaps = list(findings.gaps)
    if not version:
        gaps.append(Gap(part="landlock", why="this kernel has no Landlock: the calls could write to other folders"))
    elif version < sandbox.TCP_SINCE:
        gaps.append(Gap(part="network", why="Landlock covers TCP from Linux 6.7 on only: the calls had the network"))
    identity = new_id()
    return redact.document(
        Document(
            kind="fuzz",
            id=identity,
            tool=Tool(name="necropsy", version=__version__),
            complete=complete,
            subject=subject,
            reports=tuple(findings.reports),
            not_tried=tuple(not_tried),
            gaps=tuple(gaps),
            fuzz=Fuzzing(
                executions=sum(one.executions for one in targets),
                seconds=round(start + sum(one.seconds for one in targets), 3),
                seed=options.seed,
                findings=findings.of_document(identity),
                targets=tuple(targets),
            ),
        )
    )
