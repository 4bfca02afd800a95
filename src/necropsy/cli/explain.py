"""``explain`` and ``demo``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli import suggestions
from necropsy.cli.completion import examples, file_or_rule
from necropsy.cli.numbers import Whole
from necropsy.cli.output import deliver, with_report, writable
from necropsy.errors import InputError, NecropsyError

if TYPE_CHECKING:
    from necropsy.explanation import Explanation
    from necropsy.model import Crash, Document
    from necropsy.rule import Rule


@click.command(
    context_settings={"ignore_unknown_options": True},
    short_help="Explain an exit code, a log or a debugger's output.",
)
@with_report
@click.option("--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the JSON document.")
@click.argument(
    "inputs", nargs=-1, type=click.UNPROCESSED, metavar="[CODE | TEXT | FILE | -]...", shell_complete=file_or_rule
)
@click.pass_context
def explain(
    ctx: click.Context, inputs: tuple[str, ...], form: str, out: Path | None, json_file: Path | None, *, full: bool
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
    explained = explanation.explain(inputs, _rules, stdin=stdin, watch=watched)
    if not asked and not explained.inputs.digests[0].bytes:
        raise click.UsageError(
            "nothing to explain: give an exit code, a message or a log file, such as: necropsy explain 139", ctx
        )
    if (form != "text" or json_file is not None) and explained.document is None:
        raise InputError(f"{' '.join(inputs)} is a page of text: --format and --json are for codes, texts and files")
    explained_as(explained, form, out, full=full)
    if json_file is not None and explained.document is not None:
        _write_explanation(explained.document, json_file)


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


def _write_explanation(document: Document, json_file: Path) -> None:
    from necropsy.outcome import write_json

    try:
        write_json(document, json_file)
    except OSError as error:
        raise NecropsyError(f"cannot write {json_file}: {error.strerror or error}") from error


@click.command(short_help="Run the TensorFlow crashes of examples/ and show what is found.")
@click.option(
    "--python",
    metavar="PYTHON",
    default=sys.executable,
    help="The interpreter that has TensorFlow.  [default: the one that runs necropsy]",
)
@click.option(
    "--confirm",
    is_flag=True,
    help=(
        "Test the cause of each death: run it again with one change at a time, until the cause is confirmed and a "
        "fix is verified. Compare the result with the catalogue. This takes about ten minutes."
    ),
)
@click.option(
    "--jobs",
    metavar="N",
    type=Whole(min=1),
    default=2,
    show_default=True,
    help="With --confirm: how many to run in parallel.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the result as JSON to FILE too.",
)
@click.option("--list", "only_list", is_flag=True, help="List the examples and exit.")
@with_report
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=examples)
@click.pass_context
def demo(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    names: tuple[str, ...],
    python: str,
    confirm: bool,
    jobs: int,
    json_file: Path | None,
    only_list: bool,
    form: str,
    out: Path | None,
    full: bool,
) -> None:
    """Run the TensorFlow crashes of examples/, or those that are named, and print a table.

    It shows what happened, what was found, and how long the diagnosis took: from the fatal signal to the finished
    report. It ends with 1 where anything is not as examples/catalogue.toml says.
    """
    from necropsy import demo as program

    if json_file is not None:
        writable(json_file, "--json")
    wanted = program.WantedExamples(
        names=names,
        python=python,
        confirm=confirm,
        jobs=min(jobs, os.cpu_count() or 1),
        only_list=only_list,
        form=form,
        to_file=out is not None and str(out) != "-",
        full=full,
    )
    outcome = program.main(wanted)
    said = outcome.said
    if said is not None:
        deliver(lambda _color, _width: said, out)
    if json_file is not None:
        deliver(lambda _color, _width: outcome.rendered("json"), json_file)
    ctx.exit(0 if outcome.is_right else 1)
