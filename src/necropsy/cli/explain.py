"""``explain``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli import suggestions
from necropsy.cli.completion import file_or_rule
from necropsy.cli.output import JSON, also_as_json, deliver, with_report
from necropsy.errors import InputError

if TYPE_CHECKING:
    from necropsy.explanation import Explanation
    from necropsy.model import Crash
    from necropsy.rule import Rule


@click.command(
    context_settings={"ignore_unknown_options": True},
    short_help="Explain an exit code, a log or a debugger's output.",
)
@with_report
@JSON
@click.option(
    "--line",
    metavar="N",
    type=click.IntRange(1),
    help="In a log with several deaths, explain the one that begins at line N, as `necropsy triage` names it.",
)
@click.argument(
    "inputs", nargs=-1, type=click.UNPROCESSED, metavar="[CODE | TEXT | FILE | -]...", shell_complete=file_or_rule
)
@click.pass_context
def explain(
    ctx: click.Context,
    inputs: tuple[str, ...],
    form: str,
    out: Path | None,
    json_file: Path | None,
    *,
    line: int | None,
    full: bool,
) -> None:
    """Explain whatever there is of one death: an exit code in any spelling, a signal, a log, a debugger's output.

    What is given together is taken as evidence of one death. `-` is standard input. The name of a verdict or of an
    error (stack-smash, CUDNN_STATUS_NOT_INITIALIZED) shows its page.

    \b
      necropsy explain 0xC0000409
      necropsy explain 139 train.log
      kubectl logs my-pod --previous | necropsy explain - 137
      dmesg | grep segfault | necropsy explain -
      necropsy explain "free(): invalid next size (fast)"
      necropsy explain stack-smash
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import explanation
    from necropsy.console import watched

    suggestions.refuse_options(inputs, ctx)
    asked = bool(inputs)
    if not asked:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError(
                "nothing to explain: give an exit code, a message or a log file, such as: necropsy explain 139", ctx
            )
        inputs = ("-",)
    stdin = sys.stdin.buffer if sys.stdin is not None else None
    explained = _at_line(inputs, line, ctx) if line is not None else None
    if explained is None:
        explained = explanation.explain(inputs, _rules, stdin=stdin, watch=watched)
    if not asked and not explained.inputs.digests[0].bytes:
        raise click.UsageError(
            "nothing to explain: give an exit code, a message or a log file, such as: necropsy explain 139", ctx
        )
    if (form != "text" or json_file is not None) and explained.document is None:
        raise InputError(f"{' '.join(inputs)} is a page of text: --format and --json are for codes, texts and files")
    with also_as_json(explained.document if json_file is not None else None, json_file):  # to make it takes time
        explained_as(explained, form, out, full=full)


def _at_line(inputs: tuple[str, ...], line: int, ctx: click.Context) -> Explanation | None:
    """None where the log tells of one death only."""
    from necropsy.explanation import Explanation, log_deaths

    if len(inputs) != 1 or not Path(inputs[0]).is_file():
        raise click.UsageError("--line is for one file: necropsy explain train.log --line 120", ctx)
    found = log_deaths.at_line(Path(inputs[0]), line)
    return Explanation(found, _rules) if found is not None else None


def explained_as(explained: Explanation, form: str, out: Path | None, *, full: bool = False) -> None:
    """Deliver what was explained; a document, with all rules, is made for other forms than text only."""
    document = explained.document if form != "text" else None
    if document is None:
        deliver(lambda color, width: explained.text(color=color, width=width, full=full), out)
        return
    from necropsy.reports import rendered
    from necropsy.rules import page

    deliver(lambda color, width: rendered(document, form, color=color, width=width, pages=page), out)


def _rules() -> tuple[Rule[Crash], ...]:
    from necropsy.rules import crash_rules

    return crash_rules()
