"""What the rules on sanitizers share: the report that ended the program, and what it says of the guilty line."""

from __future__ import annotations

from collections.abc import Callable

from necropsy.model import Confidence, Crash, Culprit, Message
from necropsy.questions import messages, signal_of
from necropsy.rules.python import last_traceback

_GOES_ON = {"ThreadSanitizer", None}
"""Those that report and go on: None is UBSan, which has no head line."""


def sanitizer_report(crash: Crash, wanted: Callable[[str], bool]) -> tuple[Message, Confidence] | None:
    """The last report of a kind that ``wanted`` accepts, and how sure it is that it ended the program.

    Address, leak and memory sanitizer end the program with their report (exit code 1, 23, 86, or an abort); the others
    go on unless they are told to halt.
    """
    found = [message for message in messages(crash, "sanitizer") if wanted(message.fields.get("kind", ""))]
    if not found or (crash.exit is not None and crash.exit.kind == "exited" and crash.exit.code == 0):
        return None
    message = found[-1]
    if message.fields.get("tool") not in _GOES_ON:
        later = last_traceback(crash)
        ended = later is None or (later.line or 0) < (message.line or 0)
        return message, "certain" if ended else "likely"
    halted = signal_of(crash) in {"SIGABRT", "SIGILL", "SIGTRAP"} and message is messages(crash, "sanitizer")[-1]
    return message, "likely" if halted else "possible"


def culprit_in(message: Message) -> Culprit | None:
    """The first frame of the report that is the program's own."""
    fields = message.fields
    function, file = fields.get("function"), fields.get("file")
    if function is None and file is None:
        return None
    line = fields.get("source_line")
    return Culprit(function=function, module=fields.get("module"), source=file, line=int(line) if line else None)


def place_in(message: Message) -> str:
    """`` in `f` at op.cc:12``; empty where the report does not say."""
    culprit = culprit_in(message)
    if culprit is None:
        return ""
    name = f" in `{culprit.function.partition('(')[0]}`" if culprit.function else ""
    return name + (f" at {culprit.source.rsplit('/', 1)[-1]}:{culprit.line}" if culprit.source else "")
