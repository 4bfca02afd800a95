"""``show``, ``open``, and what is done with a running process: ``attach``, ``enable``. ``kept`` has the others."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli import suggestions
from necropsy.cli.completion import file_or_report, process
from necropsy.cli.explain import explained_as
from necropsy.cli.numbers import Whole
from necropsy.cli.output import deliver, with_report
from necropsy.console import say
from necropsy.errors import AttachRefusedError, NecropsyError, NoInputError

if TYPE_CHECKING:
    from necropsy.model import Document


@click.command(
    context_settings={"ignore_unknown_options": True},  # for -1
    short_help="Show a kept report, or what is in a report, core, dump or log.",
)
@with_report
@click.option("--open", "browse", is_flag=True, help="Show it as a page in your browser.")
@click.option(
    "--core",
    "core_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the small core that was kept with it (Windows: a minidump), for a debugger, and show nothing.",
)
@click.option("--pid", type=int, help="Which process's core to write, if the report has several.")
@click.argument("identity", metavar="[ID | FILE]", required=False, shell_complete=file_or_report)
@click.pass_context
def show(
    ctx: click.Context,
    identity: str | None,
    form: str,
    out: Path | None,
    *,
    full: bool,
    browse: bool,
    core_file: Path | None,
    pid: int | None,
) -> None:
    """Show the newest report, or the one whose ID starts with ID; `last` is the newest, 2 the one before it.

    If there is a file of that name, it is shown instead: a report, a core, a dump or a log.

    \b
      necropsy show
      necropsy show --open
      necropsy show 9f86 --format html -o report.html
      necropsy show 9f86 --core small.core && gdb python small.core
      necropsy show core.4711
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import report_archive, store, viewing

    suggestions.refuse_options([identity] if identity is not None else [], ctx)
    if pid is not None and core_file is None:
        raise click.UsageError("--pid says which process's core to write: give --core FILE too")
    file = viewing.file_named(identity) if identity is not None else None
    if file is not None and suggestions.is_text(file):
        if core_file is not None:
            raise click.UsageError(f"{file} is a text; --core needs a report")
        _show_log(file, form, out, full=full)
        return
    path = file if file is not None else store.find(viewing.place(), identity)
    if core_file is not None:
        say(viewing.save_core(path, core_file, pid))
        return
    document = viewing.opened(path) if file is not None else report_archive.read(path)
    if browse:
        say(viewing.browsed(document, out))
        return
    named = shlex.quote(str(file)) if file is not None else store.short(store.identity_of(path))
    _deliver(document, form, out, f"show {named}", full=full)


def _deliver(document: Document, form: str, out: Path | None, words: str, *, full: bool) -> None:
    """``words``: the command line, for the hint at showing everything."""
    from necropsy.reports import rendered
    from necropsy.rules import page

    again = f"necropsy {words} --full"
    deliver(
        lambda color, width: rendered(document, form, color=color, width=width, full=full, again=again, pages=page), out
    )


def _show_log(path: Path, form: str, out: Path | None, *, full: bool) -> None:
    from necropsy import explanation
    from necropsy.console import watched
    from necropsy.rules import crash_rules

    explained_as(explanation.explain([str(path)], crash_rules, watch=watched), form, out, full=full)


@click.command("open", short_help="Show what is in a core file, a minidump, or a report's file.")
@with_report
@click.option(
    "--images",
    "images",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="For a core or a minidump: a folder with programs, libraries and PDBs of its machine. May be repeated.",
)
@click.argument("file", metavar="[FILE]", type=click.Path(readable=False), required=False)
def open_(file: str | None, form: str, out: Path | None, images: tuple[Path, ...], *, full: bool) -> None:
    """Diagnose a core file of any program, as the kernel, systemd-coredump or apport left it, compressed or not.

    The core may come from an x86-64 or an AArch64 machine. Its programs and libraries are used where they are found:
    under their paths, beside the core, or in the folders of --images.

    On any system, diagnose a minidump (.dmp) of a program that died on Windows, compressed or not. A zip archive with
    one dump in it will do. A report's file (JSON, or .necropsy from the reports folder) is shown as it is.

    Without FILE, the newest is opened: of ./core* and ./*.dmp, of the cores of systemd-coredump or apport, and of
    Windows' %LOCALAPPDATA%\\CrashDumps.
    """  # noqa: D301 - the backslash is Windows' own
    from necropsy import api, viewing

    if file is None:
        path = viewing.newest_core()
        say(f"necropsy: the newest {'minidump' if path.suffix.lower() in {'.dmp', '.mdmp'} else 'core'} is {path}")
    else:
        suggestions.refuse_url(file)
        path = Path(file)
    _deliver(api.open_dump(path, images=images), form, out, f"open {shlex.quote(str(path))}", full=full)


@click.command(short_help="Show what each thread of a running process is doing.")
@with_report
@click.option(
    "--python-locals", is_flag=True, help="Show the local variables of the Python frames. They may hold secrets."
)
@click.option(
    "--core", "core_file", metavar="FILE", type=click.Path(path_type=Path), help="Also write a small core of it."
)
@click.argument("pid", type=Whole(min=1), metavar="PID", shell_complete=process)
def attach(pid: int, form: str, out: Path | None, *, full: bool, python_locals: bool, core_file: Path | None) -> None:
    """Stop the process PID for a moment, read all its threads, and let it go on: for one that hangs or is slow."""
    from necropsy import api

    document = api.attach(pid, python_locals=python_locals, core_file=core_file)
    _deliver(document, form, out, f"attach {pid}", full=full)


@click.command(short_help="Watch a process that runs already; if it dies, say what killed it.")
@click.argument("pid", type=click.IntRange(min=1))
def enable(pid: int) -> None:
    """Watch the process PID from now on, with the children that it has and those that it starts.

    The process runs on as before. If it or one of them dies natively, a report is written to its stderr and kept for
    `necropsy show`. The command returns at once. In a program of your own, call necropsy.enable() instead.
    """
    if sys.platform != "linux":
        raise NecropsyError(f"`necropsy enable` does not work on {sys.platform} yet")
    from necropsy import watch
    from necropsy.capture.linux.supervise.traced_processes import is_dead, status_of

    status = status_of(pid)
    if not status or is_dead(pid):
        raise NoInputError(f"there is no process {pid}")
    if status.get("Tgid") != str(pid):
        raise NoInputError(f"{pid} is a thread of process {status.get('Tgid')}")
    try:
        answer = watch.register(pid)
    except OSError as error:
        raise NecropsyError(f"the watcher cannot be started: {error}") from error
    if not answer.ok:
        raise AttachRefusedError(f"process {pid} cannot be watched: {answer.why}")
    say(f"necropsy: process {pid} is watched; if it dies, its stderr and `necropsy show` say why")
