"""What the rules on Windows' statuses share: the status as evidence, and where Windows keeps its record of a crash."""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import on_windows
from necropsy.rule import NOTHING, Found


def status_of(crash: Crash) -> int | None:
    """The 32-bit status that the process ended with; None where it was none."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    return int(status.value, 16) if status is not None else None


def ended_with(crash: Crash, *statuses: int, claim: str) -> Found:
    """The process ended with one of these statuses."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    if status is None or int(status.value, 16) not in statuses:
        return NOTHING
    seen = f"{status.value} ({status.signed})" + (f", {status.name}" if status.name else "")
    where = "exit status" if crash.crashed_thread is None else "exception record"
    return (Evidence(claim=claim, seen=seen, where=where),)


def sanitizer_of(crash: Crash) -> str:
    """How native code is built with AddressSanitizer where it died: Microsoft's compiler has it too."""
    return _CL if on_windows(crash) else _GCC


_CL = "cl /fsanitize=address /Zi ..."
_GCC = "g++ -g -O1 -fsanitize=address -fno-omit-frame-pointer ..."

RECORD = Fix(
    text="Windows keeps a record of it (Event Viewer, Windows Logs, Application): event 1000 names the library and the place "
    "in it, event 1001 has the subcode of 0xC0000409 as exception data.",
    command="wevtutil qe Application /c:4 /rd:true /f:text "
    "/q:\"*[System[Provider[@Name='Application Error' or @Name='Windows Error Reporting']]]\"",
)
