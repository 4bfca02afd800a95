"""What is done with the end of a run, as the options say: judge, write, print. It happens in the tracer."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, ParamSpec

from necropsy import serialize, store
from necropsy.console import say, shape, write
from necropsy.document import Ended, news, of_run
from necropsy.model import Document, Report
from necropsy.reports import brief, rendered, text
from necropsy.reports.terminal import without_commands
from necropsy.rules import crash_rules, page

P = ParamSpec("P")


class _Kept(NamedTuple):
    """How to see the report again, how many of the same crash were kept before, and why it is not kept."""

    command: str | None = None
    seen: int = 0
    problem: str | None = None


_NOT_KEPT = _Kept()


class Outcome:
    """What is done with the end of a run, as the options say. It happens in the tracer, beside the command's end."""

    def __init__(
        self,
        *,
        json_file: Path | None,
        output: Path | None,
        quiet: bool,
        always: bool,
        timeout: float | None,
        form: str = "text",
        out: Path | None = None,
        full: bool = False,
    ) -> None:
        # Paths are meant from where the user stood.
        self.json_file = _absolute(json_file) if json_file else None
        self.output = _absolute(output) if output else None
        self.form = form
        self.out = _absolute(out) if out else None
        self.full = full
        self.named_store = store.folder() if os.environ.get("NECROPSY_OUTPUT") else None
        self.quiet = quiet
        self.always = always
        self.timeout = timeout

    def on_end(self, ended: Ended, command: Sequence[str]) -> None:
        """Judge, write, print, keep: in this order, so that the text can name the files; no step can cost another."""
        document = of_run(ended, command, crash_rules())
        shown = document if self.always else news(document, timed_out=ended.timed_out)
        written = self._write(document, shown)
        if ended.timed_out and self.timeout is not None and not self.quiet:
            say(f"necropsy: the time limit of {self.timeout:g} s passed; the program was stopped")
        told = (bool(shown.reports) or self.always) and self.out is None and not self.quiet
        short = told and self.form == "text" and not self.full
        # What a test suite kills on purpose, and ends well, is told in one line.
        children = brief.children(shown) if short and not self.always else None
        if told and children is None:
            self._print(shown, written, short=short)
        if not shown.reports:
            return
        kept = _NOT_KEPT
        try:
            kept = self._keep(shown, ended)
        finally:
            if children is not None:
                say(children + (f": {kept.command}" if kept.command is not None else ""))
            elif short:
                _close(shown.reports[0], kept, written)
        if not self.quiet:
            if not short and kept.command is not None:
                write("\n")
                say(f"  To see this report again: {kept.command}{brief.before(kept.seen)}")
            if kept.problem is not None:
                say(f"necropsy: {kept.problem}")
            if os.environ.get("GITHUB_ACTIONS") == "true":
                from necropsy import github

                _attempt("cannot write the summary for GitHub", github.tell, shown)

    def _print(self, shown: Document, written: Path | None, *, short: bool) -> None:
        color, width = shape()
        if short:
            write(brief.render(shown, color=color, width=width))
        elif self.form == "text":
            write(text.render(shown, color=color, width=width, json_file=written))
        else:
            write(rendered(shown, self.form, pages=page))

    def _keep(self, document: Document, ended: Ended) -> _Kept:
        """Keep the report in the reports folder."""
        most = store.limit()
        problem = store.limit_problem()
        if problem is not None and not self.quiet:
            say(f"necropsy: {problem}")
        if most == 0:
            return _NOT_KEPT
        place = self.named_store or store.folder()
        if place is None:
            return _Kept(problem="this report is not kept, because there is no home folder; set NECROPSY_OUTPUT=DIR")
        deaths = {(report.crash.pid, report.crash.at) for report in document.reports}
        cores = {key: core for key, core in ended.cores.items() if key in deaths}
        signature = document.reports[0].signature
        seen = store.seen_before(place, signature) if signature else 0
        try:
            store.keep(document, text.render(document, color=False, width=80), place, cores=cores, most=most)
        except OSError as error:
            return _Kept(problem=f"this report is not kept: {place}: {error.strerror or error}")
        return _Kept(f"necropsy show {store.short(document.id)}", seen)

    def _write(self, document: Document, shown: Document) -> Path | None:
        """Write what the options ask for; the JSON file that is there now, if there is one."""
        kept = None
        if self.output is not None:
            folder = self.output / store.name_of(document)
            if _attempt(f"cannot write below {self.output}", _keep, document, shown, folder):
                kept = folder / "report.json"
        path = self.json_file
        if self.out is not None:
            whole = document if self.form == "json" else shown
            _attempt(f"cannot write {self.out}", _write_text, rendered(whole, self.form, pages=page), self.out)
        if path is not None and _attempt(f"cannot write {path}", write_json, document, path):
            # An open descriptor is nothing that one could look at later.
            kept = path if descriptor_of(path) is None else kept
        return kept


def _close(report: Report, kept: _Kept, json_file: Path | None) -> None:
    """The last lines of a short report."""
    again = f"{kept.command} --full" if kept.command is not None else brief.AGAIN
    _, width = shape()
    lines = brief.closing(report, again, width, seen=kept.seen, json_file=json_file)
    write(without_commands("\n".join(lines) + "\n"))


def _absolute(path: Path) -> Path:
    """The same path from anywhere; as it is where the working directory has been removed: to write it fails then."""
    try:
        return path.absolute()
    except OSError:
        return path


def descriptor_of(path: Path | None) -> int | None:
    """The file descriptor that ``/dev/stdout`` and its like name: such a path must not be replaced, but written to."""
    match = re.fullmatch(r"/dev/(?:(stdout)|(stderr)|fd/(\d+))|/proc/self/fd/(\d+)", str(path)) if path else None
    if match is None:
        return None
    return 1 if match[1] else 2 if match[2] else int(match[3] or match[4])


def write_json(document: Document, path: Path) -> None:
    """The document to a file, or to an open file descriptor.

    Raises:
        OSError: it cannot be written.

    """
    handle = descriptor_of(path)
    if handle is None:
        # Through a symbolic link, the file that it names is replaced, not the link.
        serialize.write(document, path.resolve())
        return
    data = memoryview(serialize.dumps(document))
    while data:
        data = data[os.write(handle, data) :]


def _write_text(shown: str, path: Path) -> None:
    """To a file for the owner's eyes only, or to an open file descriptor.

    Raises:
        OSError: it cannot be written.

    """
    data = shown.encode("utf-8", "backslashreplace")
    handle = descriptor_of(path)
    if handle is None:
        from necropsy import report_archive

        with report_archive.private(path.resolve()) as file:
            file.write(data)
        return
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _keep(document: Document, shown: Document, folder: Path) -> None:
    """``report.json`` with all, and ``report.txt`` with what is news, in a new folder, for the owner's eyes only.

    Raises:
        OSError: the folder cannot be made or written to.

    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    serialize.write(document, folder / "report.json")
    handle = os.open(folder / "report.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text.render(shown if shown.reports else document, color=False, width=80))


def _attempt(what: str, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Do it and say so; a full disk or a missing folder is told in one line and costs nothing else."""
    try:
        step(*args, **kwargs)
    except OSError as error:
        say(f"necropsy: {what}: {error.strerror or error}")
        return False
    return True
