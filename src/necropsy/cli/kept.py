"""``list``, ``prune`` and ``rules``: the reports folder as a whole, and what a report can say."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from necropsy.cli.completion import rule_names
from necropsy.cli.numbers import Seconds, Whole
from necropsy.cli.output import deliver, with_output
from necropsy.cli.suggestions import near
from necropsy.console import say, shape, whole_width
from necropsy.errors import NecropsyError

if TYPE_CHECKING:
    from necropsy.rule import Rule


@click.command("list", short_help="List the kept reports, newest first.")
@with_output
@click.option("--rule", metavar="RULE", shell_complete=rule_names, help="Only crashes with this cause or finding.")
@click.option("--since", metavar="TIME", help="Only newer ones: 2h, 3d, or a date such as 2026-11-21.")
@click.option("-n", "count", metavar="N", type=Whole(min=1), help="At most N lines.")
@click.option("--all", "every", is_flag=True, help="One line for each report, also of the same crash seen again.")
def list_(  # noqa: PLR0917 - click passes them by name
    form: str, out: Path | None, rule: str | None, since: str | None, count: int | None, every: bool
) -> None:
    """List the kept reports, newest first: one for each run in which something crashed.

    Reports of the same crash share a line; SEEN says how many there are. `necropsy show` takes the ID or the number
    of a line. Reports are kept below NECROPSY_OUTPUT, or else in the system's folder for a program's state
    (~/.local/state/necropsy/reports): the newest 50, or NECROPSY_KEEP of them.
    """
    from necropsy import viewing

    if rule is not None:
        from necropsy.rules import crash_rules, profile_rules

        _check_rule(rule, (*crash_rules(), *profile_rules()))
    rows = viewing.rows(rule=rule, since=moment(since) if since is not None else None, grouped=not every)
    width = whole_width(1) if out is None else None
    color = shape(1)[0] and out is None
    deliver(lambda _color, _width: viewing.table(rows[:count], form, width=width, color=color), out)


def moment(text: str) -> datetime:
    """A date or a time ago (``3d``); raises ``click.UsageError`` if it is neither."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            seconds = Seconds(min=0).convert(text, None, None)
        except click.BadParameter:
            raise click.UsageError(
                f"--since takes 90s, 10m, 2h, 3d or a date such as 2026-11-21, not {text!r}"
            ) from None
        return datetime.fromtimestamp(time.time() - seconds, tz=timezone.utc)
    return found.astimezone() if found.tzinfo is None else found


def _check_rule(name: str, known: Iterable[Rule[Any]]) -> None:
    names = [rule.name for rule in known]
    if name not in names:
        raise click.UsageError(f"there is no rule {name!r}{near(name, names)} (`necropsy rules` lists them)")


@click.command(short_help="Delete kept reports.")
@click.option("--keep", metavar="N", type=Whole(min=0), help="Keep the newest N.")
@click.option("--older-than", metavar="TIME", type=Seconds(min=0), help="Delete those older than this: 12h, 30d.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(keep: int | None, older_than: float | None, *, yes: bool) -> None:
    """Delete kept reports, with their cores: the oldest beyond --keep, and those older than --older-than.

    \b
      necropsy prune --keep 10
      necropsy prune --older-than 30d --yes
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import store, viewing

    if keep is None and older_than is None:
        raise click.UsageError("give --keep N or --older-than 30d")
    place = viewing.place()
    before = time.time() - older_than if older_than is not None else None
    old = [
        path
        for number, path in enumerate(store.kept(place))
        if (keep is not None and number >= keep) or (before is not None and viewing.moment_of(path) < before)
    ]
    if not old:
        say(f"necropsy: nothing to delete in {place}")
        return
    what = f"{len(old)} report{'s' if len(old) != 1 else ''} in {place}"
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise NecropsyError(f"not a terminal, so {what} are still there; pass --yes to delete without asking")
        if not click.confirm(f"Delete {what}?", err=True):
            return
    try:
        count = store.remove(old)
    except OSError as error:
        raise NecropsyError(f"cannot delete {error.filename}: {error.strerror or error}") from error
    say(f"necropsy: deleted {count} report{'s' if count != 1 else ''}")


@click.command(short_help="List the causes that necropsy knows, or show the page of one.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.argument("name", metavar="[RULE]", required=False, shell_complete=rule_names)
def rules(name: str | None, form: str) -> None:
    """List the causes that necropsy knows; with RULE, show the page of one: what it means and how to fix it."""
    from necropsy.cli.messages import show
    from necropsy.explanation import rule_page
    from necropsy.rules import crash_rules, profile_rules

    known: list[Rule[Any]] = sorted((*crash_rules(), *profile_rules()), key=lambda rule: rule.name)
    if name is not None:
        _check_rule(name, known)
        known = [rule for rule in known if rule.name == name]
        if form == "text":
            show("\n".join(rule_page.reflow(rule_page.of_rule(name) or "", shape(1)[1])) + "\n")
            return
    if form == "json":
        listed = [{"rule": rule.name, "title": rule.title, "severity": rule.severity} for rule in known]
        show(json.dumps(listed, indent=2) + "\n")
        return
    width = max(len(rule.name) for rule in known)
    show("".join(f"{rule.name:<{width}}  {rule.title}\n" for rule in known))
