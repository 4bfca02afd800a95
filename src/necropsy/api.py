"""The functions that ``import necropsy`` offers, besides ``run`` (in ``running``) and ``check_dataset``.

None of them prints. What goes wrong is a ``NecropsyError`` with the exit code that the command line would end with.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from necropsy import serialize
from necropsy.errors import InputError, NecropsyError, NoInputError, OptionError, UnreadableReportError
from necropsy.model import Crash, Document, Report
from necropsy.rule import Rule

__all__ = ["attach", "diagnose", "dumps", "judge", "latest", "loads", "open_dump", "render", "rules"]


def diagnose(*evidence: str | int | os.PathLike[str]) -> Document:
    """Diagnose one crash from what is known of it, as ``necropsy explain`` does.

    ``evidence``: exit codes in any spelling (``139``, ``"0xC0000409"``, ``"SIGSEGV"``), texts such as a log or a
    debugger's output, and the paths of files that hold one. A string that names a file is read as a file; a ``Path``
    is always one. All of it is taken as evidence of the same crash.

    The document has no reports where nothing in the evidence says how a process died.

    Raises:
        necropsy.errors.UnknownCodeError: a word is not a code, a file or a text.
        necropsy.errors.NoInputError: a file is missing or cannot be read.
        necropsy.errors.InputError: a file is not a text (``open_dump`` reads cores and minidumps), or only the names
            of rules were given.

    """
    from necropsy import explanation
    from necropsy.rules import crash_rules

    if not evidence:
        raise OptionError("nothing to diagnose: give an exit code, a text or a path")
    document = explanation.explain([_word(one) for one in evidence], crash_rules).document
    if document is None:
        raise InputError(
            f"{' '.join(map(str, evidence))} is the name of a rule or of an error, not evidence of a crash"
        )
    return document


def _word(one: str | int | os.PathLike[str]) -> str:
    if isinstance(one, str | int):
        return str(one)
    path = Path(one)
    if not path.exists():
        raise NoInputError(f"there is no file {path}")
    return str(path.absolute())


def open_dump(path: str | os.PathLike[str], *, images: Iterable[str | os.PathLike[str]] = ()) -> Document:
    """Diagnose a core file or a minidump, compressed or not, or read a kept report.

    ``images``: folders with the programs, DLLs and PDBs of the machine that a minidump comes from.

    Raises:
        necropsy.errors.NoInputError: the file is missing or cannot be read.
        necropsy.errors.InputError: it is none of these, or it is damaged (``UnreadableReportError`` for a report).

    """
    from necropsy import viewing

    return viewing.opened(Path(path), tuple(map(Path, images)))


def attach(pid: int, *, python_locals: bool = False, core_file: str | os.PathLike[str] | None = None) -> Document:
    """Stop a running process for a moment, read what each of its threads is doing, and let it go on. Linux only.

    ``python_locals``: read the local variables of the Python frames too; they may hold secrets. ``core_file``: where
    to write a small core of the process.

    It reads the process with ptrace from the calling process, so no other thread may wait for the same child
    (``Popen.wait``) at that moment: it could see the stop.

    Raises:
        necropsy.errors.NoInputError: there is no such process.
        necropsy.errors.AttachRefusedError: the kernel does not allow it.

    """
    from necropsy import viewing

    return viewing.attached(
        pid, python_locals=python_locals, core_file=Path(core_file) if core_file is not None else None
    )


def judge(crash: Crash) -> Report:
    """Apply every rule to a crash: the verdict, weaker alternatives, and the rules that could not be applied.

    Secrets in the crash are masked first. A rule that fails is a gap in the report; it never raises.
    """
    from necropsy import redact
    from necropsy.diagnose import diagnose as judged
    from necropsy.rules import crash_rules

    return judged(redact.crash(crash), crash_rules())


def render(
    document: Document,
    format: str = "text",  # noqa: A002 - the name of the option
    *,
    full: bool = False,
    color: bool = False,
    width: int = 80,
) -> str:
    """The document as ``text``, ``json``, ``markdown`` or ``html``.

    ``full``, ``color`` and ``width`` (columns) are for text: ``full`` adds stacks and all evidence.

    Raises:
        necropsy.errors.OptionError: there is no such format.

    """
    from necropsy.reports import FORMATS, rendered
    from necropsy.rules import page

    if format not in FORMATS:
        raise OptionError(f"{format!r} is not a format: give one of {', '.join(FORMATS)}")
    return rendered(document, format, color=color, width=width, full=full, pages=page)


def loads(data: bytes | str) -> Document:
    """Read a document back from its JSON.

    Raises:
        necropsy.errors.UnreadableReportError: it is not the JSON of a document.

    """
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError as error:
            raise UnreadableReportError(f"not a necropsy report: {error}") from None
    return serialize.loads(data)


def dumps(document: Document) -> bytes:
    """The document as UTF-8 JSON: see the reference of the JSON document."""
    return serialize.dumps(document)


def rules() -> tuple[Rule[Any], ...]:
    """Every rule: those of necropsy on crashes, environments, custom ops and datasets, and those of other packages.

    A package adds rules on crashes by entry points in the group ``necropsy.rules``. One that cannot be used is left
    out here with a ``RuntimeWarning``; in reports it is a gap.
    """
    from necropsy.rules import all_rules, plugins

    added = plugins.loaded()
    for name, problem in added.problems.items():
        warnings.warn(f"the rule {name} cannot be used: {problem}", RuntimeWarning, stacklevel=2)
    return tuple(rule for rule in all_rules() if rule not in added.stand_ins)


def latest(*, pid: int | None = None, since: datetime | float | None = None) -> Document | None:
    """The newest kept report; None where there is none.

    ``pid``: only reports in which this process took part. ``since``: only reports that were made then or later, as a
    ``datetime`` or in seconds since 1970; reports are dated to the second. Damaged reports are skipped.

    Raises:
        necropsy.errors.NoInputError: the folder of reports cannot be read.

    """
    from necropsy import report_archive, store, viewing

    place = store.folder()
    moment = since.timestamp() if isinstance(since, datetime) else since
    for path in store.kept(place) if place is not None else ():
        if moment is not None and viewing.moment_of(path) < int(moment):
            continue
        with suppress(NecropsyError):  # it is damaged, or another process has just removed it
            document = report_archive.read(path)
            if pid is None or pid in _pids(document):
                return document
    return None


def _pids(document: Document) -> set[int | None]:
    return {*(one.pid for one in document.processes), *(one.pid for one in document.reports)} - {None}
