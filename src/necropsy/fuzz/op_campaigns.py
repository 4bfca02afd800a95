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
from necropsy.errors import NecropsyError, OptionError
from necropsy.fuzz import campaign_summary, contract, other_ways
from necropsy.fuzz.campaign import Campaign
from necropsy.fuzz.configurations import PLAIN, SANITIZED, SMALL_STACK, GuardWish, rotation, why_unguarded
from necropsy.fuzz.corpus import Corpus
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.findings import Findings
from necropsy.fuzz.opened_target import OpenTarget, SanitizedTarget
from necropsy.fuzz.recorded_calls import Recorded, drawn_calls, undrawn_calls
from necropsy.fuzz.sanitized_build import checked as checked_sources
from necropsy.model import Document, Fuzzing, FuzzTarget, Gap, NotTried, Subject, Tool

if TYPE_CHECKING:
    from typing import Self

BUDGET_S = 60.0
TESTS = "tests/fuzz"
_SANITIZED = 0.4
"""The part of an op's time and calls that is for the build with AddressSanitizer."""
_MOST_FIRST = 80
"""Calls that the campaign on this build begins with: those with different results, and as many other accepted ones."""
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
    slow: bool = False
    """A call that does not end in its time is a finding."""
    sources: tuple[Path, ...] = ()
    """C or C++ files to build the target from with AddressSanitizer."""
    builds: Path | None = None
    """The folder for that."""


def checked(options: Options) -> Options:
    """Return the options with whole paths, since workers run in a folder of their own.

    Raises:
        NecropsyError: there is no such interpreter or source, or not on this system.

    """
    if sys.platform not in {"linux", "win32"}:
        raise NecropsyError("necropsy fuzz works on Linux and Windows only")
    unix = ((options.jobs or 1) > 1, options.ray, options.command, options.sources, options.slow)
    if sys.platform == "win32" and any(unix):
        raise NecropsyError("--jobs, --ray, --source, --slow and a command after -- work on Linux only")
    found = shutil.which(options.python)
    if found is None:
        raise NecropsyError(f"cannot run {options.python}: there is no such program")
    if options.sources and options.ray is not None:
        raise OptionError("--source does not go with --ray: the machines may have other compilers")
    return replace(options, python=str(Path(found).absolute()), sources=checked_sources(options.sources))


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
    findings = Findings(engine, options.python, source, options.tests, watch, forked=opened.forked)
    unguarded = why_unguarded(options.guard, loaded=engine.has_guard) if options.guard != "off" else None
    unguarded = engine.lacks or unguarded
    findings.gaps += [unguarded] if unguarded is not None else []
    turns = rotation(guard=engine.has_guard, stack=options.stack_size, is_python="function" in engine.offered)
    targets: list[FuzzTarget] = []
    not_tried: list[NotTried] = []
    interrupt: KeyboardInterrupt | None = None
    start, opened.start_s = opened.start_s, 0.0
    sanitized = _sanitized(opened, options, findings, interrupts)
    corpus = Corpus(options.corpus) if options.corpus is not None else None
    for number, op in enumerate(ops):
        why = op.why_not()
        if why is not None or interrupts.came:
            not_tried.append(NotTried(rule=op.name, reason=why or "Ctrl-C came before"))
            continue
        # On a busy machine the start may take all of the time: half of it is for calls.
        left = options.budget_s - (min(start, options.budget_s / 2) if number == 0 else 0.0)
        own = sanitized if sanitized is not None and op.name in sanitized.ops else None
        share = _SANITIZED if own is not None else 0.0
        if sanitized is not None and own is None:
            why = f"{', '.join(one.name for one in options.sources)} does not register it"
            findings.gaps.append(Gap(part=f"{op.name} with AddressSanitizer", why=why))
        for_other_ways = 0.0 if op.is_python else other_ways.SHARE
        campaign = Campaign(
            engine,
            op,
            seed=options.seed,
            deadline=time.monotonic() + left * (1 - share) / (1 + for_other_ways),
            most_calls=_part(options.calls, 1 - share),
            configurations=turns if engine.lacks is None else (PLAIN,),
            first=[
                *first.calls.get(op.name, ()),
                *drawn_calls(engine.offered, op),
                *(corpus.recipes(op) if corpus is not None else ()),
            ],
            slow=options.slow,
            watch=lambda one: _look(one, findings),
        )
        second: Campaign | None = None
        try:
            campaign.run()
            if not op.is_python:
                other_ways.make(campaign)
            _finish(campaign, findings, interrupts)
            if own is not None and not interrupts.came:
                second = _again(campaign, own, findings, options, left * share)
                second.run()
                _finish_again(campaign, second, own, findings, interrupts)
            # Last, for an access beyond an array explains a result that changes.
            contract.compare(campaign, findings)
        except KeyboardInterrupt as error:
            interrupt = error
        told = campaign_summary.summary(campaign, recorded=len(first.calls.get(op.name, ())))
        targets.append(told if second is None else campaign_summary.with_sanitized(told, second))
        findings.gaps += campaign_summary.gaps(campaign)
        if corpus is not None:
            for (kind, what), recipe in second.kept.calls.items() if second is not None else ():
                campaign.kept.note(kind, what, recipe)
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


def _look(campaign: Campaign, findings: Findings) -> None:
    """Between two batches: after the first death of a kind, there will be something to diagnose."""
    if findings.forked is not None:
        for guard in {one.configuration.guard is not None for one in campaign.suspects.values()}:
            findings.forked.prepare(guard=guard)
    findings.watch(campaign_summary.progress(campaign, len(findings.found)))


def _part(calls: int | None, share: float) -> int | None:
    return None if calls is None else max(1, round(calls * share))


def _sanitized(
    opened: OpenTarget, options: Options, findings: Findings, interrupts: Interrupts
) -> SanitizedTarget | None:
    """The target from its sources, with AddressSanitizer; None if that is not wanted, or not possible."""
    if not options.sources or options.builds is None:
        return None
    findings.watch(f"building {', '.join(one.name for one in options.sources)} with AddressSanitizer")
    found = opened.open_sanitized(options.sources, options.python, options.builds)
    if isinstance(found, SanitizedTarget):
        found.engine.is_stopped = interrupts.is_stopped
        return found
    if interrupts.came:  # which the compiler ends with as well
        return None
    why = f"{found}; overruns of local arrays and of members of a struct were not looked for"
    findings.gaps.append(Gap(part="--source", why=why))
    return None


def _again(
    campaign: Campaign,
    sanitized: SanitizedTarget,
    findings: Findings,
    options: Options,
    seconds: float,
) -> Campaign:
    """The campaign on the same op in its sanitized build, which begins with what the first one has learned."""
    return Campaign(
        sanitized.engine,
        campaign.op,
        seed=options.seed,
        deadline=time.monotonic() + seconds,
        most_calls=_part(options.calls, _SANITIZED),
        configurations=(SANITIZED,),
        first=[*campaign.accepted[:_MOST_FIRST], *campaign.survivors[:_MOST_FIRST]],
        watch=lambda one: _look(one, findings),
    )


def _finish_again(
    campaign: Campaign, second: Campaign, sanitized: SanitizedTarget, findings: Findings, interrupts: Interrupts
) -> None:
    for suspect in second.suspects.values():
        suspect.execution += campaign.tally.executions
        suspect.seconds += campaign.tally.seconds
    own = replace(findings, engine=sanitized.engine, build=sanitized.build, plainer=findings)
    _finish(second, own, interrupts)


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
    if findings.engine.lacks is not None:
        pass  # it says so
    elif not version:
        gaps.append(Gap(part="landlock", why="this kernel has no Landlock: the calls could write to other folders"))
    elif version < sandbox.TCP_SINCE:
        gaps.append(Gap(part="network", why="Landlock covers TCP from Linux 6.7 on only: the calls had the network"))
    if not findings.engine.is_traced:
        why = "workers cannot be traced here, so that deaths by the same signal count as one unless the op said more"
        gaps.append(Gap(part="ptrace", why=why))
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
