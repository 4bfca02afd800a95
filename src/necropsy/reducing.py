"""``necropsy reduce``: from a command to a folder with a smaller program that dies the same death."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy import __version__, redact, sandbox, serialize
from necropsy.document import new_id
from necropsy.errors import NecropsyError, OptionError
from necropsy.model import (
    Document,
    FileKind,
    Gap,
    Isolation,
    OtherDeath,
    ReducedFile,
    Reduction,
    ReductionStage,
    Report,
    Subject,
    Tool,
)
from necropsy.reduce.campaign import Campaign, NothingToReduceError, Reduced
from necropsy.reduce.command import PythonCommand, module_files, understood
from necropsy.reduce.program import Program
from necropsy.reduce.statements import count_statements
from necropsy.reduce.trials import Count
from necropsy.reduce.workspace import Workspace

__all__ = ["NothingToReduceError", "Options", "reduce"]

Watch = Callable[[str, int, Count], None]
"""Gets the stage, the statements that are left, and what was done."""
_CHECKS = 3
_CHECK = "check"
"""The folder in which the result is checked."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How far a reduction goes. ``output``: the folder for the result; None: named after the script."""

    output: Path | None = None
    budget_s: float = float("inf")
    timeout_s: float | None = None
    """A limit for each run; None: five times as long as the first one took, and 2 s at least."""
    runs: int = 10
    """Runs to see it die in the first place."""
    keep: tuple[str, ...] = ()
    """Names of files, functions and classes that stay."""
    jobs: int = 1
    """How many trials run at the same time."""
    signature: str | None = None
    """The crash that must stay; None: the first one seen."""


def reduce(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    budget: float | None = None,
    timeout: float | None = None,
    runs: int = 10,
    keep: Sequence[str] = (),
    jobs: int = 1,
) -> Document:
    """Cut a Python program that dies natively down to what the death needs.

    ``command``: ``["python", "train.py", ...]``, run in ``cwd``. It is run hundreds of times, in a copy of that folder
    that is the only place it can write to (Linux 5.13 and later). ``output``: the new folder for the result; without
    it, ``SCRIPT-reduced`` in ``cwd``. ``budget``: seconds after which the best result so far is taken. ``timeout``:
    seconds for each run. ``runs``: how often it is run to see it die at all. ``keep``: names of files, functions and
    classes that stay. ``jobs``: how many trials run at the same time.

    Returns the document: ``reduction`` says what became of the program, and where it is.

    Raises:
        necropsy.errors.InputError: there is nothing to reduce, because the program does not die natively, or its
            death does not repeat; or the command is no Python script.
        necropsy.errors.NoInputError: there is no such script.
        necropsy.errors.CommandNotFoundError: there is no such interpreter.
        necropsy.errors.NecropsyError: it cannot be run, or the result cannot be written.

    """
    folder = Path.cwd() if cwd is None else Path(cwd)
    options = Options(
        output=None if output is None else Path(output),
        budget_s=float("inf") if budget is None else budget,
        timeout_s=timeout,
        runs=runs,
        keep=tuple(keep),
        jobs=jobs,
    )
    document, error = reduced([os.fspath(word) for word in command], folder, options)
    if error is not None:
        raise error
    return document


def check(words: Sequence[str], folder: Path, output: Path | None) -> None:
    """What can be said of a command before anything is run.

    Raises NecropsyError where it cannot be reduced, or the result cannot be written there.
    """
    if sys.platform != "linux":
        raise NecropsyError("necropsy reduce works on Linux only so far")
    into = output_folder(understood(words, folder), folder, output)
    there = next(one for one in (into, *into.absolute().parents) if one.exists())
    try:
        Path(tempfile.mkdtemp(prefix=".necropsy-", dir=there)).rmdir()
    except OSError as error:
        why = error.strerror or error
        raise OptionError(f"nothing can be written to {there} ({why}): name a folder by --output") from error


def output_folder(command: PythonCommand, folder: Path, wanted: Path | None) -> Path:
    """The folder for the result; raises ``OptionError`` if it exists and is not empty."""
    if wanted is not None:
        if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
            raise OptionError(f"{wanted} exists and is not an empty folder: name a new one by --output")
        return wanted
    stem = Path(command.script).stem if command.module is None else command.module.rsplit(".", 1)[-1]
    for number in range(1, 10_000):
        found = folder / (f"{stem}-reduced" if number == 1 else f"{stem}-reduced-{number}")
        if not found.exists():
            return found
    raise OptionError("there are too many results of earlier reductions here: name a folder by --output")


def reduced(
    words: Sequence[str],
    folder: Path,
    options: Options,
    watch: Watch = lambda _stage, _statements, _count: None,
) -> tuple[Document, BaseException | None]:
    """Reduce the command and write the result. Returns the document, and what stopped it early.

    That is a ``NothingToReduceError``, without a folder, or a ``KeyboardInterrupt``, with the best program so far.
    Raises ``NecropsyError`` if the command cannot be run or the result cannot be written.
    """
    check(words, folder, options.output)
    command = understood(words, folder)
    output = output_folder(command, folder, options.output)
    began = time.monotonic()
    workspace = Workspace()
    campaign: Campaign | None = None
    try:
        campaign = Campaign(
            command,
            folder,
            workspace,
            budget_s=options.budget_s,
            timeout_s=options.timeout_s,
            runs=options.runs,
            keep=options.keep,
            jobs=options.jobs,
            watch=watch,
        )
        interrupt: BaseException | None = None
        try:
            result = campaign.begin(options.signature)
            try:
                campaign.reduce()
            except KeyboardInterrupt as error:
                interrupt = error
                with contextlib.suppress(KeyboardInterrupt):  # pressed again: the last program that was checked
                    campaign.settle()
        except (NothingToReduceError, KeyboardInterrupt) as error:
            return _nothing(command, campaign, time.monotonic() - began), error
        _write(result, workspace, output)
        try:
            _check(campaign, result, output)
        except KeyboardInterrupt as error:
            interrupt = error
        document = _document(result, output)
        return _relocated(document, {workspace.work: folder, workspace.base / _CHECK: output}), interrupt
    finally:
        if campaign is not None:
            campaign.runner.close()
        workspace.close()


def programs(reduction: Reduction) -> dict[str, str]:
    """The Python files of a result: the script first."""
    if reduction.output is None:
        return {}
    found = {}
    for one in reduction.files:
        if one.kind == "python":
            with contextlib.suppress(OSError):
                found[one.path] = (Path(reduction.output) / one.path).read_text(encoding="utf-8", errors="replace")
    script = next((path for word in reduction.command for path in (word, *module_files(word)) if path in found), None)
    return {**({script: found[script]} if script is not None else {}), **found}


# ---------------------------------------------------------------- the result


def _write(result: Reduced, workspace: Workspace, output: Path) -> None:
    """Write a new folder; raises ``NecropsyError`` if that fails, and keeps the program elsewhere."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".necropsy-", dir=output.parent))
        made.chmod(0o700)
        _write_program(result.program, workspace, made)
        for number, other in enumerate(result.others, 1):
            other.path = f"other-crashes/{number}"
            _write_program(other.program, workspace, made / other.path)
        if output.exists():
            output.rmdir()
        made.rename(output)
    except OSError as error:
        kept = Path(tempfile.mkdtemp(prefix="necropsy-reduced-"))
        with contextlib.suppress(OSError):
            _write_program(result.program, workspace, kept)
        raise NecropsyError(f"cannot write {output}: {error.strerror}; the result is in {kept}") from error


def _write_program(program: Program, workspace: Workspace, folder: Path) -> None:
    for path, data in program.files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    for path, target in workspace.links():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


def _check(campaign: Campaign, result: Reduced, output: Path) -> None:
    """Run a copy of the result; if it does not die the same death, the document says so."""
    copy = campaign.workspace.base / _CHECK
    shutil.copytree(output, copy, symlinks=True, ignore=shutil.ignore_patterns("other-crashes"))
    for _ in range(campaign.trials.quiet_runs if result.rate < 1 else _CHECKS):
        outcome = campaign.runner.fresh(result.program, campaign.trials.timeout_s, in_folder=copy)
        if result.death.is_same(outcome.death) and outcome.report is not None:
            result.last = outcome.report
            return
    result.gaps.append(Gap(part="result", why="a copy of it in another folder did not die the same death"))


def _relocated(document: Document, folders: Mapping[Path, Path]) -> Document:
    """Put the user's folders in place of temporary ones."""
    data = serialize.dumps(document)
    for temporary, own in folders.items():
        data = data.replace(json.dumps(f"{temporary}/")[1:-1].encode(), json.dumps(f"{own.resolve()}/")[1:-1].encode())
    return serialize.loads(data)


def _document(result: Reduced, output: Path) -> Document:
    before, after = result.original, result.program
    trials = result.count.trials
    spent = sum(stage.seconds for stage in result.stages)
    described = Reduction(
        command=tuple(result.command.words(after)),
        signature=result.death.signature,
        statements_before=count_statements(before),
        statements=count_statements(after),
        lines_before=_lines(before),
        lines=_lines(after),
        bytes_before=_bytes(before),
        bytes=_bytes(after),
        files=tuple(_files(before, after)),
        trials=trials,
        cached=result.count.cached,
        rejected_without_run=result.count.rejected_without_run,
        timed_out=result.count.timed_out,
        seconds=round(result.seconds, 3),
        trials_per_second=round(sum(stage.trials for stage in result.stages) / spent, 2) if spent else None,
        stages=tuple(
            ReductionStage(name=one.name, trials=one.trials, statements=one.statements, seconds=round(one.seconds, 3))
            for one in result.stages
        ),
        rate_before=round(result.rate_before, 3),
        rate=round(result.rate, 3),
        runs=result.runs,
        variables=tuple(sorted(after.environment)),
        other_deaths=tuple(
            OtherDeath(signature=one.death.signature, count=one.count, path=one.path) for one in result.others
        ),
        isolation=isolation(),
        finished=result.finished,
        output=str(output),
    )
    return _of(described, result.command.words(before), (result.first, result.last), tuple(result.gaps))


def _nothing(command: PythonCommand, campaign: Campaign, seconds: float) -> Document:
    program = campaign.original
    statements, lines, size = count_statements(program), _lines(program), _bytes(program)
    described = Reduction(
        command=tuple(command.words(program)),
        statements_before=statements,
        statements=statements,
        lines_before=lines,
        lines=lines,
        bytes_before=size,
        bytes=size,
        trials=campaign.count.trials,
        seconds=round(seconds, 3),
        isolation=isolation(),
        finished=False,
    )
    return _of(described, described.command, (), ())


def _of(described: Reduction, command: Sequence[str], reports: tuple[Report, ...], gaps: tuple[Gap, ...]) -> Document:
    return redact.document(
        Document(
            kind="reduction",
            id=new_id(),
            tool=Tool(name="necropsy", version=__version__),
            complete=True,
            subject=Subject(kind="process", command=tuple(command)),
            reports=reports,
            reduction=described,
            gaps=gaps,
        )
    )


def isolation() -> Isolation:
    """What the kernel here can do to keep trials from doing harm."""
    version = sandbox.version()
    gaps = []
    if not version:
        gaps.append(Gap(part="landlock", why="this kernel has no Landlock, or it may not be used here"))
    elif version < sandbox.TCP_SINCE:
        gaps.append(Gap(part="network", why="Landlock covers TCP from Linux 6.7 on only"))
    return Isolation(landlock=version > 0, network=version >= sandbox.TCP_SINCE, gaps=tuple(gaps))


def _files(before: Program, after: Program) -> Iterator[ReducedFile]:
    for path in sorted(after.files):
        data = after.files[path]
        kind: FileKind = "python" if path.endswith(".py") else "other" if b"\0" in data else "data"
        yield ReducedFile(
            path=path,
            kind=kind,
            lines_before=_line_count(before.files.get(path, b"")) if kind != "other" else 0,
            lines=_line_count(data) if kind != "other" else 0,
        )


def _lines(program: Program) -> int:
    return sum(_line_count(data) for data in program.files.values() if b"\0" not in data)


def _bytes(program: Program) -> int:
    return sum(len(data) for data in program.files.values() if b"\0" not in data)


def _line_count(data: bytes) -> int:
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))
