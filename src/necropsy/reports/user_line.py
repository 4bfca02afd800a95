"""The line of the person who ran the command: the innermost one of their own code on the stack that is shown."""

from __future__ import annotations

from dataclasses import dataclass

from necropsy.model import Frame, Report
from necropsy.reports import user_values, wording
from necropsy.reports.terminal import clean, columns, file_name

_NOT_THEIRS = frozenset({"interpreter", "system", "framework", "package"})
_GENERATED = "__autograph_generated_file"
"""A file of tf.function's: nobody has written it, and it is gone after the run."""
_WITH_SIGNAL = frozenset({"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGABRT"})


@dataclass(frozen=True)
class UserLine:
    """A line of Python, as far as it is known."""

    file: str
    line: int
    function: str | None = None
    code: str | None = None
    """The source line, where the file had not changed since the program started."""
    columns: tuple[int, int] | None = None
    """Which part of ``code`` ran, where that is not the whole line."""
    values: str | None = None
    """What the variables on it were: ``n = 0, batch: float32 [512, 3]``."""
    around: tuple[tuple[int, str], ...] = ()
    """The source line and those beside it, each with its number; empty where they are not known."""

    @property
    def carets(self) -> str | None:
        """The line to show below ``code``, with carets under the part that ran; None where that is not known."""
        if self.code is None or self.columns is None or clean(self.code) != self.code:
            return None
        return " " * columns(self.code[: self.columns[0]]) + "^" * columns(self.code[slice(*self.columns)])

    def carets_below(self, line: str) -> str:
        """The carets below ``line``, one of ``around``, which may be indented; empty where they are not known."""
        return " " * (len(line) - len(line.lstrip())) + self.carets if self.carets is not None else ""

    def ran(self, line: str) -> tuple[str, str, str]:
        """``line``, one of ``around``, as what is before the part that ran, that part, and what is behind it.

        The part is empty where it is not known.
        """
        if self.columns is None or self.code is None or line.strip() != self.code:
            return line, "", ""
        first, end = (len(line) - len(line.lstrip()) + column for column in self.columns)
        return line[:first], line[first:end], line[end:]

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
    """The line that put the op into its graph; else the innermost line of the user's own files.

    Failing that, one of code without a file, or of nobody known, or the line on which another thread waits for this
    one; else None. Code without a file (``<string>``) may be what a library has generated, as TensorFlow does for a
    custom op.
    """
    made = next(iter((report.crash.operation.python if report.crash.operation is not None else None) or ()), None)
    if made is not None and made.source is not None and made.line is not None:
        return UserLine(made.source, made.line, made.function, made.code)
    thread = wording.shown_thread(report.crash)
    frames = [
        one
        for one in (thread.python if thread is not None else None) or ()
        if one.source and one.line and _GENERATED not in one.source
    ]
    scripts = [one for one in frames if one.owner == "script"]
    own = next((one for one in scripts if not (one.source or "").startswith("<")), None)
    own = own or next(iter(scripts), None) or next((one for one in frames if one.owner not in _NOT_THEIRS), None)
    return (_of_frame(own) if own is not None else None) or _of_culprit(report)


def _of_culprit(report: Report) -> UserLine | None:
    """The line of Python that the verdict names, where the thread that is shown has none of the user's."""
    culprit = report.verdict.culprit if report.verdict is not None else None
    place = culprit.python if culprit is not None else None
    if place is None or place.file is None or place.line is None or _GENERATED in place.file:
        return None
    return UserLine(place.file, place.line, place.function, _in_traceback(report, place.file, place.line))


def _in_traceback(report: Report, file: str, line: int) -> str | None:
    """The source line as a traceback of the process shows it."""
    for message in report.crash.messages or ():
        fields = message.fields
        for which, number in (("", "source_line"), ("user_", "user_line")):
            if fields.get(f"{which}file") == file and fields.get(number) == str(line) and fields.get(f"{which}code"):
                return fields[f"{which}code"]
    return None


def _of_frame(frame: Frame) -> UserLine | None:
    if frame.source is None or frame.line is None:
        return None
    numbered = tuple(enumerate(frame.excerpt, frame.line - 1)) if len(frame.excerpt) == 3 else ()
    around = tuple((number, text) for number, text in numbered if number == frame.line or text.strip())
    return UserLine(
        frame.source, frame.line, frame.function, frame.code, frame.columns, user_values.spelled(frame), around
    )


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
