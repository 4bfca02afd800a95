"""``necropsy profile``."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli import start
from necropsy.cli.brevity import BriefCommand
from necropsy.cli.completion import process, program
from necropsy.cli.numbers import Seconds, Whole
from necropsy.cli.output import COLOR, FAILURE, writable
from necropsy.cli.start import RunCommand
from necropsy.cli.suggestions import near
from necropsy.console import say
from necropsy.errors import InputError, NecropsyError
from necropsy.reporting import ReportRequest, Verdict

if TYPE_CHECKING:
    from necropsy.model import Document
    from necropsy.profile.comparison import Conditions

FAILED = 3
"""The exit code where a condition of ``--fail-on`` was met, and the program ended well."""
_GROWTH = re.compile(r"growth=(\d{1,4}(?:\.\d{1,3})?)%")


@click.command(
    cls=BriefCommand,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [--]",
    rare=("--color", "--budget"),
    short_help="Run a program and say how close it came to its limits: stacks, memory, threads.",
)
@click.option(
    "--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the JSON document to FILE."
)
@click.option(
    "--html", "html_file", metavar="FILE", type=click.Path(path_type=Path), help="Write a page with pictures to FILE."
)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=Seconds(min=0.01),
    default=0.1,
    show_default=True,
    help="Time between two looks at the program.",
)
@click.option(
    "--stack-top",
    metavar="N",
    type=Whole(min=1),
    default=10,
    show_default=True,
    help="Show the N threads that came closest to the end of their stacks.",
)
@click.option(
    "--heap",
    metavar="HOW",
    type=click.Choice(["off", "memray", "memray-native", "sample"]),
    default="off",
    show_default=True,
    help="Who allocates: memray; memray-native, with C and C++ functions; or sample, from outside.",
)
@click.option(
    "--attach",
    metavar="PID",
    type=Whole(min=1),
    shell_complete=process,
    help="Look at a running process instead, and at its children.",
)
@click.option(
    "--for",
    "for_s",
    metavar="SECONDS",
    type=Seconds(min=0),
    help="With --attach: how long.  [default: until Ctrl-C, or its end]",
)
@click.option("--limits", is_flag=True, help="Find the smallest stack and memory with which COMMAND works: many runs.")
@click.option(
    "--budget",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="With --limits: begin no run after this time.",
)
@click.option(
    "--compare",
    metavar="OLD",
    type=click.Path(path_type=Path),
    help="Say what became worse since OLD (--json).",
)
@click.option(
    "--fail-on",
    metavar="CONDITION",
    multiple=True,
    help="Exit with 3 on a finding, or on growth=10%.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="Stop the program and its children after this time; the exit code is then 124.",
)
@click.option("--quiet", is_flag=True, help="Print nothing; --json and --html are still written.")
@FAILURE
@COLOR
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]...", shell_complete=program)
@click.pass_context
def profile(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    json_file: Path | None,
    html_file: Path | None,
    interval: float,
    stack_top: int,
    heap: str,
    attach: int | None,
    for_s: float | None,
    compare: Path | None,
    fail_on: tuple[str, ...],
    limits: bool,
    budget: float | None,
    timeout: float | None,
    quiet: bool,
    failure: Path | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as `necropsy run` does, and report how close it came to the ends of its stacks and to its limits.

    The program and its children run unchanged, without a rebuild, and the exit code is the program's own. Stack peaks
    are exact to one page (4 KiB), also those of threads that end early. Memory, threads, file descriptors and mappings
    are recorded over time. If the program dies natively, the report on its death comes first.

    \b
      necropsy profile python train.py
      necropsy profile --json profile.json -- python -m package.train --epochs 2
      necropsy profile --attach 4711 --for 30s
      necropsy profile --limits python train.py
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    if sys.platform not in {"linux", "win32"}:
        raise NecropsyError("`necropsy profile` works on Linux and Windows only so far")
    if sys.platform == "win32" and (heap != "off" or attach is not None):
        raise NecropsyError("--heap and --attach work on Linux only so far")
    for path, option in ((json_file, "--json"), (html_file, "--html")):
        if path is not None:
            writable(path, option)
    if attach is not None:
        _check_attached(ctx, command, timeout, heap, limits=limits)
    elif for_s is not None:
        raise click.UsageError("--for is for --attach PID; a command's time limit is --timeout", ctx)
    elif not command:
        raise click.UsageError("which command? For example: necropsy profile python train.py", ctx)
    if budget is not None and not limits:
        raise click.UsageError("--budget is for --limits", ctx)
    if limits:
        _check_limits(ctx, heap, html_file, compare, fail_on)
        ctx.exit(_limits(command, budget, timeout, json_file, quiet=quiet))
    old = _older(compare) if compare is not None else None
    conditions = _conditions(fail_on, comparing=old is not None) if fail_on else None
    verdict = Verdict() if conditions is not None else None
    request = ReportRequest(
        command=command,
        json_file=json_file,
        html_file=html_file,
        quiet=quiet,
        always=True,
        timeout=timeout,
        profile=True,
        stack_top=stack_top,
        compare=old,
        conditions=conditions,
        verdict=verdict,
    )
    if attach is not None:
        code = _attached(attach, for_s, interval, request, sample=heap == "sample")
    else:
        code = start.run(RunCommand(request, profile_s=interval, heap=heap), failure)
    if not code and verdict is not None:
        if verdict.failed is None:
            raise NecropsyError("the program ended well, but --fail-on was not checked: there is no profile")
        code = FAILED if verdict.failed else 0
    ctx.exit(code)


def _check_attached(
    ctx: click.Context, command: tuple[str, ...], timeout: float | None, heap: str, *, limits: bool
) -> None:
    if command or limits:
        raise click.UsageError("--attach PID looks at a running process: leave the command and --limits out", ctx)
    if timeout is not None:
        raise click.UsageError("--timeout would stop the program; --for says how long --attach looks at it", ctx)
    if heap.startswith("memray"):
        raise click.UsageError(f"--heap {heap} records from the start of a command; a process takes --heap sample", ctx)


def _attached(pid: int, for_s: float | None, interval: float, request: ReportRequest, *, sample: bool) -> int:
    """Ctrl-C ends the looking, and there is a report on what was seen."""
    from necropsy.capture.linux.supervise.attached_profile import AttachedProfile
    from necropsy.reporting import report

    ended: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: ended.append(number))
    try:
        looking = AttachedProfile(pid, interval, sample=sample)
        if not request.quiet:
            until = f" for {for_s:g} s" if for_s is not None else " until Ctrl-C, which does not end it"
            say(f"necropsy: looking at process {pid}{until}")
        seen = looking.follow(for_s, lambda: bool(ended))
    finally:
        signal.signal(signal.SIGINT, before)
    report(request._replace(command=looking.root.command or (f"process {pid}",)), seen)
    return 0


def _older(path: Path) -> Document:
    from necropsy import viewing

    document = viewing.opened(path)
    if document.kind != "profile":
        raise InputError(f"{path} is no profile; `necropsy profile --json FILE` writes one")
    return document


def _conditions(words: Sequence[str], *, comparing: bool) -> Conditions:
    from necropsy.profile.comparison import Conditions
    from necropsy.rules import profile_rules

    rules: list[str] = []
    growth: float | None = None
    known = [rule.name for rule in profile_rules()]
    for word in words:
        found = _GROWTH.fullmatch(word)
        if found is not None:
            growth = float(found[1]) / 100 if growth is None else min(growth, float(found[1]) / 100)
        elif word in known:
            rules.append(word)
        elif word.startswith("growth"):
            raise click.UsageError(f"--fail-on {word}: growth is given in per cent, such as growth=10%")
        else:
            raise click.UsageError(
                f"--fail-on takes growth=10% or one of {', '.join(known)}, not {word!r}{near(word, known)}"
            )
    if growth is not None and not comparing:
        raise click.UsageError("--fail-on growth needs --compare OLD.json, the profile that it is measured against")
    return Conditions(rules=tuple(rules), growth=growth)


def _check_limits(
    ctx: click.Context, heap: str, html_file: Path | None, compare: Path | None, fail_on: tuple[str, ...]
) -> None:
    if heap != "off":
        raise click.UsageError("--limits and --heap do not go together: it looks for limits only", ctx)
    given = {"--html": html_file, "--compare": compare, "--fail-on": fail_on}
    name = next((name for name, value in given.items() if value), None)
    if name is not None:
        raise click.UsageError(f"--limits and {name} do not go together: it looks for limits only", ctx)


def _limits(
    command: tuple[str, ...], budget: float | None, timeout: float | None, json_file: Path | None, *, quiet: bool
) -> int:
    from necropsy import limiting
    from necropsy.cli.confirm import progress
    from necropsy.console import shape, write
    from necropsy.reporting import write_json
    from necropsy.reports import limits

    searched = limiting.smallest_limits(command, budget, timeout, progress() if not quiet else lambda _text: None)
    if json_file is not None:
        write_json(searched.document, json_file)
    if not quiet:
        color, width = shape()
        write("\r\x1b[K" if os.isatty(2) else "")
        shown = limits.render(
            searched.document, searched.runs, same_output=searched.same_output, color=color, width=width
        )
        write(shown)
    return 0 if len(searched.document.smallest_limits or ()) == limiting.LIMITS else 1
