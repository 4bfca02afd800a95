"""``doctor``: what is to be set up so that a death can be examined."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from necropsy.cli import dataset
from necropsy.cli.reports import FORMAT
from necropsy.cli.telling import show
from necropsy.console import say


@click.command(short_help="Set the machine up so that deaths leave evidence.")
@click.option(
    "--python", metavar="EXE", help="The interpreter whose packages are checked.  [default: `python` on PATH]"
)
@dataset.options
@FORMAT
@click.option("--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the JSON document.")
@click.option(
    "--enable-dumps",
    is_flag=True,
    help="Windows: have each crash of a program leave a dump. Prints the commands; with --yes it runs them.",
)
@click.option("--program", default="python.exe", show_default=True, metavar="NAME.exe", help="Whose crashes.")
@click.option("--folder", metavar="DIR", help=r"Where the dumps go.  [default: %LOCALAPPDATA%\CrashDumps]")
@click.option("--yes", is_flag=True, help="Change the registry. It takes an administrator's terminal.")
@click.pass_context
def doctor(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    python: str | None,
    target: str | None,
    limit: int | None,
    timeout: float | None,
    form: str,
    json_file: Path | None,
    enable_dumps: bool,
    program: str,
    folder: str | None,
    yes: bool,
) -> None:
    """Show what to set up on this machine; nothing is changed without --yes.

    \b
      necropsy doctor                         Linux: which loop supervises programs, and why
      necropsy doctor --data data.py:train    check every element of a dataset
      necropsy doctor --enable-dumps          the commands that make Windows keep dumps
      necropsy doctor --enable-dumps --yes    run them
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    if target is not None:
        ctx.exit(dataset.check(target, python, form, json_file, limit, timeout))
    if limit is not None or timeout is not None:
        raise click.UsageError("--limit and --timeout are for --data", ctx)
    from necropsy.doctor import dumps

    if not enable_dumps and sys.platform == "linux":
        show(_supervisor() + "\n")
        return
    if not enable_dumps:
        raise click.UsageError("nothing to do here: the only action is --enable-dumps (Windows)")
    if not re.fullmatch(r"[\w .+()-]{1,80}\.exe", program):
        raise click.UsageError("--program is the name of a program without its folder, such as python.exe")
    dumps.check_system()
    place = folder or dumps.default_folder()
    if yes:
        dumps.write(program, place)
        say(f"necropsy: from now on a crash of {program} leaves a dump in {place}; `necropsy open` reads the newest")
        say(f"  To take it back: {dumps.line(dumps.undo(program))}")
        return
    lines = [
        f"These commands make Windows keep a dump of each crash of {program} in {place},",
        "all memory of the process in it, its data and secrets too. Nothing was changed: type them in a",
        "terminal that was started as administrator, or give --yes there.",
        "",
        *(f"  {dumps.line(command)}" for command in dumps.commands(program, place)),
        "",
        "To take it back:",
        "",
        f"  {dumps.line(dumps.undo(program))}",
    ]
    show("\n".join(lines) + "\n")


def _supervisor() -> str:
    """Which loop `necropsy run` uses here, in a line or two."""
    from necropsy.capture.linux import library

    why = library.why_missing()
    if why is None:
        return "Supervisor: the C loop is in use."
    return (
        f"Supervisor: the Python loop is in use, because {why}.\n"
        "  Programs run the same under it, but many threads, processes or signals cost several times as much.\n"
        "  To get the C loop, install a C compiler (gcc or clang) and reinstall necropsy."
    )
