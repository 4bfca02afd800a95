"""What the rules on sanitizers share: the report that counts, and what it says of the guilty line."""

from __future__ import annotations

from collections.abc import Callable

from necropsy.model import Confidence, Crash, Culprit, Evidence, Message
from necropsy.predicates import messages, signal_of
from necropsy.rule import Found
from necropsy.rules.python import last_traceback

_GOES_ON = {"ThreadSanitizer", "Valgrind", None}
"""Those that report and go on: None is UBSan, which has no head line."""
_HALTS = {"SIGABRT", "SIGILL", "SIGTRAP"}
_FAULTS = {"SIGSEGV", "SIGBUS", "SIGFPE"}
SIGNALS = {"SEGV", "BUS", "FPE", "ILL", "ABRT", "TRAP", "stack-overflow", "invalid-access"}
"""Kinds that only say which signal came: the rules on signals say more of them."""
_SPOILS = ("heap-buffer-overflow", "heap-use-after-free", "double-free", "bad-free", "stack-buffer-overflow")
"""Kinds after which anything may happen: what dies later dies of them."""


def sanitizer_report(crash: Crash, wanted: Callable[[Message], bool]) -> tuple[Message, Confidence] | None:
    """The decisive report accepted by ``wanted``, and how certain it is that it ended the program.

    Address, leak and memory sanitizers end the program with their report (exit code 1, 23, 86, or an abort): the last
    one counts. The others usually go on: the first one that damages memory is the cause.
    """
    found = [message for message in messages(crash, "sanitizer") if wanted(message)]
    if not found or (crash.exit is not None and crash.exit.kind == "exited" and crash.exit.code == 0):
        return None
    ends = [message for message in found if message.fields.get("tool") not in _GOES_ON]
    if ends:
        message = ends[-1]
        if message.fields.get("kind") == "leak":
            if crash.fault is not None:
                return None
            # What was still allocated at the end: the program had ended well.
            return message, "certain" if crash.exit is not None and crash.exit.code == LEAKED else "possible"
        later = last_traceback(crash)
        ended = later is None or (later.line or 0) < (message.line or 0)
        return message, "certain" if ended else "likely"
    message = next((one for one in found if _spoils(one)), found[-1])
    signal = signal_of(crash)
    if signal in _FAULTS and crash.fault is not None and not _spoils(message):
        return None  # it went on, and died of what the rules on signals tell
    last = message is messages(crash, "sanitizer")[-1]
    if message.fields.get("tool") == "Valgrind":
        first = next((one for one in messages(crash, "sanitizer") if _spoils(one)), None)
        return message, "likely" if message is first else "possible"
    fits = signal in _FAULTS and any(word in message.fields.get("kind", "") for word in ("null", "misaligned", "zero"))
    return message, "likely" if (signal in _HALTS and last) or fits else "possible"


def kind_of(message: Message) -> str:
    """What the report calls the bug; empty where it does not say."""
    return message.fields.get("kind", "")


def _spoils(message: Message) -> bool:
    return kind_of(message).startswith(_SPOILS)


LEAKED = 23
"""What a program ends with that would have ended well but leaked (``LSAN_OPTIONS=exitcode``)."""


def tool_of(message: Message) -> str:
    """Whose report it is."""
    return message.fields.get("tool") or "UndefinedBehaviorSanitizer"


def around(message: Message) -> Found:
    """Where the access was, who allocated the block, and who freed it: the report's other stacks."""
    fields, where = message.fields, message.where
    found: Found = ()
    if "block" in fields:
        seen = f"{fields['distance']} bytes {fields['side']} a block of {fields['block']} bytes"
        found += (Evidence(claim="where the access was", seen=seen, where=where),)
    if "variable" in fields:
        found += (Evidence(claim="the local variable that was left", seen=fields["variable"], where=where),)
    for name, claim in (
        ("freed", "who freed it"),
        ("allocated", "who allocated it"),
        ("again", "the access before, by another thread"),
    ):
        if name in fields:
            found += (Evidence(claim=claim, seen=fields[name], where=where),)
    return found


def access_in(message: Message) -> str:
    """`` (write of 4 bytes)``; empty where the report does not say."""
    access, size = message.fields.get("access"), message.fields.get("size")
    if access is None:
        return ""
    return f" ({access} of {size} bytes)" if size is not None else f" ({access})"


def culprit_in(message: Message) -> Culprit | None:
    """The first frame of the report that is the program's own."""
    fields = message.fields
    function, file, module = fields.get("function") or None, fields.get("file"), fields.get("module")
    if function is None and file is None and module is None:
        return None
    line = fields.get("source_line")
    return Culprit(function=function, module=module, source=file, line=int(line) if line else None)


def place_in(message: Message) -> str:
    """`` in `f` at op.cc:12``; empty where the report does not say."""
    culprit = culprit_in(message)
    if culprit is None:
        return ""
    name = f" in `{culprit.function.partition('(')[0]}`" if culprit.function else ""
    if culprit.source is None:
        return name
    line = f":{culprit.line}" if culprit.line is not None else ""
    return f"{name} at {culprit.source.rsplit('/', 1)[-1]}{line}"
