"""``necropsy fuzz``: find the calls of an op that kill the process."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli.numbers import Bytes, Seconds, Whole
from necropsy.cli.output import COLOR, JSON, ProgressLine, also_as_json, deliver, writable

if TYPE_CHECKING:
    from necropsy.fuzz.configurations import GuardWish


class _FuzzCommand(click.Command):
    """Everything after ``--`` is a program of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = tuple(args[at + 1 :])
        if args[at:] == ["--"]:
            raise click.UsageError("there is no command after --", ctx)
        return super().parse_args(ctx, args[:at])


_COMMAND = f"{__name__}.command"


@click.command(cls=_FuzzCommand, short_help="Find the calls of an op that kill the process.")
@click.option("--op", "ops", metavar="NAME", multiple=True, help="Only this op of the library.")
@click.option(
    "--python",
    metavar="EXE",
    default=sys.executable,
    help="Interpreter of the target.  [default: this one]",
)
@click.option(
    "--budget",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    default=60.0,
    help="Time for each op.  [default: 60]",
)
@click.option("--calls", metavar="N", type=Whole(min=1), help="Stop after this many calls of each op.")
@click.option(
    "--seed", metavar="N", type=Whole(min=0), default=0, show_default=True, help="The same seed makes the same calls."
)
@click.option(
    "--guard",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Guard the buffers of part of the calls.",
)
@click.option(
    "--stack-size",
    metavar="SIZE",
    type=Bytes(min=64 << 10),
    default="512K",
    show_default=True,
    help="Make part of the calls on a stack of this size.",
)
@click.option(
    "--slow",
    is_flag=True,
    help="A call that takes over 8 s is a finding.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=Whole(min=1),
    help="Run campaigns in N processes.",
)
@click.option("--ray", metavar="ADDRESS", help="Run them on a Ray cluster (necropsy[ray]).")
@click.option(
    "--source",
    "sources",
    metavar="FILE",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Build this with AddressSanitizer as well.",
)
@click.option(
    "--tests",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("tests/fuzz"),
    show_default=True,
    help="The folder for a test of each finding.",
)
@click.option(
    "--corpus",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Begin with calls kept here, and keep new ones.",
)
@JSON
@COLOR
@click.argument("target", metavar="TARGET [-- COMMAND [ARGS]...]")
@click.pass_context
def fuzz(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    target: str,
    ops: tuple[str, ...],
    python: str,
    budget: float,
    calls: int | None,
    seed: int,
    guard: GuardWish,
    stack_size: int,
    slow: bool,
    jobs: int | None,
    ray: str | None,
    sources: tuple[Path, ...],
    tests: Path,
    corpus: Path | None,
    json_file: Path | None,
) -> None:
    """Call an op or a function with many inputs, valid and boundary, and diagnose each call that kills the process.

    TARGET is a built op library, ops of TensorFlow by name, or a Python function with type hints. The calls are made in
    worker processes that can write to one empty folder only. Each finding becomes a pytest file that fails until it is
    fixed. Ends with 0 if nothing was found, and with 1 otherwise. COMMAND, a program that uses TARGET, runs first, and
    the campaign begins with its calls.

    \b
      necropsy fuzz my_op.so
      necropsy fuzz --budget 5m --python ~/venv/bin/python my_op.so
      necropsy fuzz 'tf.raw_ops.Sparse*'
      necropsy fuzz bindings.py:decode
      necropsy fuzz my_op.so -- python train.py
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import fuzzing
    from necropsy.reports import fuzz as report

    if json_file is not None:
        writable(json_file, "--json")
    options = fuzzing.Options(
        ops=ops,
        python=python,
        budget_s=budget,
        seed=seed,
        tests=tests,
        calls=calls,
        guard=guard,
        stack_size=stack_size,
        slow=slow,
        jobs=jobs,
        ray=ray,
        command=ctx.meta[_COMMAND],
        corpus=corpus,
        sources=sources,
    )
    line = ProgressLine()
    try:
        document, interrupt = fuzzing.fuzzed(target, options, line.tell)
    finally:
        line.wipe()
    with also_as_json(document, json_file):
        deliver(lambda color, width: report.render(document, color=color, width=width), None)
    found = bool(document.fuzz is not None and document.fuzz.findings)
    ctx.exit(128 + signal.SIGINT if interrupt is not None else int(found))
