"""The line of the person who ran the command: the innermost one of their own code on the stack that is shown."""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.model import Frame, Report
from necropsy.reports import wording
from necropsy.reports.layout import file_name

_NOT_THEIRS = frozenset({"interpreter", "system", "framework", "package"})
_WITH_SIGNAL = frozenset({"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGABRT"})


@dataclass(frozen=True)
class UserLine:
    """A line of Python, as far as it is known."""

    file: str
    line: int
    function: str | None = None
    code: str | None = None
    """The source line, where the file had not changed since the program started."""

    @property
    def short(self) -> str:
        """``train.py:40``."""
        return f"{file_name(self.file)}:{self.line}"

    @property
    def place(self) -> str:
        """``train.py:40, in read_header``; at module level only the line."""
        named = self.function if self.function and self.function != "<module>" else None
        return self.short + (f", in {named}" if named else "")


def of_report(report: Report) -> UserLine | None:
    """The innermost line of the user's own files; failing that, of code without a file, or of nobody known; else None.

    Code without a file (``<string>``) may be what a library has generated, as TensorFlow does for a custom op.
    """
    thread = wording.shown_thread(report.crash)
    frames = [one for one in (thread.python if thread is not None else None) or () if one.source and one.line]
    scripts = [one for one in frames if one.owner == "script"]
    own = next((one for one in scripts if not (one.source or "").startswith("<")), None)
    own = own or next(iter(scripts), None) or next((one for one in frames if one.owner not in _NOT_THEIRS), None)
    return _of_frame(own) if own is not None else None


def _of_frame(frame: Frame) -> UserLine | None:
    if frame.source is None or frame.line is None:
        return None
    return UserLine(frame.source, frame.line, frame.function, frame.code)


def headline(report: Report) -> str:
    """The headline with the user's line in front: ``train.py:40, in fit, crashed (SIGSEGV): ...``."""
    said = wording.headline(report)
    line = of_report(report)
    if line is None or line.short in said:
        return said
    fault = report.crash.fault
    comma = "," if ", in " in line.place else ""
    from_outside = fault is not None and (fault.sent_by_itself is False or fault.signal not in _WITH_SIGNAL)
    if fault is None or from_outside:
        return f"{said.rstrip('.')}, while at {line.place}." if not said.endswith("?") else said
    what = "aborted" if fault.signal == "SIGABRT" else f"crashed ({fault.signal})"
    return f"{line.place}{comma} {what}: {said}"
