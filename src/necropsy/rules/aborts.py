"""What the rules on SIGABRT share: the process ended itself, and its last words say why."""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Message
from necropsy.questions import died_by, messages, quote, signal_of
from necropsy.rule import Found


def aborted(crash: Crash) -> Found:
    """The process called abort(); nothing where another process sent the signal."""
    if crash.fault is not None and crash.fault.sent_by_itself is False:
        return ()
    return died_by(crash, "SIGABRT")


def may_have_aborted(crash: Crash) -> bool:
    """Nothing that is known speaks against an abort(): a bare log has no signal.

    On Windows abort() ends with 0xC0000409 (its subcode says *fatal app exit*) or, with reporting off, with exit code 3.
    """
    if crash.fault is not None:
        return crash.fault.signal == "SIGABRT" and crash.fault.sent_by_itself is not False
    end = crash.exit
    if end is None or end.kind in {"unknown", "lost"}:
        return True
    if end.ntstatus is not None:
        return end.ntstatus.value.lower() == "0xc0000409"
    return signal_of(crash) == "SIGABRT" or end.code == 3


def last(crash: Crash, *kinds: str) -> tuple[Message | None, Found]:
    """The last message of these kinds, and it as evidence: earlier ones may have been survived."""
    found = messages(crash, *kinds)
    if not found:
        return None, ()
    return found[-1], (quote(found[-1], "its last words"),)


def abort_text(crash: Crash) -> Found:
    """What glibc keeps of its own last words."""
    if not crash.abort_message:
        return ()
    return (Evidence(claim="the C library's last words", seen=crash.abort_message.strip(), where="__abort_msg"),)
