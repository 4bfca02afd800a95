"""``doctor``: what is wrong with the environment that programs run in; and dumps on Windows."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from necropsy.cli import dataset
from necropsy.cli.brevity import BriefCommand
from necropsy.cli.messages import show
from necropsy.cli.output import JSON, ProgressLine, also_as_json, deliver, with_output
from necropsy.console import say


@click.command(
    cls=BriefCommand,
    rare=(
        *("--op", "--deep", "--limit", "--timeout", "--color", "--json"),
        *("--enable-dumps", "--program", "--folder", "--yes"),
    ),
    short_help="Check the environment that programs run in.",
)
@click.option(
    "--python", metavar="EXE", help="The interpreter whose packages are checked.  [default: `python` on PATH]"
)
@click.option("--op", "ops", metavar="FILE", multiple=True, help="Check a custom op's library too. May be repeated.")
@click.option("--deep", is_flag=True, help="Compare the contents of all installed files with what was installed.")
@click.option(
    "--probe/--no-probe",
    default=True,
    show_default=True,
    help="Import the frameworks and each PACKAGE, in processes of their own.",
)
@dataset.options
@with_output
@JSON
@click.option(
    "--enable-dumps",
    is_flag=True,
    help="Windows: have each crash of a program leave a dump. Prints the commands; with --yes it runs them.",
)
@click.option(
    "--program", default="python.exe", show_default=True, metavar="NAME.exe", help="Program to collect dumps for."
)
@click.option("--folder", metavar="DIR", help=r"Where the dumps go.  [default: %LOCALAPPDATA%\CrashDumps]")
@click.option("--yes", is_flag=True, help="Change the registry. Needs an administrator's terminal.")
@click.argument("packages", nargs=-1, metavar="[PACKAGE]...")
@click.pass_context
def doctor(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    python: str | None,
    ops: tuple[str, ...],
    deep: bool,
    probe: bool,
    target: str | None,
    limit: int | None,
    timeout: float | None,
    form: str,
    out: Path | None,
    json_file: Path | None,
    enable_dumps: bool,
    program: str,
    folder: str | None,
    yes: bool,
    packages: tuple[str, ...],
) -> None:
    """Check the environment that a Python program would run in: packages, libraries, variables and limits.

    It checks TensorFlow, PyTorch, JAX and ONNX Runtime where they are installed, each PACKAGE that is named, and all
    that these require. Variables and limits are those that doctor itself was started with. Nothing is changed.

    With --probe it also imports the frameworks and each PACKAGE, each in a process of its own under the supervisor of
    `necropsy run`, so that an import that crashes or fails is a finding with its cause. --no-probe only reads files.

    The exit code is 0 where nothing is wrong (notes are allowed), and 1 after an error or a warning.

    \b
      necropsy doctor                       the `python` on PATH
      necropsy doctor --python .venv/bin/python lightgbm 'torch>=2'
      necropsy doctor --no-probe            read files only: a second or two
      necropsy doctor --data data.py:train  check every element of a dataset
      necropsy doctor --enable-dumps        Windows: how to make it keep dumps
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    if target is not None:
        ctx.exit(dataset.check(target, python, form=form, out=out, json_file=json_file, limit=limit, timeout=timeout))
    if limit is not None or timeout is not None:
        raise click.UsageError("--limit and --timeout are for --data", ctx)
    if enable_dumps:
        _enable_dumps(program, folder, yes=yes)
        return
    from necropsy import store
    from necropsy.doctor.metadata import is_requirement
    from necropsy.examination import Asked, examined
    from necropsy.reports import rendered
    from necropsy.rules import page

    for text in packages:
        if text.endswith((".py", ".so")) and Path(text).is_file():
            option = f"--op {text}" if text.endswith(".so") else f"--data {text}:FUNCTION"
            raise click.UsageError(f"{text} is a file, not a package; did you mean {option}?", ctx)
        if not is_requirement(text):
            raise click.UsageError(f"{text!r} is not a package as pip spells it, such as numpy or 'torch>=2'", ctx)
    tracing, stack = _own_state()
    place = store.folder(os.environ)
    asked = Asked(
        python=python,
        packages=packages,
        ops=ops,
        deep=deep,
        probe=probe,
        reports=str(place) if place is not None else None,
        tracing=tracing,
        stack=stack,
    )
    line = ProgressLine()
    try:
        document = examined(asked, os.environ, line.importing if line.wanted else None)
    finally:
        line.wipe()
    more = ""
    if form == "text" and sys.platform == "linux":
        from necropsy.cli import doctor_necropsy

        more = "".join(f"{line}\n" for line in doctor_necropsy.lines(os.environ, tracing))
    with also_as_json(document, json_file):
        deliver(lambda color, width: rendered(document, form, color=color, width=width, pages=page) + more, out)
    ctx.exit(1 if any(one.severity != "note" for one in document.findings) else 0)


def _enable_dumps(program: str, folder: str | None, *, yes: bool) -> None:
    from necropsy.doctor import dumps

    if not re.fullmatch(r"[\w .+()-]{1,80}\.exe", program):
        raise click.UsageError("--program is the name of a program without its folder, such as python.exe")
    dumps.check_system()
    place = folder or dumps.default_folder()
    if yes:
        dumps.write(program, place)
        say(f"necropsy: from now on a crash of {program} leaves a dump in {place}; `necropsy open` reads the newest")
        say(f"  To undo it: {dumps.line(dumps.undo(program))}")
        return
    lines = [
        f"These commands make Windows keep a dump of each crash of {program} in {place},",
        "all memory of the process in it, its data and secrets too. Nothing was changed: type them in a",
        "terminal that was started as administrator, or give --yes there.",
        "",
        *(f"  {dumps.line(command)}" for command in dumps.commands(program, place)),
        "",
        "To undo it:",
        "",
        f"  {dumps.line(dumps.undo(program))}",
    ]
    show("\n".join(lines) + "\n")


def _own_state() -> tuple[str | None, tuple[int, int] | None]:
    """Why this process cannot trace a child, and the stack limits before the launcher raised them."""
    if sys.platform != "linux":
        return None, None
    from necropsy import launcher
    from necropsy.capture.linux.supervise import self_check

    record = launcher.record()
    return self_check.why_untraceable(), record.stack if record is not None else None
