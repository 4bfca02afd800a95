"""Reports the end of a run. The reporter process calls ``report_end``; all that a report needs is loaded by then.

This module itself is loaded at every start, so it imports the rest only where it is used.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, ParamSpec

if TYPE_CHECKING:
    from necropsy.model import Document, Report, RunRecord
    from necropsy.profile.comparison import Conditions

P = ParamSpec("P")


class Verdict:
    """Whether a condition of `--fail-on` was met: told by the reporter, read by the process that started it."""

    def __init__(self) -> None:
        import mmap

        self._shared = mmap.mmap(-1, mmap.PAGESIZE)

    def tell(self, *, failed: bool) -> None:
        """Called in the reporter, which is a fork."""
        self._shared[0] = 2 if failed else 1

    @property
    def failed(self) -> bool | None:
        """None: the reporter did not get so far."""
        return {1: False, 2: True}.get(self._shared[0])


class ReportRequest(NamedTuple):
    """Where the report of a command goes, and how it looks. Relative paths would be meant from where it is written."""

    command: tuple[str, ...]
    json_file: Path | None = None
    html_file: Path | None = None
    form: str = "text"
    out: Path | None = None
    full: bool = False
    output: Path | None = None
    quiet: bool = False
    always: bool = False
    timeout: float | None = None
    profile: bool = False
    stack_top: int = 10
    heap: Path | None = None
    """Where memray's recordings are."""
    compare: Document | None = None
    conditions: Conditions | None = None
    verdict: Verdict | None = None

    def absolute(self) -> ReportRequest:
        """The same from any working directory."""
        return self._replace(
            json_file=_absolute(self.json_file),
            html_file=_absolute(self.html_file),
            out=_absolute(self.out),
            output=_absolute(self.output),
        )


class _Kept(NamedTuple):
    """How to see the report again, how many of the same crash were kept before, and why it is not kept."""

    command: str | None = None
    seen: int = 0
    problem: str | None = None


_NOT_KEPT = _Kept()


def report_end(request: ReportRequest, ended: RunRecord) -> None:
    """Report what has ended, if anybody wants to know of it."""
    if request.always or request.json_file or request.out or request.output or _has_news(ended):
        report(request, ended)
    elif not request.quiet:
        _warn_of_stacks(ended)


def _warn_of_stacks(ended: RunRecord) -> None:
    """One line where the main thread of a healthy process came close to the end of its stack."""
    for process in ended.processes:
        end = process.exit
        near = next((one for one in process.limits or () if one.name == "RLIMIT_STACK" and one.used), None)
        if near is None or near.used is None or end is None or end.kind != "exited":
            continue
        from necropsy.console import say
        from necropsy.reports.terminal import one_line, size

        left = size(max(near.limit - near.used, 0))
        first, *words = process.command or ("the program",)
        name = one_line((first.rpartition("/")[2], *words), 60)
        say(
            f"necropsy: {name} used all but {left} of its main thread's stack of {size(near.limit)}; "
            "`necropsy profile` shows what filled it"
        )
        return


def _has_news(ended: RunRecord) -> bool:
    """False if the command ended with 0 and none of its processes died."""
    end = ended.processes[0].exit if ended.processes else None
    return bool(ended.crashes) or ended.timed_out or end is None or (end.kind, end.code) != ("exited", 0)


def report(request: ReportRequest, ended: RunRecord) -> None:
    """Judge, write, print, keep: in this order, so that the text can name the files; no step can cost another."""
    from necropsy.console import say, write
    from necropsy.document import news, of_run
    from necropsy.reports import brief
    from necropsy.rules import crash_rules

    if request.profile:
        from necropsy.profile.documents import of_profile as of_run
    if request.heap is not None:
        from necropsy.profile import heap_recordings

        ended = heap_recordings.joined(ended, request.heap)
    document = of_run(ended, request.command, crash_rules())
    if request.profile:
        document = _judged(request, document)
    whole = request.always and not request.profile
    shown = document if whole else news(document, timed_out=ended.timed_out)
    written = _write(request, document, shown)
    if ended.timed_out and request.timeout is not None and not request.quiet:
        say(f"necropsy: the time limit of {request.timeout:g} s passed; the program was stopped")
    told = (bool(shown.reports) or request.always) and request.out is None and not request.quiet
    short = told and request.form == "text" and not request.full
    # A child that a test suite kills on purpose, and survives, is reported in one line.
    children = brief.children(shown) if short and not whole else None
    if told and children is None and (shown.reports or not request.profile):
        _print(request, shown, written, short=short)
    if request.profile and not request.quiet:
        _print_profile(request, shown)
    if not shown.reports:
        return
    kept = _NOT_KEPT
    try:
        kept = _keep_in_store(request, shown, ended)
    finally:
        if children is not None:
            say(children + (f": {kept.command}" if kept.command is not None else ""))
        elif short:
            _close(shown.reports[0], kept, written)
    if not request.quiet:
        if not short and kept.command is not None:
            write("\n")
            say(f"  To see this report again: {kept.command}{brief.before(kept.seen)}")
        if kept.problem is not None:
            say(f"necropsy: {kept.problem}")
        if os.environ.get("GITHUB_ACTIONS") == "true":
            from necropsy import github

            _attempt("cannot write the summary for GitHub", github.tell, shown)


def _judged(request: ReportRequest, document: Document) -> Document:
    """With what became worse, and with the conditions that were met."""
    from necropsy.profile import comparison

    if request.compare is not None:
        document = comparison.compared(document, request.compare)
    if request.conditions is not None:
        document = comparison.checked(document, request.conditions)
        if request.verdict is not None:
            request.verdict.tell(failed=bool(document.failed_checks))
    return document


def _print(request: ReportRequest, shown: Document, written: Path | None, *, short: bool) -> None:
    from necropsy.console import shape, write
    from necropsy.reports import brief, text

    color, width = shape()
    if short:
        write(brief.render(shown, color=color, width=width))
    elif request.form == "text":
        write(text.render(shown, color=color, width=width, json_file=written))
    else:
        write(_rendered(shown, request.form))


def _print_profile(request: ReportRequest, shown: Document) -> None:
    from necropsy.console import shape, write
    from necropsy.reports import profile

    color, width = shape()
    write(profile.render(shown, color=color, width=width, top=request.stack_top))


def _rendered(document: Document, form: str) -> str:
    from necropsy.reports import rendered
    from necropsy.rules import page

    return rendered(document, form, pages=page)


def _keep_in_store(request: ReportRequest, document: Document, ended: RunRecord) -> _Kept:
    from necropsy import store
    from necropsy.console import say
    from necropsy.reports import text

    most = store.limit()
    problem = store.limit_problem()
    if problem is not None and not request.quiet:
        say(f"necropsy: {problem}")
    if most == 0:
        return _NOT_KEPT
    place = store.folder()
    if place is None:
        return _Kept(problem="this report is not kept, because there is no home folder; set NECROPSY_OUTPUT=DIR")
    deaths = {(report.crash.pid, report.crash.at) for report in document.reports}
    cores: dict[tuple[int, str | None], BinaryIO] = {}
    for key, core in ended.cores.items():
        if key in deaths:
            try:
                cores[key] = core()
            except OSError as error:
                if not request.quiet:
                    say(f"necropsy: no core of process {key[0]} is kept: {error}")
    signature = document.reports[0].signature
    seen = store.seen_before(place, signature) if signature else 0
    try:
        store.keep(document, text.render(document, color=False, width=80), place, cores=cores, most=most)
    except OSError as error:
        return _Kept(problem=f"this report is not kept: {place}: {error.strerror or error}")
    return _Kept(f"necropsy show {store.short(document.id)}", seen)


def _write(request: ReportRequest, document: Document, shown: Document) -> Path | None:
    """Write the requested files; return the JSON file that exists now, if any."""
    kept = None
    if request.output is not None:
        from necropsy import store

        folder = request.output / store.name_of(document)
        if _attempt(f"cannot write below {request.output}", _keep, document, shown, folder):
            kept = folder / "report.json"
    path = request.json_file
    if request.out is not None:
        whole = document if request.form == "json" else shown
        _attempt(f"cannot write {request.out}", _write_text, _rendered(whole, request.form), request.out)
    if request.html_file is not None:
        page = _rendered(shown, "html")
        _attempt(f"cannot write {request.html_file}", _write_text, page, request.html_file)
    if path is not None and _attempt(f"cannot write {path}", write_json, document, path):
        # An open descriptor is nothing that one could look at later.
        kept = path if descriptor_of(path) is None else kept
    return kept


def _close(report: Report, kept: _Kept, json_file: Path | None) -> None:
    from necropsy.console import shape, write
    from necropsy.reports import brief
    from necropsy.reports.terminal import without_commands

    again = f"{kept.command} --full" if kept.command is not None else brief.AGAIN
    _, width = shape()
    lines = brief.closing(report, again, width, seen=kept.seen, json_file=json_file)
    write(without_commands("\n".join(lines) + "\n"))


def _absolute(path: Path | None) -> Path | None:
    """Unchanged if the working directory has been removed; writing to it then fails."""
    if path is None:
        return None
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
    """Write the document to a file or an open file descriptor; raises ``OSError``."""
    from necropsy import serialize

    handle = descriptor_of(path)
    if handle is None:
        # Through a symbolic link, the file that it names is replaced, not the link.
        serialize.write(document, path.resolve())
        return
    _write_all(handle, serialize.dumps(document))


def _write_text(shown: str, path: Path) -> None:
    """Only the owner may read a new file; open file descriptors work too."""
    data = shown.encode("utf-8", "backslashreplace")
    handle = descriptor_of(path)
    if handle is None:
        from necropsy import report_archive

        with report_archive.private(path.resolve()) as file:
            file.write(data)
        return
    _write_all(handle, data)


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _keep(document: Document, shown: Document, folder: Path) -> None:
    """``report.json`` with everything and ``report.txt`` with the news, in a new folder private to its owner."""
    from necropsy import serialize
    from necropsy.reports import text

    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    serialize.write(document, folder / "report.json")
    handle = os.open(folder / "report.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text.render(shown if shown.reports else document, color=False, width=80))


def _attempt(what: str, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Run ``step`` and report an ``OSError`` in one line: a full disk must not cost anything else."""
    try:
        step(*args, **kwargs)
    except OSError as error:
        from necropsy.console import say

        say(f"necropsy: {what}: {error.strerror or error}")
        return False
    return True


# One after the other: each piece delays what waits for the tracer, for some milliseconds at most.
_LIBRARIES = ("zlib", "random", "hashlib", "shutil", "tempfile", "importlib.resources", "tomllib")
_REPORT = (
    *("necropsy.predicates", "necropsy.frame_filter", "necropsy.signature", "necropsy.document"),
    *("necropsy.reports.wording", "necropsy.reports.stack", "necropsy.reports.text", "necropsy.reports.brief"),
    *("necropsy.console", "necropsy.reports.terminal", "necropsy.store"),
)
_SECRETS = ("json", "zipfile", "necropsy.secrets.forms", "necropsy.secrets.commands")


def loading() -> Iterator[bool]:
    """Preload report modules while the command runs; yields true if the next one is worth it soon. Never raises."""
    for name in (*_LIBRARIES, *_REPORT):
        with contextlib.suppress(Exception):  # the report will tell
            importlib.import_module(name)
        yield name != _REPORT[-1]
    for name in _SECRETS:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
        yield False
    with contextlib.suppress(Exception):
        from necropsy import redact

        redact.text("password=")  # reads the table
        yield False
    with contextlib.suppress(Exception):
        from necropsy.rules import one_by_one

        rules = []
        for rule in one_by_one():
            rules += [rule] if rule is not None else []
            yield False
        from necropsy import warm_up  # it imports all that a report needs

        for _ in warm_up.steps(rules):
            yield False
