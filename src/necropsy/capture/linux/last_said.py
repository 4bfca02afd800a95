"""What a process said last, where its stderr was not read, as messages and last words of a crash."""

from __future__ import annotations

import msgspec

from necropsy.capture.process.secret_bytes import masked_log
from necropsy.capture.supervision import Said
from necropsy.formats import log, tracebacks
from necropsy.model import Crash, LastWords, Message

_LINES = 6


def as_crash(pid: int, said: Said) -> Crash:
    """The process with what it said, and nothing else."""
    text = masked_log(said.text)
    where = f"memory of process {pid}, not read from stderr"
    found = tuple(_known(one, said) for one in log.scan(text, where=where))
    raised = said.kind in {"uncaught", "handled"}
    lines = text.rstrip().splitlines()[-1:] if raised else text.strip().splitlines()[-_LINES:]
    return Crash(
        pid=pid,
        messages=found,
        last_words=LastWords(text="\n".join(lines), where="found in memory, not read from stderr") if lines else None,
    )


def _known(message: Message, said: Said) -> Message:
    if message.kind != tracebacks.KIND or said.kind != "handled":
        return message
    return msgspec.structs.replace(message, fields={**message.fields, "handled": "yes"})
