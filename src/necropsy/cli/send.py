"""``send``: tell another system of crashes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli.completion import file_or_report
from necropsy.errors import DeliveryError, NecropsyError, OptionError

if TYPE_CHECKING:
    from necropsy.model import BugGroup, Document, Report
    from necropsy.send.items import Item
    from necropsy.send.receivers import Receiver
    from necropsy.triage.store import TriageStore


@click.command(short_help="Send crashes to OpenTelemetry, Sentry or a webhook.")
@click.option("--otlp", metavar="URL", help="An OpenTelemetry collector: log records over HTTP in JSON.")
@click.option("--sentry", metavar="DSN", help="A Sentry project: an event for each item.")
@click.option("--webhook", metavar="URL", help="Any service that takes JSON by POST.")
@click.option("--header", "headers", metavar="NAME:VALUE", multiple=True, help="Add a header. May be repeated.")
@click.option(
    "--store",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="A store of `necropsy triage`: send its new bugs, and remember what was sent.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
@click.argument("inputs", nargs=-1, metavar="[FILE | ID]...", shell_complete=file_or_report)
def send(  # noqa: PLR0917 - click passes them by name
    otlp: str | None,
    sentry: str | None,
    webhook: str | None,
    headers: tuple[str, ...],
    store: Path | None,
    inputs: tuple[str, ...],
    *,
    dry_run: bool,
) -> None:
    """Send the deaths in reports, or the new bugs of a triage, to a system that watches programs.

    FILE is a report (JSON, or .necropsy from the reports folder), a core, a dump, or the JSON document of a triage; ID
    is a kept report. From a triage, bugs that are new or back after a fix are sent. With --store alone, all open bugs
    of the store are sent that this receiver does not have yet; with --store and files, the store remembers what was
    sent.

    Secrets are masked. Neither the log nor variables of the program are sent. Sending something again is safe:
    each item keeps its id.

    \b
      necropsy send --otlp http://localhost:4318 last
      necropsy send --sentry https://KEY@HOST/PROJECT --store bugs
      necropsy send --webhook https://HOST/hook report.json --dry-run
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy.triage.store import TriageStore

    receiver = _receiver(otlp, sentry, webhook, headers)
    if not inputs and store is None:
        raise OptionError("nothing to send: give a report, the document of a triage, or --store DIR")
    kept = TriageStore(store) if store is not None else None
    found = list(_of_inputs(inputs)) if inputs else _of_store(kept) if kept is not None else []
    items = list({one.key: one for one in found}.values())
    waiting = _unsent(items, receiver, kept)
    if dry_run:
        _show(waiting, receiver)
        return
    _send(waiting, len(items) - len(waiting), receiver, kept)


def _receiver(otlp: str | None, sentry: str | None, webhook: str | None, headers: Sequence[str]) -> Receiver:
    from dataclasses import replace

    from necropsy import __version__
    from necropsy.send import otlp as open_telemetry
    from necropsy.send import sentry as sentry_project
    from necropsy.send import webhook as any_service

    if sum(one is not None for one in (otlp, sentry, webhook)) != 1:
        raise OptionError("give one of --otlp URL, --sentry DSN and --webhook URL")
    if otlp is not None:
        made = open_telemetry.receiver(otlp, __version__)
    elif sentry is not None:
        made = sentry_project.receiver(sentry, __version__)
    else:
        made = any_service.receiver(webhook or "", __version__)
    more = dict(made.headers)
    for one in headers:
        name, colon, value = one.partition(":")
        if not colon or not name.strip() or not (name + value).isprintable():
            raise OptionError("--header takes a name and a value: --header 'Authorization: Bearer TOKEN'")
        more[name.strip()] = value.strip()
    return replace(made, headers=more)


def _of_inputs(inputs: Sequence[str]) -> Iterator[Item]:
    from necropsy import report_archive, store, viewing
    from necropsy.send import items

    for word in inputs:
        file = viewing.file_named(word)
        document = viewing.opened(file) if file is not None else report_archive.read(store.find(viewing.place(), word))
        if document.triage is not None:
            fresh = tuple(one for one in document.triage.groups if one.status in {"new", "regression"})
            yield from items.news(fresh, document.id, _example)
        else:
            yield from items.deaths(document)


def _of_store(kept: TriageStore) -> list[Item]:
    from necropsy.send import items
    from necropsy.triage import summaries

    with kept.session() as session:
        groups = tuple(summaries.groups(session))
    return list(items.news(groups, "store", _example))


def _example(group: BugGroup) -> Report | None:
    """The report of the group's example, if its file is still there and is a document."""
    from necropsy import viewing

    member = group.example
    if member is None or member.source not in {"live", "capsule"}:
        return None
    try:
        document: Document = viewing.opened(Path(member.path))
    except (NecropsyError, OSError):
        return None
    return next((one for one in document.reports if member.pid is None or one.pid == member.pid), None)


def _unsent(items: Sequence[Item], receiver: Receiver, kept: TriageStore | None) -> list[Item]:
    if kept is None:
        return list(items)
    with kept.session() as session:
        wanted = set(session.unsent(receiver.id, [one.key for one in items]))
    return [one for one in items if one.key in wanted]


def _show(items: Sequence[Item], receiver: Receiver) -> None:
    """What each request would hold; JSON is laid out for reading."""
    from necropsy.cli.messages import show
    from necropsy.console import say
    from necropsy.reports.terminal import clean, without_commands

    for at in range(0, len(items), receiver.most):
        body = receiver.write(items[at : at + receiver.most], lean=False).decode()
        lines = [json.dumps(json.loads(line), indent=1) for line in body.splitlines()]
        text = "\n".join(clean(line) for each in lines for line in each.splitlines())
        show(without_commands(text + "\n"))
    say(f"necropsy: nothing was sent; {_counted(items)} would go to {receiver.name}")


def _send(items: Sequence[Item], known: int, receiver: Receiver, kept: TriageStore | None) -> None:
    from necropsy.console import say
    from necropsy.send import delivery

    def remember(batch: Sequence[Item]) -> None:
        if kept is not None:
            with kept.session() as session:
                session.sent(receiver.id, [one.key for one in batch])

    before = f" ({known:,} had been sent before)" if known else ""
    if not items:
        say(f"necropsy: nothing new for {receiver.name}{before}")
        return
    outcome = delivery.deliver(items, receiver, when_sent=remember)
    if outcome.problem is None:
        say(f"necropsy: sent {_counted(outcome.sent)} to {receiver.name}{before}")
        return
    left = f"{len(outcome.unsent):,} of {_counted(items)} not sent to" if outcome.unsent else "problem with"
    error = DeliveryError(f"{left} {receiver.name}: {outcome.problem}")
    if outcome.unsent:
        error.hint = "the next `necropsy send` tries again" if kept is not None else "run the command again later"
    raise error


def _counted(items: Sequence[Item]) -> str:
    noun = "bug" if items and all(one.group is not None for one in items) else "crash"
    plural = {"bug": "bugs", "crash": "crashes"}[noun]
    return f"{len(items):,} {noun if len(items) == 1 else plural}"
