"""``explain`` and ``demo``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli.reports import FORMAT
from necropsy.cli.telling import show
from necropsy.console import shape
from necropsy.errors import NecropsyError, UnknownCodeError

if TYPE_CHECKING:
    from necropsy.explanation import Explanation
    from necropsy.model import Crash
    from necropsy.rule import Rule


@click.command(
    context_settings={"ignore_unknown_options": True},
    short_help="What an exit code, a log or a debugger's output says of a death.",
)
@FORMAT
@click.option("--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the JSON document.")
@click.argument("inputs", nargs=-1, type=click.UNPROCESSED, metavar="[CODE | TEXT | FILE | -]...")
@click.pass_context
def explain(ctx: click.Context, inputs: tuple[str, ...], form: str, json_file: Path | None) -> None:
    """Explain whatever there is of one death: an exit code in any spelling, a signal, a log, a debugger's output.

    What is given together is taken as evidence of one death. `-` is standard input. The name of a verdict or of an
    error (stack-smash, CUDNN_STATUS_NOT_INITIALIZED) shows its page.

    \b
      necropsy explain 0xC0000409
      necropsy explain 139 train.log
      kubectl logs my-pod --previous | necropsy explain - 137
      necropsy explain "segfault at 0 ip 00007f3a sp 00007ffc error 4 in libfoo.so[7f3a+1000]"
      necropsy explain stack-smash
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import explanation
    from necropsy.console import watched

    asked = bool(inputs)
    if not asked:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("what is to be explained? For example: necropsy explain 139", ctx)
        inputs = ("-",)
    stdin = sys.stdin.buffer if sys.stdin is not None else None
    explained = explanation.explain(inputs, _rules, stdin=stdin, watch=watched)
    if not asked and not explained.inputs.digests[0].bytes:
        raise click.UsageError("what is to be explained? For example: necropsy explain 139", ctx)
    color, width = shape(1)
    if form != "text" and explained.document is not None:
        from necropsy import viewing

        show(viewing.rendered(explained.document, form, color=color, width=width))
    else:
        show(explained.text(color=color, width=width))
    if json_file is not None:
        _write_explanation(explained, json_file)


def _rules() -> tuple[Rule[Crash], ...]:
    from necropsy.rules import crash_rules

    return crash_rules()


def _write_explanation(explained: Explanation, json_file: Path) -> None:
    from necropsy.outcome import write_json

    if explained.document is None:
        raise UnknownCodeError("a verdict's page has no JSON form; give an exit code, a text or a file")
    try:
        write_json(explained.document, json_file)
    except OSError as error:
        raise NecropsyError(f"cannot write {json_file}: {error.strerror or error}") from error


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run the TensorFlow crashes of examples/ and show what is found.",
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def demo(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Run the TensorFlow crashes of examples/ and print a table: what happened, what was found, how long it took."""
    from necropsy import demo as program

    ctx.exit(program.main(list(args)))
