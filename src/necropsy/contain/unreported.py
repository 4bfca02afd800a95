"""The report on a worker of which no tracer has written one: how it ended, what it wrote, and what faulthandler did."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from necropsy import reporting, serialize
from necropsy.contain.unnamed_files import unnamed_file
from necropsy.crashed import signal_name
from necropsy.formats import log, windows_exits
from necropsy.model import Crash, Document, Exit, Fault, Gap, Process, RunRecord

_ABORTED = (3, windows_exits.FAST_FAIL)
"""Exit codes of abort() on Windows."""
_PARTS = ("fault", "threads", "registers", "modules")


@dataclass(frozen=True)
class End:
    """How a worker ended. ``status``: as ``subprocess`` has it; ``unwatched``: why it was not traced, if it was not."""

    pid: int
    status: int
    timed_out: bool = False
    unwatched: str | None = None

    def document(self, tail: str, faults: str) -> Document:
        """The document. ``tail``: the end of its stderr; ``faults``: what faulthandler wrote, which may be nothing.

        It is kept like others, if it is news.

        Raises an exception where it cannot be made.
        """
        ended, why = self._exit(), self.unwatched or "its tracer was gone"
        crashes: tuple[Crash, ...] = ()
        gaps: tuple[Gap, ...] = ()
        found = self._dump(faults)
        if found is not None or self.timed_out or self.status < 0 or ended.ntstatus is not None:
            crashes = (self._crash(ended, tail, found, why),)
        elif self.unwatched is not None:
            gaps = (Gap(part="process", why=why),)
        process = Process(pid=self.pid, role="command", exit=ended, executable=sys.executable)
        record = RunRecord(processes=(process,), crashes=crashes, log_tail=tail, gaps=gaps, timed_out=self.timed_out)
        with _file() as path:
            request = reporting.ReportRequest(tuple(sys.argv), json_file=path, quiet=True)
            reporting.report(request, record)
            return serialize.loads(path.read_bytes())

    def _exit(self) -> Exit:
        if self.timed_out:
            return Exit(kind="timeout")
        if self.status < 0:
            return Exit(kind="signaled", signal=signal_name(-self.status))
        if sys.platform == "win32" and windows_exits.is_status(self.status):
            return windows_exits.end_of(self.status, f"exit code 0x{self.status:08X}")
        return Exit(kind="exited", code=self.status)

    def _dump(self, faults: str) -> Crash | None:
        """The last dump of faulthandler, if it is of this end: there may be others, of what the program dealt with."""
        pieces = log.digest(io.BytesIO(faults.encode())).pieces if faults else ()
        found = pieces[-1].crash if pieces else None
        return found if found is not None and found.exit is not None and self._is_of(found.exit) else None

    def _is_of(self, seen: Exit) -> bool:
        if self.timed_out or self.status < 0:
            return seen.kind == "timeout" if self.timed_out else seen.signal == signal_name(-self.status)
        if seen.ntstatus is not None:
            return int(seen.ntstatus.value, 16) == self.status
        return seen.signal == "SIGABRT" and self.status in _ABORTED

    def _crash(self, ended: Exit, tail: str, found: Crash | None, why: str) -> Crash:
        threads = found.threads if found is not None else None
        if threads and self.timed_out:
            threads = tuple(reversed(threads))  # no thread is marked; the oldest, which is the main one, is the last
        fault = windows_exits.fault_of(self.status) if ended.ntstatus is not None else None
        if found is not None and found.exit is not None and found.exit.signal == "SIGABRT" and self.status >= 0:
            fault = Fault(signal="SIGABRT", handled_first=True)
        known = "how it ended, its log and its Python stacks" if threads else "how it ended and its log"
        lacking = [part for part in _PARTS if part != "threads" or not threads]
        return Crash(
            pid=self.pid,
            exit=ended,
            fault=fault,
            threads=threads,
            log_tail=tail,
            messages=tuple(log.scan(tail)),
            gaps=tuple(Gap(part=part, why=f"{why}, so only {known} are known") for part in lacking),
        )


@contextlib.contextmanager
def _file() -> Iterator[Path]:
    """A file for the document, which goes with it."""
    if sys.platform == "win32":
        with tempfile.TemporaryDirectory(prefix="necropsy-") as folder:
            yield Path(folder, "report.json")
        return
    handle = unnamed_file("report")
    try:
        yield Path(f"/dev/fd/{handle}")
    finally:
        os.close(handle)
