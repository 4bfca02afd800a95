"""``list``, ``show``, ``open`` and ``attach``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from necropsy.cli.numbers import Whole
from necropsy.cli.telling import show as print_
from necropsy.console import say, shape
from necropsy.errors import NecropsyError

FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown", "html"]),
    default="text",
    show_default=True,
    help="markdown: to paste into an issue; html: one file that needs nothing else.",
)


@click.command("list", short_help="The reports that are kept, newest first.")
def list_() -> None:
    """Show the reports that are kept, newest first: one of each run in which something died.

    They lie below NECROPSY_OUTPUT, or else in the system's folder for a program's state
    (~/.local/state/necropsy/reports); NECROPSY_KEEP of them, or else 50.
    """
    from necropsy import viewing
    from necropsy.console import whole_width

    color, _ = shape(1)
    print_(viewing.table(width=whole_width(1), color=color))


@click.command(short_help="Show a kept report again: as text, JSON, Markdown or HTML.")
@FORMAT
@click.option(
    "--core",
    "core_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the small core that was kept with it (Windows: a minidump), for a debugger, and show nothing.",
)
@click.option("--pid", type=int, help="The process whose core is meant, where there are several.")
@click.argument("identity", metavar="[ID]", required=False)
def show(identity: str | None, form: str, core_file: Path | None, pid: int | None) -> None:
    """Show the newest report, or the one whose ID (see `necropsy list`) begins like this.

    \b
      necropsy show
      necropsy show 9f86 --format html > report.html
      necropsy show 9f86 --core small.core && gdb python small.core
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import capsule, store, viewing

    path = store.find(viewing.place(), identity)
    if core_file is not None:
        say(viewing.save_core(path, core_file, pid))
        return
    if pid is not None:
        raise click.UsageError("--pid says which core is meant: give --core FILE too")
    color, width = shape(1)
    print_(viewing.rendered(capsule.read(path), form, color=color, width=width))


@click.command("open", short_help="Show what is in a core file, a minidump, or a report's file.")
@FORMAT
@click.option(
    "--images",
    "images",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="For a minidump: a folder with programs, DLLs and PDBs of the machine that it comes from. May be repeated.",
)
@click.argument("file", metavar="[FILE]", type=click.Path(path_type=Path, readable=False), required=False)
def open_(file: Path | None, form: str, images: tuple[Path, ...]) -> None:
    """Diagnose a core file of any program, as the kernel, systemd-coredump or apport left it, compressed or not.

    On any system, diagnose a minidump (.dmp) of a program that died on Windows, compressed or not. A zip archive with
    one dump in it will do. A report's file (JSON, or .necropsy from the reports folder) is shown as it is.

    Without FILE, the newest is opened: of ./core* and ./*.dmp, of the cores of systemd-coredump or apport, and of
    Windows' %LOCALAPPDATA%\\CrashDumps.
    """  # noqa: D301 - the backslash is Windows' own
    from necropsy import viewing

    if file is None:
        file = viewing.newest_core()
        say(f"necropsy: the newest {'minidump' if file.suffix.lower() in {'.dmp', '.mdmp'} else 'core'} is {file}")
    color, width = shape(1)
    print_(viewing.rendered(viewing.opened(file, images), form, color=color, width=width))


@click.command(short_help="Show where a running process stands: all its threads.")
@FORMAT
@click.option(
    "--python-locals", is_flag=True, help="Show the local variables of the Python frames. They may hold secrets."
)
@click.option(
    "--core", "core_file", metavar="FILE", type=click.Path(path_type=Path), help="Write a small core of it as well."
)
@click.argument("pid", type=Whole(min=1), metavar="PID")
def attach(pid: int, form: str, python_locals: bool, core_file: Path | None) -> None:
    """Stop the process PID for a moment, read all its threads, and let it go on: for one that hangs or is slow."""
    if sys.platform != "linux":
        raise NecropsyError(f"`necropsy attach` does not work on {sys.platform} yet")
    from necropsy import viewing

    document = viewing.attached(pid, python_locals=python_locals, core_file=core_file)
    color, width = shape(1)
    print_(viewing.rendered(document, form, color=color, width=width))
