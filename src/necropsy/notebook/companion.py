"""The process beside a watched kernel: when the kernel dies, it brings the report to the notebook.

It waits for the watcher's report, shows it below the cell that ran (``dead_cell``), and writes it to the stderr that
the kernel was started with, which is the server's. Where no front end received it, the next kernel shows it
(``kernel_extension``). It ends after that, or with the kernel.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from necropsy.model import Document
from necropsy.notebook import cell_log, dead_cell, death_text, kept_death
from necropsy.watch import asking

_FOREVER_S = 1e8
_REPORT_S = 10.0
"""How long after the kernel's end its report may take."""
_SUBSCRIBERS_S = 2.5
"""How long the front end has to come back to the address of the dead kernel."""
_CLOSED_S = 60.0
"""How long after a kernel's end it waits for Jupyter to remove the connection file, or to start the next kernel."""
_LOOK_S = 0.25
_RESTART_S = 1.0
"""Where a kernel was killed and the next one starts within half of this time, its user or Jupyter killed it."""
_SUCCESSOR_S = 4.0
"""How long the next kernel is waited for, where that decides whether a death is news. Jupyter looks every 3 s."""
_CREDENTIALS = struct.Struct("3i")


class Companion:
    """One kernel's."""

    def __init__(self, connection_file: Path, pid: int, server: int, cells: int) -> None:
        """``server``: who started the kernel; ``cells``: the descriptor of its ``cell_log``, -1 where it has none."""
        self.connection_file, self.pid, self.cells = connection_file, pid, cells
        self.server = Path(f"/proc/{server}/stat")
        self.connection = _connection(connection_file)
        self.document: Document | None = None
        self.lines: list[socket.socket] = []
        """The front ends' connections to the kernel, from the moment on at which it dies."""
        self.died = 0.0
        self.release: Callable[[], None] = lambda: None
        """Lets the dying kernel go: until then Jupyter does not notice its death."""
        self.told, self.ended = threading.Event(), threading.Event()
        self.successor: socket.socket | None = None
        self.successor_started = 0.0
        self.replaced = threading.Event()
        """The next kernel of this notebook waits for the address."""

    def run(self) -> None:
        """From the kernel's start to its end."""
        kernel = os.pidfd_open(self.pid)
        for part in (self._listen, self._ask, self._hold, lambda: self._see_end(kernel)):
            threading.Thread(target=part, daemon=True).start()
        self.told.wait()
        document = self.document
        if document is not None and not _from_outside(document):
            log = self._log()
            self._tell(death_text.of_kernel(document, log), log)
            self.release()
        else:
            self.release()
            self.ended.wait()
            log = self._log()
            if document is not None and not self._was_ended(log, _SUCCESSOR_S):
                self._tell(death_text.of_kernel(document, log), log)
            elif document is None and log.running is not None and not self._was_ended(log, _RESTART_S):
                self._tell(death_text.without_report(log.running), log)
        self.ended.wait()
        self._wait_for_the_end()

    def _ask(self) -> None:
        found, self.release = asking.held_report(self.pid, _FOREVER_S)
        self.document = death_text.only(found, self.pid) if found is not None else None
        self.told.set()

    def _hold(self) -> None:
        if self.connection is not None and self.connection.address[0] == "tcp":
            self.lines = asking.connections(self.pid, self.connection.address[2], _FOREVER_S)

    def _see_end(self, kernel: int) -> None:
        select.select([kernel], [], [])
        self.died = time.time()
        self.ended.set()
        if not self.told.wait(_REPORT_S):  # it is written before the kernel ends, unless it was killed
            self.told.set()

    def _log(self) -> cell_log.CellLog:
        return cell_log.read(self.cells) if self.cells >= 0 else cell_log.CellLog()

    def _was_ended(self, log: cell_log.CellLog, seconds: float) -> bool:
        """Jupyter ended it: it asked for that, removed the file, started the next one at once, or has ended itself."""
        until = time.monotonic() + seconds
        while not log.asked_to_end and not self._is_closed() and time.monotonic() < until:
            if self.replaced.wait(_LOOK_S):
                return self.successor_started - self.died < _RESTART_S / 2
        return log.asked_to_end or self._is_closed()

    def _is_closed(self) -> bool:
        """Nobody will start the next kernel of this notebook."""
        if not self.connection_file.exists():
            return True
        try:
            return self.server.read_text("utf-8", "replace").rpartition(")")[2].split()[0] in {"Z", "X"}
        except (OSError, IndexError):
            return True

    def _listen(self) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(kept_death.meeting_place(self.connection_file))
            listener.listen(1)
            self.successor = listener.accept()[0]  # it waits until this process ends
            pid = _CREDENTIALS.unpack(self.successor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            self.successor_started = _started(pid)
            self.replaced.set()

    def _tell(self, text: str, log: cell_log.CellLog) -> None:
        # First: whoever sees it in the notebook, and looks there, finds it.
        with contextlib.suppress(OSError):
            os.write(2, f"\n{text}\n".encode(errors="backslashreplace"))
        shown = self._show_at_once(text, log.running)
        with contextlib.suppress(OSError):
            kept_death.keep(self.connection_file, text, shown=shown)
        # Read at the start: Jupyter writes the next kernel's address into the file before it starts it.
        connection = self.connection or _connection(self.connection_file)
        if shown or connection is None or log.running is None:
            return
        if dead_cell.show(connection, log.running, text, self._is_noticed, seconds=_SUBSCRIBERS_S):
            with contextlib.suppress(OSError):
                kept_death.keep(self.connection_file, text, shown=True)

    def _show_at_once(self, text: str, cell: cell_log.Cell | None) -> bool:
        try:
            return cell is not None and self.connection is not None and self._send(self.connection, cell, text)
        finally:
            for line in self.lines:
                line.close()

    def _send(self, connection: dead_cell.Connection, cell: cell_log.Cell, text: str) -> bool:
        return not self._is_noticed() and dead_cell.send(connection, cell, text, self.lines)

    def _is_noticed(self) -> bool:
        """Jupyter knows that the kernel is dead: from then on, JupyterLab drops what comes for the cell that ran."""
        return self.replaced.is_set() or not Path(f"/proc/{self.pid}").exists()

    def _wait_for_the_end(self) -> None:
        """Stay until the next kernel has had the death to show, or Jupyter has closed the notebook or is gone."""
        until = time.monotonic() + _CLOSED_S
        while kept_death.read(self.connection_file) is not None and time.monotonic() < until:
            if self._is_closed() or self.replaced.wait(_LOOK_S):
                break
        kept_death.sweep(self.connection_file)


def _connection(path: Path) -> dead_cell.Connection | None:
    """None where messages cannot be sent, or where the kernel has not chosen its ports yet."""
    with contextlib.suppress(OSError, ValueError):
        found = dead_cell.Connection(path)
        return found if found.address[2] else None
    return None


def _started(pid: int) -> float:
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def _from_outside(document: Document) -> bool:
    """Somebody killed it, and nothing says why."""
    verdict = document.reports[0].verdict
    fault = document.reports[0].crash.fault
    ours = fault is not None and fault.sent_by_itself is True
    return (verdict is None or verdict.rule == "killed-by-signal") and not ours


def main(connection_file: str, pid: int, server: int, cells: int) -> None:
    """The process."""
    os.chdir("/")
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("necropsy-note")
    Companion(Path(connection_file), pid, server, cells).run()
