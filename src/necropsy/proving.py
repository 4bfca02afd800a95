"""``run --confirm`` and ``confirm``: the program is run again, under one change after the other, to prove the cause."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from necropsy import launcher, redact, report_archive, serialize, store, viewing
from necropsy.confirm import import_order, sampling, sanitizing
from necropsy.confirm.campaign import Campaign, Limits, Study
from necropsy.confirm.compiler import builder
from necropsy.confirm.conclusions import CAUSES
from necropsy.confirm.journal import Journal, Journaled
from necropsy.confirm.memory_need import SYMPTOMS
from necropsy.confirm.parameter_sweep import ParameterSweep, Scale
from necropsy.confirm.plan import planned
from necropsy.confirm.rebuild import Rebuild
from necropsy.confirm.runner import Command, Runner, filled, readable_input
from necropsy.consequences import command_of, is_native
from necropsy.console import say
from necropsy.document import new_id
from necropsy.errors import InputError, NecropsyError
from necropsy.model import Document, Report
from necropsy.reporting import write_json
from necropsy.reports import text
from necropsy.reports.terminal import clean
from necropsy.rules import crash_rules
from necropsy.rules.experiment_proposals import of_frames, of_surroundings

TIMES = 4
"""Factor on the duration of the run that died; a fixed time is added."""
_SPARE_S = 30.0


@runtime_checkable
class Counted(Protocol):
    """A study of many runs."""

    @property
    def most(self) -> int:
        """How many it makes at the most of a program that dies every time."""


@dataclass(frozen=True)
class Options:
    """How far a campaign goes, and whether it asks before it begins."""

    limits: Limits
    yes: bool = False
    timeout_s: float | None = None
    op_source: Path | None = None
    op_fixed: Path | None = None
    studies: tuple[Scale | ParameterSweep, ...] = ()
    """Numbers and words in the command to try, at the user's request."""

    command: tuple[str, ...] | None = None
    """The command as given, with ``{NAME}`` in it; None: the report's."""

    @property
    def defaults(self) -> dict[str, str]:
        """What replaces each ``{NAME}`` where nothing is tried: the largest number, the first word."""
        values = {one.name: str(one.high) for one in self.studies if isinstance(one, Scale)}
        return values | {
            one.name: one.values[0] for one in self.studies if isinstance(one, ParameterSweep) and not one.is_variable
        }

    def others(self) -> Iterator[tuple[str, Options]]:
        """The same with another word tried first: for each word of each name, what it says and the options."""
        for place, one in enumerate(self.studies):
            if not isinstance(one, ParameterSweep) or one.is_variable:
                continue
            for value in one.values[1:]:
                first = dataclasses.replace(one, values=(value, *(word for word in one.values if word != value)))
                studies = (*self.studies[:place], first, *self.studies[place + 1 :])
                yield f"{one.name}={value}", dataclasses.replace(self, studies=studies)

    def at_first(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command of the first run; raises ``InputError`` if it lacks a name that is to be replaced."""
        for name in self.defaults:
            if not any("{" + name + "}" in word for word in command):
                raise InputError(
                    f"the command has no {{{name}}}: mark where the value belongs, as in --depth {{{name}}}"
                )
        return tuple(filled(word, self.defaults) for word in command)


def first_run(words: Sequence[str], command: Sequence[str], options: Options) -> tuple[int, Document | None]:
    """Run under ``necropsy run WORDS``: status as Python gives it, and document; may raise ``NecropsyError``."""
    with tempfile.TemporaryFile() as file:
        ours = [sys.executable, "-m", "necropsy", "run", "--json", f"/dev/fd/{file.fileno()}"]
        # What the terminal sends, it sends to the whole group: the program decides, and we wait for it.
        # (A handler, not SIG_IGN: that would be inherited.)
        before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
        try:
            os.environ.update(launcher.for_another())
            status = subprocess.Popen(
                [*ours, *words, "--", *options.at_first(command)], pass_fds=(file.fileno(),)
            ).wait()
        finally:
            os.environ.pop(launcher.VARIABLE, None)
            for number, handler in before.items():
                signal.signal(number, handler)
        file.seek(0)
        data = file.read()
    return status, serialize.loads(data) if data else None


def first_death(words: Sequence[str], command: Sequence[str], options: Options) -> tuple[int, Document | None, Options]:
    """The first run; if it lives and may be repeated, further ones with the other words until one dies.

    Returns the first run's status, and document and options of the run that died. Raises ``NecropsyError`` if
    the report cannot be written.
    """
    status, document = first_run(words, command, options)
    others = list(options.others())
    if not others or document is None or document.reports or status:
        return status, document, options
    if not options.yes:
        say(
            "necropsy: it did not crash, so there is nothing to confirm; put a value that crashes first, "
            "or pass --yes to run it with each of them"
        )
        return status, document, options
    for what, other in others:
        say(f"necropsy: it lived; now with {what}")
        _, found = first_run(words, command, other)
        if found is not None and found.reports:
            return status, found, other
    say("necropsy: it survived with each of these values, so there is nothing to confirm")
    return status, document, options


def of_kept(identity: str | None) -> Document:
    """The kept report to confirm; raises ``NoInputError`` or ``UnreadableReportError`` (it is damaged)."""
    return report_archive.read(store.find(viewing.place(), identity))


def confirmed(
    document: Document, options: Options, ask: Callable[[str], bool], tell: Callable[[str], None]
) -> Document | None:
    """The document with experiments on its first native death; None if nothing was run, which was said.

    Raises ``InputError`` if nothing can be run again, and ``NecropsyError`` if the campaign's folder cannot be used.
    """
    judged = [(place, one) for place, one in enumerate(document.reports) if one.verdict is not None]
    # The native death first: what the command itself ended with may be its echo.
    judged.sort(key=lambda pair: not is_native(pair[1]))
    position, report = judged[0] if judged else (0, None)
    if report is None or report.verdict is None:
        raise InputError("this report holds no diagnosed death, so there is nothing to confirm")
    command = options.command or _command(document)
    options.at_first(command)
    rule = report.verdict.rule
    asked = tuple(dataclasses.replace(one, rule=rule) for one in options.studies)
    scales = [one for one in asked if isinstance(one, Scale)]
    general = of_frames(report.crash) + (of_surroundings(report.crash) if rule in SYMPTOMS else ())
    plan: tuple[Study, ...] = (*planned(report, crash_rules(), scales, general), *asked)
    order = import_order.study(rule, report.crash, options.at_first(command), _title(import_order.CONFLICT))
    plan = (*plan, order) if order is not None else plan
    if options.op_source is not None:
        # Campaigns share their builds: the same op dies in several programs.
        place = Path(os.environ.get("NECROPSY_BUILDS") or _folder(command, report).parent / "builds").absolute()
        build = builder(options.op_source, report.crash, options.at_first(command), place)
        titles = {one.name: one.title for one in crash_rules()}
        plan = (*plan, Rebuild(rule, build, CAUSES, corrected=build.of(options.op_fixed), titles=titles))
        races = sanitizing.study(rule, build, report.crash, _title(sanitizing.RULE))
        plan = (*plan, races) if races is not None else plan
    if not plan:
        say(f"necropsy: no experiment is known for {report.verdict.rule}: nothing was run")
        return None
    timeout = options.timeout_s or _timeout(document)
    if not options.yes and not ask(_intention(command, plan, options, timeout)):
        return None
    folder = _folder(command, report)
    try:
        journal = Journal(folder, _key(command, report))
        # In the campaign's folder, so that what a killed one leaves lies there, and goes when it is taken up again.
        shutil.rmtree(folder / "runs", ignore_errors=True)
        (folder / "runs").mkdir(mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder / "runs") as scratch:
            reads = readable_input() if options.command is not None else None
            target = Command(command, Path.cwd(), report.signature, defaults=options.defaults, reads=reads)
            bench = Journaled(Runner(target, Path(scratch), timeout, crash_rules()), journal, _signal(report))
            if journal.resumed:
                what = (
                    "1 run of an earlier campaign is"
                    if journal.resumed == 1
                    else f"{journal.resumed} runs of an earlier campaign are"
                )
                say(f"necropsy: {what} known and not made again")
            try:
                proved = Campaign(bench, plan, options.limits, tell).conducted(report)
            finally:
                bench.close()
        journal.close()
        first = proved.verdict.experiments[:1] if proved.verdict is not None else ()
        if reads is None and _had_input() and any(not row.crashed for row in first):
            say(
                "necropsy: each run had an empty input; what is redirected from a file (< FILE) is read by each of them"
            )
    except OSError as error:
        raise NecropsyError(f"cannot use {folder}: {error.strerror or error}") from error
    reports = (*document.reports[:position], proved, *document.reports[position + 1 :])
    return msgspec.structs.replace(document, reports=reports)


def kept(document: Document, json_file: Path | None) -> tuple[Document, bool, str | None]:
    """Keep the report: the document, whether it is kept, and what went wrong; ``OSError`` if ``json_file`` fails."""
    document = msgspec.structs.replace(document, id=new_id())
    if json_file is not None:
        write_json(document, json_file)
    place, most = store.folder(), store.limit()
    if place is None or most == 0:
        return document, False, None
    try:
        store.keep(document, text.render(document), place, most=most)
    except OSError as error:
        return document, False, f"necropsy: this report is not kept: {place}: {error.strerror or error}"
    return document, True, None


def _title(name: str) -> str:
    return next((rule.title for rule in crash_rules() if rule.name == name), name)


def _signal(report: Report) -> str | None:
    crash = report.crash
    return crash.fault.signal if crash.fault is not None else (crash.exit.signal if crash.exit is not None else None)


def _command(document: Document) -> tuple[str, ...]:
    command = document.subject.command
    if document.subject.kind != "process" or not command:
        raise InputError("this report is not of a command that can be run again")
    if any(redact.MASK in word for word in command):
        raise InputError(
            "the command held what looks like a secret, which was not kept: use `necropsy run --confirm -- COMMAND`"
        )
    return command


def _timeout(document: Document) -> float:
    own = command_of(document.processes)
    return TIMES * (own.wall_s if own is not None and own.wall_s else 0.0) + _SPARE_S


def _intention(command: Sequence[str], plan: Sequence[Study], options: Options, timeout: float) -> str:
    """The announcement: what will be run, how often, and the maximum duration."""
    limits = options.limits
    # What two rules propose alike is run once; after what it lives through, the unchanged program is run again.
    once = {one.text: one for one in plan}
    fewest = sampling.AT_ONCE + len(once)
    most = sampling.AT_ONCE + sum(
        1 + (one.most if isinstance(one, Counted) else sampling.EVERY_TIME) for one in once.values()
    )
    often = f"{fewest} to {most} more times, more often if it does not crash every time"
    if limits.runs is not None:
        often += f", {limits.runs} times at most"
    budget = f", for at most {limits.budget_s:g} s" if limits.budget_s is not None else ""
    changes = "\n".join(f"  - {clean(redact.text(one))}" for one in once)
    file = readable_input() if options.command is not None else None
    reads = f"Each run reads {file} as its input." if file is not None else "Each run has an empty input."
    return (
        f"necropsy: to confirm the cause, necropsy will run this {often}{budget} (up to {timeout:.0f} s each):\n"
        f"  {clean(shlex.join(redact.argv(command)))}\n"
        f"unchanged, and with one change each time:\n{changes}\n"
        f"{reads}\n"
        "Every run repeats its side effects: files written, data sent, money spent."
    )


def _had_input() -> bool:
    """Standard input is a pipe or a socket, which cannot be read twice."""
    try:
        return stat.S_ISFIFO(os.fstat(0).st_mode) or stat.S_ISSOCK(os.fstat(0).st_mode)
    except OSError:
        return False


def _folder(command: Sequence[str], report: Report) -> Path:
    """The folder for the campaign's journal: in the reports folder, or the system's folder for temporary files."""
    home = store.folder()
    place = home if home is not None else Path(tempfile.gettempdir()) / f"necropsy-{os.getuid()}"
    return place / "campaigns" / _key(command, report)


def _key(command: Sequence[str], report: Report) -> str:
    """Stable for the same command, folder and death; a hash, because a command may hold a secret."""
    said = repr((list(command), str(Path.cwd()), report.signature, sampling.AT_ONCE, sampling.CRASHES))
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:16]
