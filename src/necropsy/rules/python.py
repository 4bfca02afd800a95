"""What the rules on Python exceptions share: a process that ended with a traceback and no signal."""

from __future__ import annotations

from necropsy.model import Crash, Culprit, Evidence, Message, PythonPlace
from necropsy.questions import messages
from necropsy.rule import Found


def last_traceback(crash: Crash) -> Message | None:
    """The last traceback that was printed."""
    found = messages(crash, "python-traceback")
    return found[-1] if found else None


def exited_badly(crash: Crash) -> bool:
    """It ended by itself with a code that is not 0, or nothing is known of its end."""
    if crash.fault is not None:
        return False
    end = crash.exit
    if end is None or end.kind in {"unknown", "lost"}:
        return True
    return end.kind == "exited" and end.code not in {None, 0} and end.ntstatus is None and (end.code or 0) <= 128


def ended_by_exception(crash: Crash) -> bool:
    """A traceback, and an end that fits to it: Python exits with 1 after an exception that nobody caught."""
    return last_traceback(crash) is not None and exited_badly(crash)


def exit_evidence(crash: Crash) -> Found:
    """How the process ended, where that is known."""
    if crash.exit is None or crash.exit.code is None:
        return ()
    return (
        Evidence(
            claim="the process ended by itself, no signal was involved",
            seen=f"exit code {crash.exit.code}",
            where="exit status",
        ),
    )


def place_in(message: Message) -> PythonPlace | None:
    """The innermost line of the user's own code in a traceback, else the innermost line."""
    fields = message.fields
    prefix = "user_" if "user_file" in fields else ""
    file = fields.get(f"{prefix}file")
    if file is None:
        return None
    line = fields.get("user_line" if prefix else "source_line")
    return PythonPlace(function=fields.get(f"{prefix}function"), file=file, line=int(line) if line else None)


def python_culprit(crash: Crash) -> Culprit | None:
    """Who raised it, from the last traceback."""
    message = last_traceback(crash)
    place = place_in(message) if message else None
    return Culprit(function=place.function, source=place.file, line=place.line, python=place) if place else None
