"""An exit status, and nothing else, as a crash: how it ended is known, everything else is a gap."""

from __future__ import annotations

from necropsy.formats import exit_status
from necropsy.formats.statuses import subcodes
from necropsy.model import Crash, Exit, FastFail, Gap

ONLY_A_NUMBER = "only the exit status is known"
_PARTS = ("fault", "threads", "modules", "log_tail", "messages", "environment")


def from_reading(code: exit_status.Code, reading: exit_status.Reading | None = None) -> Crash:
    """The crash that one reading of a code (the likeliest by default) speaks of."""
    reading = reading or code.best
    return Crash(exit=_exit(code, reading), gaps=tuple(Gap(part=part, why=ONLY_A_NUMBER) for part in _PARTS))


def _exit(code: exit_status.Code, reading: exit_status.Reading) -> Exit:
    text = code.spelled
    if reading.kind == "signal":
        return Exit(kind="signaled", signal=exit_status.signal_name(reading.value), text=text)
    if reading.kind == "status":
        status = exit_status.nt_status(reading.value)
        return Exit(kind="exited", code=status.signed, ntstatus=status, text=text)
    if reading.kind == "subcode":
        status = exit_status.nt_status(0xC0000409)
        name = subcodes()[reading.value].name
        fast_fail = FastFail(code=reading.value, name=name)
        status = type(status)(value=status.value, signed=status.signed, name=status.name, fast_fail=fast_fail)
        return Exit(kind="exited", code=status.signed, ntstatus=status, text=text)
    return Exit(kind="exited", code=reading.value, text=text)
