"""``necropsy reduce``: cut a program down until only what it dies of is left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli.brevity import BriefCommand
from necropsy.cli.numbers import Seconds, Whole
from necropsy.cli.output import COLOR, FILE, FORMAT, JSON, ProgressLine, also_as_json, deliver
from necropsy.console import say
from necropsy.reports.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from necropsy.model import Document
    from necropsy.reduce.trials import Count


@click.command(
    cls=BriefCommand,
    rare=("--color", "--jobs", "--keep", "--runs", "--timeout"),
    context_settings={"allow_interspersed_args": False},
    short_help="Cut a program down until only what it dies of is left.",
)
@click.option("--yes", is_flag=True, help="Do not ask before the program is run.")
@click.option(
    "--budget", metavar="SECONDS", type=Seconds(min=0), help="Stop after this time, with the best result so far."
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="Stop each run after this time.  [default: five times as long as the first run, and 2 s]",
)
@click.option(
    "--runs", metavar="N", type=Whole(min=1), default=10, show_default=True, help="Runs to see the program die at all."
)
@click.option("--keep", metavar="NAME", multiple=True, help="A file, function or class that stays.")
@click.option(
    "--jobs",
    metavar="N",
    type=Whole(min=1),
    default=1,
    show_default=True,
    help="Trials at the same time. The result does not depend on it.",
)
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="The new folder for the result.  [default: SCRIPT-reduced]",
)
@JSON
@FORMAT
@FILE
@COLOR
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] PYTHON SCRIPT [ARGS]... | ID")
@click.pass_context
def reduce(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    words: tuple[str, ...],
    yes: bool,
    budget: float | None,
    timeout: float | None,
    runs: int,
    keep: tuple[str, ...],
    jobs: int,
    output: Path | None,
    json_file: Path | None,
    form: str,
    out: Path | None,
) -> None:
    """Cut a program that dies natively down to the statements and the data that its death needs.

    The program is run hundreds of times with parts left out, in a copy of the working directory; what still dies the
    same death is kept. The result is a new folder in which the same command dies as before. ID stands for the command
    of a kept report.

    \b
      necropsy reduce -- python train.py --epochs 2
      necropsy reduce --yes --budget 300 -- python -m package.train
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import reducing
    from necropsy.rules import page

    command, folder, signature = _command(words)
    options = reducing.Options(
        output=output,
        budget_s=float("inf") if budget is None else budget,
        timeout_s=timeout,
        runs=runs,
        keep=keep,
        jobs=jobs,
        signature=signature,
    )
    reducing.check(command, folder, output)
    for file in (json_file, out):
        if file is not None and not file.absolute().parent.is_dir():
            raise click.UsageError(f"there is no folder {file.absolute().parent}, so {file} cannot be written")
    _ask(command, yes=yes)
    line = ProgressLine()
    try:
        document, ended_by = reducing.reduced(command, folder, options, _watcher(line, options.budget_s))
    finally:
        line.wipe()
    with also_as_json(document, json_file):
        if isinstance(ended_by, reducing.NothingToReduceError):
            raise ended_by
        reduction = document.reduction
        if reduction is not None and reduction.output is not None:
            programs = reducing.programs(reduction)
            deliver(lambda color, width: _rendered(document, form, programs, page, color=color, width=width), out)
    ctx.exit(128 + signal.SIGINT if ended_by is not None else 0)


def _rendered(
    document: Document,
    form: str,
    programs: Mapping[str, str],
    pages: Callable[[str], str | None],
    *,
    color: bool,
    width: int,
) -> str:
    from necropsy.reports import reduction, rendered

    if form not in {"text", "markdown", "html"}:
        return rendered(document, form)
    return reduction.render(document, form, programs=programs, color=color, width=width, pages=pages)


def _command(words: tuple[str, ...]) -> tuple[tuple[str, ...], Path, str | None]:
    """The command, its folder, and the required signature; raises ``NecropsyError`` if no report has a command."""
    if len(words) > 1 or "/" in words[0] or words[0].startswith("python"):
        return words, Path.cwd(), None
    from necropsy import proving
    from necropsy.crashed import own_report
    from necropsy.errors import InputError

    document = proving.of_kept(words[0])
    report = own_report(document)
    if document.subject.command is None or report is None:
        raise InputError(f"the report {document.id} is not on the death of a command")
    environment = report.crash.environment
    folder = environment.working_directory if environment is not None else None
    return document.subject.command, Path(folder or Path.cwd()), report.signature


def _ask(command: tuple[str, ...], *, yes: bool) -> None:
    """Raises ``click.UsageError`` if there is no terminal, ``click.Abort`` if the user declines."""
    from necropsy.reducing import isolation

    kept = isolation()
    lines = [
        f"necropsy will run this some hundred times, with more and more of it left out: {clean(' '.join(command))}",
        "It runs in a copy of this folder, with a HOME and a TMPDIR of its own.",
    ]
    if kept.landlock:
        lines.append("The kernel forbids it to write to any other place (Landlock), but not to read, chmod or chown.")
    else:
        lines.append("NOT protected: it can write wherever you can, because this kernel has no Landlock.")
    if kept.network:
        lines.append("The kernel forbids it TCP; other services that it talks to are the real ones.")
    else:
        lines.append("NOT protected: network services that it talks to are the real ones.")
    for line in lines:
        say(line)
    if yes:
        return
    if not (os.isatty(0) and os.isatty(2)):
        raise click.UsageError("there is no terminal to ask at: --yes says that it may run")
    click.confirm("Run it?", default=True, abort=True, err=True)


def _watcher(line: ProgressLine, budget_s: float) -> Callable[[str, int, Count], None]:
    """Progress as a line that is rewritten, or one every ten seconds."""
    began = time.monotonic()

    def watch(stage: str, statements: int, count: Count) -> None:
        now = time.monotonic()
        rate = count.trials / max(now - began, 0.001)
        said = f"{stage}: {statements} statements left, {count.trials} trials, {rate:.1f} a second, {now - began:.0f} s"
        if budget_s < float("inf"):
            said += f", at most {max(0.0, budget_s - (now - began)):.0f} s left"
        line.tell(said)

    return watch
