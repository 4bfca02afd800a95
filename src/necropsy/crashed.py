"""``Crashed``: the death of a process as a Python exception."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

    from necropsy.model import Crash, Document, Frame, Report


class Crashed(Exception):  # noqa: N818 - public name: what happened, not an error of the tool
    """A process died. The text is the headline of its report.

    ``rule``: the rule that recognised the cause, or None. ``signal``: such as ``"SIGSEGV"``, or None where the process
    ended by an exit code. ``exit_code``: its exit code, or None. ``signature``: the same for the same crash.
    ``function``: the native function at fault. ``python``: the Python frames of the thread that died, innermost first,
    each ``{"function", "file", "line", "code"}``. ``report``: the whole ``Document``, or None where there is none.
    """

    rule: str | None = None
    signal: str | None = None
    exit_code: int | None = None
    signature: str | None = None
    function: str | None = None
    python: list[dict[str, Any]]
    report: Document | None = None

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.python = []
        self.__dict__.update(fields)

    @classmethod
    def of(cls, document: Document, pid: int | None = None, **fields: Any) -> Self:
        """The death of the document's command or of its process ``pid``; ``fields`` override what is found there."""
        from necropsy.reports import user_line

        report = own_report(document, pid)
        found: dict[str, Any] = {"report": document}
        command = next((one for one in document.processes if pid in {None, one.pid}), None)
        end = command.exit if command is not None else None
        if report is None:
            message = f"The process {_ended(end.signal, end.code)}." if end is not None else "The process died."
        else:
            end = end or report.crash.exit
            message = user_line.headline(report)
            found |= _concluded(report)
            if found["function"] and found["function"] not in message:
                message = f"{message.rstrip('.')}, in `{found['function']}`."
        if end is not None:
            found |= {"signal": end.signal, "exit_code": end.code}
        return cls(message, **{**found, **fields})

    @classmethod
    def without_report(cls, *, signal: str | None = None, exit_code: int | None = None, **fields: Any) -> Self:
        """A death of which only its end is known."""
        return cls(f"The process {_ended(signal, exit_code)}.", signal=signal, exit_code=exit_code, **fields)


def own_report(document: Document, pid: int | None = None) -> Report | None:
    """The report on the command's own process, or on ``pid``; the first one where no process was watched."""
    if pid is None and not document.processes:
        return next(iter(document.reports), None)
    wanted = document.processes[0].pid if pid is None else pid
    return next((report for report in document.reports if report.pid == wanted), None)


def signal_name(number: int) -> str:
    """``SIGSEGV``, or ``signal 40`` for one without a name, such as a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ended(signal: str | None, code: int | None) -> str:
    if signal is not None:
        return f"was killed by {signal}"
    return f"ended with exit code {code}" if code is not None else "died"


def _concluded(report: Report) -> dict[str, Any]:
    verdict = report.verdict
    culprit = verdict.culprit if verdict is not None else None
    return {
        "rule": verdict.rule if verdict is not None else None,
        "signature": report.signature,
        "function": culprit.function if culprit is not None else None,
        "python": [
            {"function": frame.function, "file": frame.source, "line": frame.line, "code": frame.code}
            for frame in _python_frames(report.crash)
        ],
    }


def _python_frames(crash: Crash) -> tuple[Frame, ...]:
    """Those of the thread that died; of a stopped process, of its main thread or else of any."""
    if crash.crashed_thread is not None and crash.crashed_thread.python:
        return crash.crashed_thread.python
    threads = sorted(crash.threads or (), key=lambda thread: thread.tid != crash.pid)
    return next((thread.python for thread in threads if thread.python), ())
