"""What the rules on SIGABRT share: the process ended itself, and its last words say why."""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Message
from necropsy.predicates import calls, died_by, messages, quote, sent_itself_abort, signal_of
from necropsy.rule import Found
from necropsy.rules.reporters import TERMINATE

FAST_FAIL = 0xC0000409
"""What every ``__fastfail`` ends with on Windows; its subcode says why."""
_SUBCODE_OF_ABORT = 7
_FATAL_APP_EXIT = 0x40000015
"""abort() up to Windows 7."""
CPP_EXCEPTIONS = frozenset({0xE06D7363, 0x20474343})
"""Codes of uncaught C++ exceptions if abort() was not called: Microsoft's (*msc*), and GCC's (libgcc's unwind-seh.c)."""


def aborted(crash: Crash) -> Found:
    """Evidence that the process called abort(); nothing if another process sent the signal.

    Supervisors may end a process that exceeds its time by SIGABRT (gunicorn, systemd's watchdog), and say so.
    """
    if crash.fault is not None and crash.fault.sent_by_itself is False:
        return ()
    if sent_itself_abort(crash) and not calls(crash, "(?:__GI_)?abort", first=12, claim="abort() was called"):
        return ()
    if crash.fault is None and aborted_by_another(crash):
        return ()
    return died_by(crash, "SIGABRT") or _aborted_on_windows(crash)


_SEND_SIGABRT = frozenset({"gunicorn", "systemd"})


def aborted_by_another(crash: Crash) -> bool:
    """Who ran the process says that its time was over, and is one who then sends SIGABRT."""
    return any(
        message.fields.get("by") in _SEND_SIGABRT and message.fields.get("why") == "time"
        for message in messages(crash, "ended-from-outside")
    )


def _aborted_on_windows(crash: Crash) -> Found:
    """Microsoft's C runtime: since Windows 8 a fast-fail with its own subcode, before that a status."""
    if crash.fault is not None:
        return ()
    if (said := messages(crash, "crt-abort")) and may_have_aborted(crash):
        return (quote(said[-1], "Microsoft's C runtime says that abort() was called"),)
    status = crash.exit.ntstatus if crash.exit is not None else None
    if status is None:
        return ()
    code, subcode = int(status.value, 16), status.fast_fail
    if code == _FATAL_APP_EXIT:
        seen = f"{status.value}, STATUS_FATAL_APP_EXIT"
    elif code == FAST_FAIL and subcode is not None and subcode.code == _SUBCODE_OF_ABORT:
        seen = f"{status.value} with subcode {subcode.code}, {subcode.name}: not a buffer overrun"
    else:
        return ()
    return (Evidence(claim="the process ended itself by abort()", seen=seen, where="exception record"),)


def may_have_aborted(crash: Crash) -> bool:
    """Whether an abort() is possible: a bare log has no signal.

    On Windows abort() ends with 0xC0000409 (its subcode says *fatal app exit*) or, with reporting off, with exit code
    3.
    """
    if crash.fault is not None:
        return crash.fault.signal == "SIGABRT" and crash.fault.sent_by_itself is not False
    end = crash.exit
    if end is None or end.kind in {"unknown", "lost", "timeout"}:
        # A job's time limit says nothing of the process that had died in it before.
        return True
    if end.ntstatus is not None:
        fast_fail = end.ntstatus.fast_fail
        code = int(end.ntstatus.value, 16)
        if code == FAST_FAIL and fast_fail is not None:
            return fast_fail.code == _SUBCODE_OF_ABORT
        return code in {FAST_FAIL, _FATAL_APP_EXIT} or code in CPP_EXCEPTIONS
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


def uncaught(crash: Crash) -> tuple[Message, ...]:
    """The messages of ``std::terminate``; without one, the exception found in memory while terminate ran.

    An exception in memory may have been caught long ago, so terminate must be on the stack.
    """
    found = messages(crash, "cpp-terminate")
    thrown = crash.cpp_exception
    if found or thrown is None or thrown.type is None or not aborted(crash):
        return found
    if not calls(crash, TERMINATE, first=16, claim="C++ called std::terminate"):
        return ()
    fields = {"type": thrown.type} | ({"what": thrown.what} if thrown.what else {})
    text = f"{thrown.type}: {thrown.what}" if thrown.what else thrown.type
    return (Message(kind="cpp-terminate", text=text, where=thrown.where, fields=fields),)
