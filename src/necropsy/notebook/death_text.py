"""A report in the words of a notebook: cells instead of the files that IPython makes of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from necropsy.model import Document, Frame, Report, Thread
from necropsy.notebook.cell_log import Cell, CellLog
from necropsy.reports import brief, wording
from necropsy.reports.terminal import clean, cut, file_name

_WIDTH = 80
_MOST_FRAMES = 8


def only(document: Document, pid: int) -> Document | None:
    """The document with the death of this process only; None where it has none.

    A cell in a process of its own is a child of the kernel, whose other children may have died too.
    """
    reports = tuple(one for one in document.reports if one.pid == pid)
    processes = tuple(one for one in document.processes if one.pid == pid)
    return msgspec.structs.replace(document, reports=reports, processes=processes) if reports else None


def of_kernel(document: Document, log: CellLog) -> str:
    """The short form of the report on a kernel: the only one in the document."""
    if log.running is not None:
        lead = f"The kernel died while In [{log.running.count}] ran."
    elif log.cells:
        lead = f"The kernel died while no cell ran; the last one was In [{log.cells[-1].count}]."
    else:
        lead = "The kernel died."
    return of_cell(document, log, lead)


def without_report(cell: Cell) -> str:
    """Of a kernel that ended without a crash, in the middle of a cell."""
    return (
        f"The kernel ended while In [{cell.count}] ran, and it did not crash: the cell ended the process, for example "
        "by os._exit(), or something stopped it with SIGTERM."
    )


def of_cell(document: Document, log: CellLog, lead: str) -> str:
    """The short form of the report, below a line of its own."""
    report = document.reports[0]
    shown, names = with_cells(report, log)
    identity = document.id.partition("-")[2] or document.id
    text = brief.render(shown, width=_WIDTH, again=f"necropsy show {identity}")
    return "\n".join([lead, *frames(report, log), in_words(text, names).rstrip("\n")])


def with_cells(report: Report, log: CellLog) -> tuple[Report, dict[str, int]]:
    """The report with the source lines of cells and without IPython's frames; the numbers of the cells by file."""
    names: dict[str, int] = {}

    def named(frame: Frame) -> Frame:
        cell = log.find(frame.source) if frame.source else None
        if cell is None or frame.line is None or frame.source is None:
            return frame
        names[frame.source] = cell.count
        code = cell.line(frame.line)
        if code is None:
            return frame
        return msgspec.structs.replace(frame, code=code.strip(), excerpt=_excerpt(cell, frame.line))

    def thread(one: Thread) -> Thread:
        return msgspec.structs.replace(one, python=tuple(map(named, _inner(one.python, log)))) if one.python else one

    threads = tuple(map(thread, report.crash.threads)) if report.crash.threads is not None else None
    crash = msgspec.structs.replace(report.crash, threads=threads)
    return msgspec.structs.replace(report, crash=crash), names


def _inner(frames: Sequence[Frame], log: CellLog) -> Sequence[Frame]:
    """The frames from the innermost to the cell that ran: what called the cell is IPython, and this package."""
    for place, frame in enumerate(frames):
        if frame.function == "<module>" and frame.source and log.running and log.find(frame.source) is log.running:
            return frames[: place + 1]
    return frames


def _excerpt(cell: Cell, line: int) -> tuple[str, ...]:
    return tuple(cell.line(number) or "" for number in (line - 1, line, line + 1))


def in_words(text: str, names: dict[str, int]) -> str:
    """``In [5], line 3`` in place of the file that a cell was compiled as."""
    for name, count in names.items():
        folder, slash, file = name.rpartition("/")
        before = rf"(?:{re.escape(folder + slash)}|(?<![\w./]))"
        text = re.sub(rf"{before}{re.escape(file)}:(\d+)", rf"In [{count}], line \1", text)
    return text


def frames(report: Report, log: CellLog) -> list[str]:
    """The lines of the cells and of the user's own files on the stack, as a traceback has them: innermost last."""
    report, _ = with_cells(report, log)
    thread = wording.shown_thread(report.crash)
    rows: list[tuple[str, str]] = []
    for frame in (thread.python if thread is not None else None) or ():
        cell = log.find(frame.source) if frame.source else None
        if cell is None and frame.owner != "script":
            continue
        place = f"In [{cell.count}], line {frame.line}" if cell is not None else f"{_file(frame)}:{frame.line}"
        if frame.function and frame.function != "<module>":
            place += f", in {frame.function}"
        rows.append((place, frame.code or ""))
    return _table(rows)


def _file(frame: Frame) -> str:
    return file_name(frame.source or "?")


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """``rows``: innermost first."""
    shown = rows[:_MOST_FRAMES]
    wide = max((len(place) for place, _ in shown), default=0)
    lines = [cut(clean(f"  {place:<{wide}}  {code}".rstrip()), _WIDTH) for place, code in reversed(shown)]
    left = len(rows) - len(shown)
    return [*([f"  ... {left} more"] if left else []), *lines]
