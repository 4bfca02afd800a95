"""What rules on messages share: whether what a message tells is what ended the program."""

from __future__ import annotations

from necropsy.model import Confidence, Crash, Culprit, Message
from necropsy.predicates import messages, signal_of, stack_exhausted
from necropsy.rules.aborts import CPP_EXCEPTIONS, FAST_FAIL, aborted, may_have_aborted
from necropsy.rules.culprit import culprit_of
from necropsy.rules.loading import ended_by
from necropsy.rules.python import ended_by_exception, exited_badly, last_traceback, python_culprit
from necropsy.rules.windows_loader import status_of

_OF_THE_LINKER = ("undefined-symbol", "static-tls", "missing-library", "bad-library-file", "symbol-version")


def told_of_the_end(crash: Crash, message: Message, *, decisive: bool = True) -> Confidence | None:
    """How certain it is that the trouble in ``message`` ended the program; None if it certainly did not.

    The uncaught exception, or the line with which the program aborted, is decisive. ``decisive`` is False for messages
    that programs usually survive: they only count if the end quotes them.
    """
    fault = crash.fault
    if stack_exhausted(crash) or (crash.stop_request is not None and not decisive):
        return None  # the full stack, or the signal that asked it to end, says why it ended
    if fault is not None and not aborted(crash):
        return "possible" if decisive and fault.signal in {"SIGSEGV", "SIGBUS"} else None
    if gave_up(crash):
        if message.fields.get("level") == "F" or _is_check(crash, message):
            return "certain"
        return "likely" if decisive else None
    if may_have_aborted(crash) and may_be_windows_abort(crash):
        # Mostly abort(), and nothing says so for sure: a fatal line decides, any other only speaks for it.
        if message.fields.get("level") == "F" or _is_check(crash, message):
            return "certain"
        return "likely" if decisive else "possible"
    if (signal := signal_of(crash)) is not None:
        return "possible" if decisive and signal in {"SIGSEGV", "SIGBUS"} else None
    quoted = ended_by(crash, message.text)
    if quoted == "certain" and last_traceback(crash) is None and message not in messages(crash, *_OF_THE_LINKER)[-1:]:
        return None  # 127 is the linker's own exit code: its last words count
    if quoted is not None:
        return quoted
    if not decisive:
        return None
    if crash.exit is not None and crash.exit.kind == "lost":
        return "possible"  # it is gone, and may have ended by anything
    if ended_by_exception(crash) or (exited_badly(crash) and crash.exit is not None):
        return "likely"
    # A line that somebody shows without its end: it is why they ask.
    return "possible" if exited_badly(crash) else None


def gave_up(crash: Crash) -> bool:
    """It ended by abort(), or on Windows by the C++ exception that nobody caught: the reason is not the processor's."""
    return bool(aborted(crash)) or status_of(crash) in CPP_EXCEPTIONS


def may_be_windows_abort(crash: Crash) -> bool:
    """0xC0000409 without its subcode, or exit code 3: abort() with error reporting and without it."""
    return status_of(crash) == FAST_FAIL or (crash.exit is not None and crash.exit.code == 3)


def _is_check(crash: Crash, message: Message) -> bool:
    return any(
        other.kind in {"check-failed", "non-ok-status"} and (other.line == message.line or message.text in other.text)
        for other in crash.messages or ()
    )


_NEAR = 3
"""Lines below an operation's failure in which TensorFlow 1 names its node."""


def on_gpu(crash: Crash, message: Message) -> bool:
    """A tensor that got no memory was to lie on the GPU; TensorFlow 1 names its device a line later."""
    allocator, device = message.fields.get("allocator", "").lower(), message.fields.get("device", "")
    if allocator:
        return "gpu" in allocator and "host" not in allocator
    if not device and message.line is not None:
        nodes = (one for one in messages(crash, "tf-node-device") if one.line is not None)
        device = next((one.fields["device"] for one in nodes if 0 <= (one.line or 0) - message.line <= _NEAR), "")
    return "gpu" in device.lower()


def teller(crash: Crash) -> Culprit | None:
    """Who ran into it: by the stack where there is one, else by the traceback."""
    return culprit_of(crash) or python_culprit(crash)


def is_of_other_version(message: Message) -> bool:
    """A part of cuDNN was found, and lacks a function: Windows' error 127, or a symbol that is not there."""
    error = message.fields.get("error", "")
    return error.endswith(" 127") or "undefined symbol" in error
