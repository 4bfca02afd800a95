"""``necropsy fuzz``: from an op library to findings, each with a diagnosis and a test."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from necropsy.errors import OptionError
from necropsy.fuzz.cluster import connected
from necropsy.fuzz.configurations import SMALL_STACK, GuardWish
from necropsy.fuzz.jobs import fuzzed_by_jobs
from necropsy.fuzz.op_campaigns import BUDGET_S, TESTS, Interrupts, Options, Watch, campaigns, checked, loaded
from necropsy.fuzz.opened_target import RAW_OPS, chosen
from necropsy.fuzz.recorded_calls import Recorded, recorded
from necropsy.model import Document, FuzzFinding
from necropsy.temporary_folders import TemporaryFolder

__all__ = ["BUDGET_S", "TESTS", "FuzzResult", "Options", "fuzz", "fuzzed"]


@dataclass(frozen=True)
class FuzzResult:
    """What a campaign found. ``document`` is what ``necropsy fuzz --json`` writes."""

    document: Document = field(repr=False)  # pages long
    findings: tuple[FuzzFinding, ...] = ()
    """One for each bug, with its diagnosis, the call and what separates it from calls that survive."""
    executions: int = 0
    """The calls that were made."""
    complete: bool = True
    """False where the campaign was ended early."""
    tests: tuple[Path, ...] = ()
    """The pytest files that were written."""

    @classmethod
    def of(cls, document: Document, folder: Path) -> FuzzResult:
        """``folder``: the one in which the campaign was started. Raises OptionError for a document of another kind."""
        if document.fuzz is None:
            raise OptionError(f"a document of the kind {document.kind} has no campaign")
        findings = document.fuzz.findings
        tests = tuple(dict.fromkeys(folder / one.test for one in findings if one.test is not None))
        return cls(document, findings, document.fuzz.executions, document.complete, tests)


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
    jobs: int | None = None,
    ray: str | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    slow: bool = False,
) -> FuzzResult:
    """Call an op or a function with many inputs, and diagnose each call that kills the process.

    ``target``: the path of a built op library (all its ops), ``"tf.raw_ops.NAME"`` (``*`` allowed), or a Python
    function that reaches native code, ``"path/file.py:name"`` or ``"package.module:name"``. ``ops``: only these ops of
    it. ``python``: the interpreter that has TensorFlow or the module. ``budget``: seconds for each op, without the
    diagnosis. ``seed``: the same seed makes the same calls. ``tests``: the folder for the tests that are written.
    ``calls``: the most calls of each op. ``guard``: make part of the calls with guarded buffers, as `run --guard` does,
    ``"auto"`` where that is possible. ``stack_size``: bytes of the stack that another part of the calls has.
    ``command``: a program that runs first, such as ``["python", "train.py"]``; the calls that it makes of the target
    are recorded, and the campaign begins with them. ``corpus``: a folder in which calls that showed something new are
    kept, for the next campaign to begin with. ``jobs``: how many processes run campaigns at the same time. ``ray``: the
    address of a Ray cluster on which they run. ``sources``: C or C++ files of the target, which are built with
    AddressSanitizer for part of the calls. ``slow``: a call that does not end in eight seconds is a finding, too. On
    Windows only Python functions can be fuzzed.

    Each of the result's ``findings`` has a diagnosis, the call, and its test; ``document`` is the whole document.

    Raises:
        necropsy.errors.InputError: it is not an op library, or TensorFlow cannot load it.
        necropsy.errors.NoInputError: there is no such file or op.
        necropsy.errors.NecropsyError: the interpreter cannot be run, or there is no guard for ``guard="on"``.

    """
    folder = Path.cwd()
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
            jobs=jobs,
            ray=ray,
            sources=tuple(map(Path, sources)),
            slow=slow,
        ),
    )
    if interrupt is not None:
        raise interrupt
    return FuzzResult.of(document, folder)


def fuzzed(
    target: str, options: Options, watch: Watch = lambda _text: None
) -> tuple[Document, KeyboardInterrupt | None]:
    """The document of a campaign, and the interrupt that ended it early.

    Raises ``NecropsyError`` if the target cannot be loaded, or a test cannot be written.
    """
    options = checked(options)
    if options.sources and target.startswith(RAW_OPS):
        raise OptionError("--source goes with an op library or a Python function, not with TensorFlow's own ops")
    if options.sources and options.builds is None:
        builds = TemporaryFolder("necropsy-builds-")
        try:
            return fuzzed(target, replace(options, builds=builds.path), watch)
        finally:
            builds.close()
    if options.ray is not None:
        watch("connecting to the cluster")
        with connected(options.ray) as (slot, cpus):
            return fuzzed_by_jobs(target, options, options.jobs or cpus, watch, slot)
    if options.jobs is not None and options.jobs > 1:
        return fuzzed_by_jobs(target, options, options.jobs, watch)
    watch("loading the target")
    with Interrupts() as interrupts, loaded(target, options) as opened:
        ops = chosen(opened.ops, options.ops, target)
        first = Recorded()
        if options.command:
            watch("")
            first = recorded(options.command, opened.read.wanted, [op for op in ops if op.why_not() is None])
        document, interrupt = campaigns(opened, ops, options, interrupts, watch, first=first)
        return msgspec.structs.replace(document, gaps=(*document.gaps, *first.gaps)), interrupt
