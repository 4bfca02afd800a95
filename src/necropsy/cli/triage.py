"""``necropsy triage``: make a list of bugs of many deaths, and correct it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from necropsy.cli.kept import moment
from necropsy.cli.numbers import Whole
from necropsy.cli.output import COLOR, FILE, JSON, ProgressLine, also_as_json, deliver, writable
from necropsy.console import say
from necropsy.errors import NecropsyError
from necropsy.reports import FORMATS, formats

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from necropsy.model import Document, Triage
    from necropsy.triage.corrections import SplitBy
    from necropsy.triage.store import StoreSession

_WORDS = f"{__name__}.words"


class _TriageGroup(click.Group):
    """Paths to read, or one of the commands that correct groups. A folder of such a name is ``./merge``."""

    allow_interspersed_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.meta[_WORDS], args = args, []
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        words = ctx.meta.get(_WORDS)
        if words is None:
            return click.Command.invoke(self, ctx)
        command = self.commands[words[0]]
        with command.make_context(words[0], words[1:], parent=ctx) as inner:
            return command.invoke(inner)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)


def _files_or_commands(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    names = triage.commands if not ctx.params.get("paths") else ()
    found = [CompletionItem(one) for one in names if incomplete and one.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]


def _groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the store's groups, once the store has been typed."""
    from click.shell_completion import CompletionItem

    store = ctx.params.get("store")
    if store is None:
        return []
    try:
        with _opened(store).session() as session:
            rows = session.connection.execute("SELECT id, title FROM groups ORDER BY count DESC LIMIT 200").fetchall()
    except Exception:  # noqa: BLE001 - an error here would be printed into the line that is being typed
        return []
    return [CompletionItem(name, help=title) for name, title in rows if name.startswith(incomplete)]


_STORE = click.option(
    "--store",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep here what was read; a later run reads what is new.",
)
_OF_STORE = click.option(
    "--store", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), required=True, help="The store."
)


@click.group(
    cls=_TriageGroup, invoke_without_command=True, short_help="Make a list of bugs of many reports, cores and logs."
)
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS, *formats.names("triage")]),
    default="text",
    show_default=True,
    help="Of the result.",
)
@FILE
@COLOR
@click.option("--full", is_flag=True, help="In text, show everything.")
@JSON
@click.option(
    "--html", "html_file", metavar="FILE", type=click.Path(path_type=Path), help="Write a page with pictures."
)
@_STORE
@click.option("--since", metavar="TIME", help="Only deaths since then: 12h, 7d or a date.")
@click.option(
    "--jobs", metavar="N", type=Whole(min=1), show_default=False, help="Read in N processes.  [default: one a CPU]"
)
@click.option("--ray", metavar="ADDRESS", help="Read on a Ray cluster, or `local` (necropsy[ray]).")
@click.option("--rebuild", is_flag=True, help="Form the store's groups anew.")
@click.option("--query", metavar="SQL", help="SELECT from groups, deaths and members.")
@click.option("--fail-on", type=click.Choice(["new", "any"]), help="End with 1 if there is such a group.")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(), shell_complete=_files_or_commands)
@click.pass_context
def triage(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    paths: tuple[str, ...],
    form: str,
    out: Path | None,
    json_file: Path | None,
    html_file: Path | None,
    store: Path | None,
    since: str | None,
    jobs: int | None,
    ray: str | None,
    query: str | None,
    fail_on: str | None,
    *,
    full: bool,
    rebuild: bool,
) -> None:
    """Read every report, core, dump, log and JUnit file below each PATH, and group the deaths by their bugs.

    Ends with 0, and with 1 if a file could not be read. In a store, groups keep their ids, and can be corrected.

    \b
      necropsy triage reports/ logs/ --store bugs
      necropsy triage merge g1f0c77a2 g9e3d0b41 --store bugs
      necropsy triage close g1f0c77a2 --fixed-in 2.1 --store bugs
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import triaging

    for path, option in ((json_file, "--json"), (html_file, "--html")):
        if path is not None:
            writable(path, option)
    if not paths and store is None:
        raise click.UsageError("nothing to read: give a folder of reports or logs, such as: necropsy triage reports/")
    if rebuild and store is None:
        raise click.UsageError("--rebuild goes with --store: without one, all groups are formed anew")
    options = triaging.Options(
        store=store,
        since=moment(since).astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if since is not None else None,
        jobs=jobs,
        rebuild=rebuild,
        ray=ray,
        query=query,
    )
    line = ProgressLine()
    try:
        done = triaging.triaged(paths, options, line.tell)
    finally:
        line.wipe()
    found = done.document.triage
    if found is None:  # it always has that part
        raise NecropsyError("the document has no groups")
    with also_as_json(done.document, json_file):
        if done.answer is not None:
            _deliver_answer(done.answer, form, out, found)
        else:
            _deliver(done.document, form, out, full=full)
        if html_file is not None:
            _deliver(done.document, "html", html_file)
    ctx.exit(int(bool(found.skipped) or _fails(found, fail_on)))


def _fails(found: Triage, fail_on: str | None) -> bool:
    if fail_on == "new":
        return any(one.status in {"new", "regression"} for one in found.groups)
    return fail_on == "any" and bool(found.groups)


def _deliver(document: Document, form: str, out: Path | None, *, full: bool = False) -> None:
    from necropsy.reports import rendered
    from necropsy.rules import page

    deliver(lambda color, width: rendered(document, form, color=color, width=width, full=full, pages=page), out)


def _deliver_answer(answer: Any, form: str, out: Path | None, found: Triage) -> None:
    from necropsy.reports import query_table

    if form not in query_table.FORMATS:
        raise click.UsageError(f"--query has the formats {', '.join(query_table.FORMATS)}")
    deliver(lambda _color, _width: query_table.render(answer.columns, answer.rows, form), out)
    for one in found.skipped:
        say(f"necropsy: skipped {one.path}: {one.why}")


# ---------------------------------------------------------------- corrections


@triage.command(short_help="Make two groups one.")
@_OF_STORE
@click.argument("first", metavar="GROUP", shell_complete=_groups)
@click.argument("second", metavar="GROUP", shell_complete=_groups)
def merge(store: Path, first: str, second: str) -> None:
    """Make two groups one. The older id stays; the younger one still leads to it."""
    from necropsy.triage import corrections

    older, younger = _corrected(store, lambda session: corrections.merge(session, first, second))
    say(f"necropsy: {younger} is part of {older} now")


@triage.command(short_help="Split a group in which there are several bugs.")
@_OF_STORE
@click.option(
    "--by",
    type=click.Choice(["function", "version", "text"]),
    required=True,
    help="What differs: the function that died, the library's version, or the message.",
)
@click.argument("group", shell_complete=_groups)
def split(store: Path, by: SplitBy, group: str) -> None:
    """Split a group by what differs among its members. The part with most deaths keeps the id."""
    from necropsy.triage import corrections

    ids = _corrected(store, lambda session: corrections.split(session, group, by))
    say(f"necropsy: {ids[0]} was split; new: {', '.join(ids[1:])}")


@triage.command(short_help="Give a group a title of your own.")
@_OF_STORE
@click.argument("group", shell_complete=_groups)
@click.argument("title")
def name(store: Path, group: str, title: str) -> None:
    """Give a group a title of your own; an empty one ("") brings the made one back."""
    from necropsy.triage import corrections

    kept = _corrected(store, lambda session: corrections.name(session, group, title))
    say(f"necropsy: {kept} has {'the title ' + repr(title) if title.strip() else 'its made title again'}")


@triage.command(short_help="Note that a bug is fixed, and in which version.")
@_OF_STORE
@click.option("--fixed-in", metavar="VERSION", help="The first version with the fix: 2.1, or 'mylib 2.1'.")
@click.option("--undo", is_flag=True, help="Open it again.")
@click.argument("group", shell_complete=_groups)
def close(store: Path, fixed_in: str | None, group: str, *, undo: bool) -> None:
    """Note that a bug is fixed. It is a regression if it comes back in VERSION or later, or at all without one."""
    from necropsy.triage import corrections

    if undo:
        say(f"necropsy: {_corrected(store, lambda session: corrections.reopen(session, group))} is open again")
        return
    kept = _corrected(store, lambda session: corrections.close(session, group, fixed_in))
    say(f"necropsy: {kept} is closed" + (f", fixed in {fixed_in}" if fixed_in is not None else ""))


def _corrected(store: Path, change: Callable[[StoreSession], Any]) -> Any:
    from necropsy import triaging

    return triaging.corrected(store, change)


def _opened(store: Path) -> Any:
    from necropsy.triage.store import TriageStore

    return TriageStore(store, wait_s=0.2)
