"""The process that debugs one which has asked for it by ``enable()``, on Windows.

It holds the dying process until the report is written. Where it is killed, the system detaches the program, which runs
on. The children of the program are not followed: Windows attaches to one process only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from necropsy.capture.run_options import RunOptions, RunRecord
from necropsy.capture.windows import debug_events as events
from necropsy.capture.windows import winapi
from necropsy.capture.windows.debuggee import Debuggee
from necropsy.capture.windows.debugger import BREAKPOINTS, Debugger
from necropsy.capture.windows.log_source import Stderr
from necropsy.reporting import ReportRequest, loading, report
from necropsy.watch.windows_client import RELEASE, YES

_LOOK_S = 0.1


class _Released(Exception):  # noqa: N818 - no error
    """The program wants to be debugged no longer."""


class _Attached(Debugger):
    def __init__(self, log: Stderr, options: RunOptions, *, show: bool) -> None:
        super().__init__((), log, options)
        self._log, self._show = log, show
        self._is_told = False
        self.is_released = threading.Event()

    def _patience(self) -> float | None:
        return min(super()._patience() or _LOOK_S, _LOOK_S)

    def _load(self) -> None:
        if self.is_released.is_set():
            raise _Released
        super()._load()

    def _raised(self, process: Debuggee, event: events.RaisedEvent) -> bool:
        handled = super()._raised(process, event)
        if event.code in BREAKPOINTS and not self._is_told:
            self._is_told = True
            _say(YES)  # what is loaded is known, and from now on no death is missed
        return handled

    def _ended(self, process: Debuggee, event: events.ProcessEnded) -> None:
        super()._ended(process, event)
        with contextlib.suppress(Exception):  # it is to end, whatever is wrong with us
            self._report()

    def _report(self) -> None:
        if not self.crashes:
            return
        tail, gaps = self._log.tail()
        record = RunRecord(
            processes=self.nouns(),
            crashes=tuple(self.crashes),
            log_tail=tail,
            gaps=(*self.gaps, *gaps),
            cores=self.cores.kept,
        )
        report(ReportRequest(record.processes[0].command or (), quiet=not self._show), record)


def main(pid: int, *, show: bool, keep: bool) -> None:
    """Attach, say so, and follow the process to its end."""
    if not keep:
        os.environ["NECROPSY_KEEP"] = "0"
    debugger = _Attached(Stderr("auto"), RunOptions(loading=loading), show=show)
    if not winapi.call("DebugActiveProcess", pid):
        _say(f"the debugger cannot attach: {winapi.failure()}\n".encode())
        return
    winapi.call("DebugSetProcessKillOnExit", 0)
    threading.Thread(target=_listen, args=(debugger.is_released,), daemon=True).start()
    try:
        debugger.follow(pid)
    except _Released:
        debugger.let_go(pid)
        _say(YES)
    except Exception:
        debugger.let_go(pid)
        raise


def _listen(is_released: threading.Event) -> None:
    """The end of the pipe is the end of the process, which the debugger sees by itself."""
    if sys.stdin.buffer.readline() == RELEASE:
        is_released.set()


def _say(words: bytes) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.buffer.write(words)
        sys.stdout.buffer.flush()
