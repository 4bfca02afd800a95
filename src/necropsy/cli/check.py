"""``check``: what will crash in a custom op's library or a Python file, before it happens."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli.brevity import BriefCommand
from necropsy.cli.numbers import Bytes, Whole
from necropsy.cli.output import COLOR, FILE, JSON, ProgressLine, also_as_json, deliver
from necropsy.cli.suggestions import near
from necropsy.console import SLOW_S
from necropsy.reports import FORMATS, formats

if TYPE_CHECKING:
    from necropsy.checking import Asked


@click.command(
    cls=BriefCommand,
    rare=("--color", "--frames", "--jobs", "--top"),
    short_help="Check a custom op or a Python file before it crashes.",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--stack-size", type=Bytes(min=1), default="8M", show_default=True, metavar="SIZE", help="The stack to fit into."
)
@click.option("--tensorflow", metavar="PYTHON", help="An interpreter that has TensorFlow.")
@click.option("--prove", is_flag=True, help="Call the ops: does each finding come true?")
@click.option("--select", metavar="RULE,...", help="Only these rules.")
@click.option("--ignore", metavar="RULE,...", help="All rules but these.")
@click.option("--fix", is_flag=True, help="Repair C++ sources; report what remains.")
@click.option("--diff", is_flag=True, help="Print the repairs as a diff; change nothing.")
@click.option("--frames", is_flag=True, help="Only list the largest stack frames.")
@click.option("--top", type=Whole(min=1), default=10, show_default=True, metavar="N", help="How many frames to list.")
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS, *formats.names("audit")]),
    default="text",
    show_default=True,
    help="sarif: for code scanning; github: annotations.",
)
@FILE
@COLOR
@click.option("--jobs", type=Whole(min=1), metavar="N", help="Processes.  [default: one for each processor]")
@click.option("--sarif", "sarif_file", metavar="FILE", type=click.Path(path_type=Path), help="Write SARIF 2.1.0.")
@JSON
@click.pass_context
def check(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    paths: tuple[str, ...],
    stack_size: int,
    tensorflow: str | None,
    prove: bool,
    select: str | None,
    ignore: str | None,
    fix: bool,
    diff: bool,
    frames: bool,
    top: int,
    form: str,
    out: Path | None,
    jobs: int | None,
    sarif_file: Path | None,
    json_file: Path | None,
) -> None:
    """Find what will crash in custom ops, their sources and built libraries, and in Python files, without running them.

    PATH is a C++ source, a library (.so, .pyd, .dll), a Python file, or a folder. Sources are read with the headers
    that they include in quotes; no compiler is needed. With --tensorflow, check also finds what does not fit that
    TensorFlow. --prove builds the ops that have findings, makes the calls that they predict in child processes, and
    marks each finding as confirmed, refuted or inconclusive.

    The exit code is 0 where nothing is wrong (notes are allowed), and 1 after an error or a warning.

    \b
      necropsy check op.cc op.so
      necropsy check --fix op.cc                   repair what can be repaired
      necropsy check train.py ops/
      necropsy check --stack-size 2M build/        as for Windows' python.exe
      necropsy check --tensorflow python op.so     does it fit TensorFlow?
      necropsy check --tensorflow python --prove op.cc    call the op
      necropsy check --frames --top 20 op.so       list the largest frames
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy.checking import Asked, checked, missing
    from necropsy.errors import NoInputError
    from necropsy.reports import rendered
    from necropsy.rules import page

    if prove and tensorflow is None:
        raise click.UsageError("--prove needs --tensorflow PYTHON, an interpreter that has TensorFlow")
    asked = Asked(
        paths=paths,
        stack=stack_size,
        tensorflow=tensorflow,
        select=_rules(select),
        ignore=_rules(ignore),
        top=top,
        frames_only=frames,
        jobs=jobs,
        cache=_cache("check"),
        prove=prove,
        builds=_cache("prove"),
    )
    if fix and diff:
        raise click.UsageError("--fix changes the files and --diff only shows how: give one of them")
    line, begun = ProgressLine(), time.monotonic()

    def watch(number: int, count: int, path: str) -> None:
        if time.monotonic() - begun >= SLOW_S:
            line.show(f"{number} of {count} files: {path}")

    if fix or diff:
        _repair(asked, out, line, watch, write=fix)
    try:
        document = checked(asked, watch if line.wanted else None, line.show if line.wanted else None)
    finally:
        line.wipe()
    with also_as_json(document, json_file):
        if not diff:
            deliver(lambda color, width: rendered(document, form, color=color, width=width, pages=page), out)
        if sarif_file is not None:
            deliver(lambda _color, _width: rendered(document, "sarif", pages=page), sarif_file)
    absent = missing(asked)
    if absent:
        raise NoInputError(f"there is no file {absent[0]}; the other paths were checked")
    ctx.exit(1 if any(one.severity != "note" and one.status != "refuted" for one in document.findings) else 0)


def _repair(
    asked: Asked, out: Path | None, line: ProgressLine, watch: Callable[[int, int, str], None], *, write: bool
) -> None:
    """Make or print repairs, with a summary on stderr; raises ``NecropsyError`` if the diff cannot be written."""
    from necropsy.checking import repairs
    from necropsy.errors import NecropsyError
    from necropsy.reports.terminal import clean

    try:
        result = repairs(asked, watch if line.wanted else None, write=write)
    finally:
        line.wipe()
    for path, why in result.failed:
        click.echo(clean(f"necropsy: cannot repair {path}: {why}"), err=True)
    for path, number, told in result.made:
        click.echo(clean(f"{path}:{number}: {told}"), err=True)
    if write:
        return
    try:
        if out is not None:
            out.write_bytes(result.diff())
        elif sys.stdout.isatty():  # patch(1) reads it elsewhere, and needs it as it is
            click.echo(
                "".join(f"{clean(row)}\n" for row in result.diff().decode("utf-8", "replace").splitlines()), nl=False
            )
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(result.diff())
    except OSError as error:
        raise NecropsyError(f"cannot write {out or 'stdout'}: {error.strerror or error}") from error


def _cache(name: str) -> Path | None:
    """A cache folder for readings or builds; None if the system has none."""
    import platformdirs

    try:
        return platformdirs.user_cache_path("necropsy", appauthor=False) / name
    except (OSError, RuntimeError):
        return None


def _rules(text: str | None) -> frozenset[str]:
    """Split at commas; raises ``click.UsageError`` for an unknown rule."""
    from necropsy.rules import audit_rules

    wanted = [each for each in re.split(r"[,\s]+", text or "") if each]
    names = [rule.name for rule in audit_rules()]
    for one in wanted:
        if one not in names:
            raise click.UsageError(
                f"there is no rule {one!r} on custom ops{near(one, names)}; there are {', '.join(names)}"
            )
    return frozenset(wanted)
