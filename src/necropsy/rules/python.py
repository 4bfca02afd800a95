"""What the rules on Python exceptions share: a process that ended with a traceback and no signal."""

from __future__ import annotations

import re

from necropsy.lazy_re import regex
from necropsy.model import Crash, Culprit, Evidence, Message, PythonPlace
from necropsy.predicates import messages
from necropsy.rule import Found


def last_traceback(crash: Crash) -> Message | None:
    """The last traceback that was printed."""
    found = _raised(crash)
    return found[-1] if found else None


def _raised(crash: Crash) -> list[Message]:
    """Tracebacks that ended Python; exceptions in ``__del__`` are printed and ignored."""
    return [message for message in messages(crash, "python-traceback") if "ignored" not in message.fields]


_OF_ANOTHER = regex(
    r"(?:ChildFailedError|BrokenProcessPool|TerminatedWorkerError|WorkerLostError|DeadKernelError|ProcessExitedException|"
    r"ActorDiedError|WorkerCrashedError|RayActorError|KilledWorker)$"
)
_TOLD_OF_ANOTHER = regex(
    r"DataLoader worker \(pid|Command .{0,200}python.{1,400}(?:died with <Signals|returned non-zero exit)"
)
"""Exceptions by which a launcher or a parent tells that another process has ended."""


def own_traceback(crash: Crash) -> Message | None:
    """The last traceback about the process itself, or about another one whose end is unknown."""
    found = _raised(crash)
    own = [message for message in found if not tells_of_another(message)]
    if own or not found:
        return own[-1] if own else None
    return None if crash.exit is not None and crash.exit.kind in {"lost", "signaled"} else found[-1]


def tells_of_another(message: Message) -> bool:
    """The exception says that another process has ended: what it ended of stands elsewhere."""
    text = message.fields.get("text", "")
    return bool(_OF_ANOTHER.search(message.fields.get("exception", "")) or _TOLD_OF_ANOTHER.match(text))


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


_PARSES = regex(r"\b(?:eval|exec|compile|literal_eval|ast\.parse|import_module|__import__)\(|^(?:import|from) ")


def at_the_parsers_limit(crash: Crash) -> bool:
    """Whether a MemoryError without a message is at a line that parses source: CPython's parser hit its nesting limit.

    Until 3.11 (``Parser/pegen.c``, MAXSTACK: 6,000 levels); later versions say so in the message.
    """
    message = last_traceback(crash)
    fields = message.fields if message is not None else {}
    return (
        fields.get("exception") == "MemoryError"
        and not fields.get("text")
        and bool(_PARSES.search(fields.get("code", "")))
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
    """Who raised it, from the last traceback that is no launcher's."""
    message = own_traceback(crash) or last_traceback(crash)
    place = place_in(message) if message else None
    return Culprit(function=place.function, source=place.file, line=place.line, python=place) if place else None


def package_of(file: str) -> str | None:
    """The package that a file belongs to, by the folder into which it was installed."""
    match = re.search(r"(?:site|dist)-packages[/\\\\](?P<package>\w+)", file)
    return match["package"] if match else None
