"""``%load_ext necropsy``: ``%%necropsy`` runs a cell in a process of its own, ``%necropsy`` shows the last death."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import threading
from pathlib import Path
from typing import Any, NoReturn

from necropsy.contain.process import TimedOut
from necropsy.crashed import Crashed
from necropsy.notebook import death_text, kept_death
from necropsy.notebook.cell_log import Cell, CellLog
from necropsy.notebook.forked_cell import ForkedCell, keep_a_watcher, shown_as

_NONE = "Nothing has died in this notebook yet."


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext necropsy`` calls."""
    Magics(shell).register()
    threading.Thread(target=_get_ready, daemon=True, name="necropsy").start()


def _get_ready() -> None:
    with contextlib.suppress(OSError):  # the first cell will say what is missing
        keep_a_watcher()


class Magics:
    """The two magics of one notebook."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.last: str | None = None

    def register(self) -> None:
        """Make them known to IPython."""
        self.shell.register_magic_function(self.line, "line", "necropsy")
        self.shell.register_magic_function(self.cell, "cell", "necropsy")

    def line(self, line: str) -> None:
        """Show the last death of this notebook again."""
        if line.strip():
            raise _usage_error("%necropsy takes no arguments; %%necropsy at the top of a cell runs the cell")
        print(self.last or _of_the_kernel_before(self.shell) or _NONE)

    def cell(self, line: str, cell: str) -> None:
        """Run this cell in a process of its own: %%necropsy [-o NAMES] [-t SECONDS].

        The process has copies of all variables. Those named by -o (one or more, separated by commas or spaces) come
        back. After SECONDS it is ended. If it crashes, the error says why, and the notebook keeps all its variables.
        """
        names, seconds = _arguments(line)
        # The line of the magic counts as line 1; only another magic must be in the first line.
        body = cell if cell.lstrip().startswith("%%") else f"# %%necropsy\n{cell}"
        try:
            ForkedCell(self.shell, body, names).run(seconds)
        except Crashed as crashed:
            self.last = _explained(crashed, _cells(self.shell, body))
            raise shown_as(crashed, self.last.splitlines()) from None


def _cells(shell: Any, body: str) -> CellLog:
    """The cells of this notebook, with ``body`` as the one that ran in a process of its own."""
    # IPython counts on before or after a cell, depending on its version; the result of the cell has its number.
    number = getattr(getattr(shell.displayhook, "exec_result", None), "execution_count", None)
    ran = Cell(number or shell.execution_count, body, {})
    history = enumerate(shell.history_manager.input_hist_raw)
    return CellLog((*(Cell(count, code, {}) for count, code in history), ran), ran)


def _explained(crashed: Crashed, log: CellLog) -> str:
    """The text of its report; the exception speaks of cells from then on."""
    name = type(crashed).__name__
    count = log.running.count if log.running is not None else 0
    if crashed.report is None:
        return f"{name}: {crashed}"
    report = crashed.report.reports[0]
    names = death_text.with_cells(report, log)[1]
    own = [place for place, frame in enumerate(crashed.python) if log.find(frame["file"] or "") is log.running]
    crashed.python = crashed.python[: own[-1] + 1] if own else crashed.python
    crashed.args = (death_text.in_words(str(crashed), names),)
    if isinstance(crashed, TimedOut):
        return "\n".join([f"{name}: {crashed}. It was at:", *death_text.frames(report, log)])
    lead = f"{name}: In [{count}] died in its own process; the kernel and its variables are as before."
    return death_text.of_cell(crashed.report, log, lead)


def _of_the_kernel_before(shell: Any) -> str | None:
    """What killed the kernel that this one was started in place of."""
    application = getattr(getattr(shell, "kernel", None), "parent", None)
    path = getattr(application, "abs_connection_file", None)
    return kept_death.read(Path(path)) if path else None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _usage_error(f"{message}; usage: %%necropsy [-o NAMES] [-t SECONDS]")


def _arguments(line: str) -> tuple[list[str], float | None]:
    """The names of the variables that come back, and the time limit.

    Raises UsageError, which IPython shows in one line.
    """
    parser = _Parser(prog="%%necropsy", add_help=False)
    parser.add_argument("-o", "--out", nargs="+", action="extend", default=[])
    parser.add_argument("-t", "--timeout", type=float)
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise _usage_error(f"{error}; usage: %%necropsy [-o NAMES] [-t SECONDS]") from None
    given = parser.parse_args(words)
    names = [name for word in given.out for name in word.split(",") if name]
    for name in names:
        if not name.isidentifier():
            raise _usage_error(f"{name!r} is not the name of a variable")
    seconds: float | None = given.timeout
    if seconds is not None and not 0 < seconds < float("inf"):
        raise _usage_error(f"-t takes a number of seconds above 0, not {seconds:g}")
    return names, seconds


def _usage_error(message: str) -> Exception:
    from IPython.core.error import UsageError

    error: Exception = UsageError(message)
    return error
