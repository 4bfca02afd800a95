"""``necropsy fuzz``: from an op library to findings, each with a diagnosis and a test."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from necropsy import __version__, redact, sandbox
from necropsy.document import new_id
from necropsy.errors import InputError, NecropsyError, NoInputError
from necropsy.fuzz import campaign_summary, contract
from necropsy.fuzz.campaign import Campaign
from necropsy.fuzz.configurations import SMALL_STACK, GuardWish, rotation, why_unguarded
from necropsy.fuzz.corpus import Corpus
from necropsy.fuzz.definitions import OpDefinition, definition, python_function
from necropsy.fuzz.engine import Engine, RefusedTargetError
from necropsy.fuzz.findings import Findings
from necropsy.fuzz.recorded_calls import Recorded, recorded
from necropsy.fuzz.test_writer import Source
from necropsy.model import Document, Fuzzing, FuzzTarget, Gap, NotTried, Subject, SubjectKind, Tool

if TYPE_CHECKING:
    from typing import Self

__all__ = ["BUDGET_S", "TESTS", "Options", "fuzz", "fuzzed"]

BUDGET_S = 60.0
TESTS = "tests/fuzz"
_RAW_OPS = "tf.raw_ops."
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


def fuzz(
    target: str | os.PathLike[str],
    *,
    ops: Sequence[str] = (),
    python: str | os.PathLike[str] | None = None,
    budget: float = BUDGET_S,
    seed: int = 0,
    tests: str | os.PathLike[str] = TESTS,
    calls: int | None = None,
    guard: GuardWish = "auto",
    stack_size: int = SMALL_STACK,
    command: Sequence[str] = (),
    corpus: str | os.PathLike[str] | None = None,
) -> Document:
    """Call an op or a function with many inputs, and diagnose each call that kills the process.

    ``target``: the path of a built op library (all its ops), ``"tf.raw_ops.NAME"`` (``*`` allowed), or a Python
    function that reaches native code, ``"path/file.py:name"`` or ``"package.module:name"``. ``ops``: only these ops of
    it. ``python``: the interpreter that has TensorFlow or the module. ``budget``: seconds for each op, without the
    diagnosis. ``seed``: the same seed makes the same calls. ``tests``: the folder for the tests that are written.
    ``calls``: the most calls of each op. ``guard``: make part of the calls with guarded buffers, as `run --guard` does,
    ``"auto"`` where that is possible. ``stack_size``: bytes of the stack that another part of the calls has.
    ``command``: a program that runs first, such as ``["python", "train.py"]``; the calls that it makes of the target
    are recorded, and the campaign begins with them. ``corpus``: a folder in which calls that showed something new are
    kept, for the next campaign to begin with. Linux only.

    Returns the document: ``document.fuzz.findings`` has a diagnosis, the call and its test for each bug.

    Raises:
        necropsy.errors.InputError: it is not an op library, or TensorFlow cannot load it.
        necropsy.errors.NoInputError: there is no such file or op.
        necropsy.errors.NecropsyError: the interpreter cannot be run, or there is no guard for ``guard="on"``.

    """
    document, interrupt = fuzzed(
        os.fspath(target),
        Options(
            ops=tuple(ops),
            python=sys.executable if python is None else os.fspath(python),
            budget_s=budget,
            seed=seed,
            tests=Path(tests),
            calls=calls,
            guard=guard,
            stack_size=stack_size,
            command=tuple(command),
            corpus=None if corpus is None else Path(corpus),
        ),
    )
    if interrupt is not None:
        raise interrupt
    return document


def fuzzed(
    target: str, options: Options, watch: Watch = lambda _text: None
) -> tuple[Document, KeyboardInterrupt | None]:
    """The document of a campaign, and the interrupt that ended it early.

    Raises ``NecropsyError`` if the target cannot be loaded, or a test cannot be written.
    """
    if sys.platform != "linux":
        raise NecropsyError("necropsy fuzz works on Linux only so far")
    read = _target(target)
    found = shutil.which(options.python)
    if found is None:
        raise NecropsyError(f"cannot run {options.python}: there is no such program")
    options = replace(options, python=str(Path(found).absolute()))  # workers run in a folder of their own
    unguarded = why_unguarded(options.guard)
    began = time.monotonic()
    watch("loading the target")
    with _Interrupts() as interrupts:
        engine = _engine(target, read, options, guard=options.guard != "off" and unguarded is None)
        engine.is_stopped = interrupts.is_stopped
        try:
            return _campaigns(target, read, engine, options, began, interrupts, watch)
        finally:
            engine.close()


class _Interrupts:
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
        return self.came


@dataclass(frozen=True)
class _Target:
    """What is called: for the fork server, for the tests, and in words."""

    wanted: Mapping[str, str]
    source: Source
    kind: SubjectKind


def _target(target: str) -> _Target:
    """Read the target.

    Raises:
        NoInputError: there is no such file.
        InputError: it is not a library.

    """
    if target.startswith(_RAW_OPS):
        return _Target({"pattern": target.removeprefix(_RAW_OPS)}, Source(), "binary")
    path = Path(target)
    module, colon, function = target.rpartition(":")
    if colon and function.isidentifier() and not path.exists():
        if module.endswith(".py"):
            if not Path(module).is_file():
                raise NoInputError(f"there is no file {module}")
            module = str(Path(module).resolve())
        wanted = {"module": module, "function": function, "folder": str(Path.cwd())}
        return _Target(wanted, Source(module=module, function=function), "source")
    if not path.is_file():
        kinds = "the path of a built op library, tf.raw_ops.NAME, FILE.py:FUNCTION or MODULE:FUNCTION"
        raise NoInputError(f"there is no file {target}: give {kinds}")
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise NoInputError(f"cannot read {target}: {error.strerror}") from error
    if head != b"\x7fELF":
        raise InputError(f"{target} is not a built op library (an ELF file)")
    return _Target({"library": str(path.resolve())}, Source(library=path.resolve()), "binary")


def _engine(target: str, read: _Target, options: Options, *, guard: bool) -> Engine:
    try:
        return Engine(options.python, read.wanted, guard=guard)
    except RefusedTargetError as error:
        library = read.source.library
        if read.source.function is not None:
            if error.what == "module":
                raise NoInputError(f"{target}: {error}") from error
            raise InputError(f"{target} cannot be imported: {error}") from error
        if error.what == "framework":
            failed = NecropsyError(f"TensorFlow cannot be imported by {options.python}: {error}")
            failed.hint = "name the interpreter that has it with --python"
            raise failed from error
        if error.what == "op":
            raise (NoInputError(str(error)) if library is None else InputError(f"{target} registers no op")) from error
        why = str(error).replace(f"{library}: ", "")
        bad = InputError(f"{target} is not an op library that TensorFlow can load: {why}")
        bad.hint = f"`necropsy doctor --op {target}` says more"
        raise bad from error


def _definitions(engine: Engine) -> list[OpDefinition]:
    """Raises ``InputError`` if no call of a function can be made up."""
    if "function" in engine.offered:
        return [python_function(engine.offered["function"])]
    return [definition(one) for one in engine.offered["ops"]]


def _campaigns(  # noqa: PLR0917 - one place calls it
    target: str,
    read: _Target,
    engine: Engine,
    options: Options,
    began: float,
    interrupts: _Interrupts,
    watch: Watch,
) -> tuple[Document, KeyboardInterrupt | None]:
    ops = _chosen(_definitions(engine), options.ops, target)
    findings = Findings(engine, options.python, read.source, options.tests, watch)
    unguarded = why_unguarded(options.guard, loaded=engine.has_guard) if options.guard != "off" else None
    findings.gaps += [unguarded] if unguarded is not None else []
    targets: list[FuzzTarget] = []
    not_tried: list[NotTried] = []
    interrupt: KeyboardInterrupt | None = None
    start = time.monotonic() - began
    corpus = Corpus(options.corpus) if options.corpus is not None else None
    first = Recorded()
    if options.command:
        watch("")
        first = recorded(options.command, read.wanted, [op for op in ops if op.why_not() is None])
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
            first=[*first.calls.get(op.name, ()), *(corpus.recipes(op) if corpus is not None else ())],
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
    findings.gaps += [*first.gaps, *(corpus.gaps if corpus is not None else ())]
    if interrupts.came and interrupt is None:
        interrupt = KeyboardInterrupt()
    document = _document(
        Subject(kind=read.kind, path=target),
        findings,
        targets,
        not_tried,
        options,
        complete=interrupt is None,
        start=start,
    )
    return document, interrupt


def _finish(campaign: Campaign, findings: Findings, interrupts: _Interrupts) -> None:
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


def _chosen(ops: Sequence[OpDefinition], names: Sequence[str], target: str) -> list[OpDefinition]:
    """The ops with these names, in any spelling; all where none is named. Raises ``NoInputError``."""
    if not names:
        return list(ops)

    def plain(name: str) -> str:
        return name.replace("_", "").lower()

    chosen = []
    for name in names:
        found = [one for one in ops if plain(one.name) == plain(name)]
        if not found:
            listed = ", ".join(one.name for one in ops[:8]) + (", ..." if len(ops) > 8 else "")
            raise NoInputError(f"{target} has no op {name}; it has {listed}")
        chosen += [one for one in found if one not in chosen]
    return chosen


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
