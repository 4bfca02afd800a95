"""What an exit status was found to be: the causes in the tables of codes, the most frequent first."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from necropsy.data import table
from necropsy.model import Crash, Exit, Possibility
from necropsy.predicates import SIGNALS, signal_of

ENDS = ("exit-status-only", "killed-by-signal", "abort", "python-exception")
"""General rules on how a process ended, for ``beats``: a rule that knows why says more."""
GIVEN_UP = (*ENDS, "check-failed", "uncaught-cpp-exception")
"""The same where native code gave up."""
BAD_ACCESSES = (
    *("null-dereference", "invalid-read", "invalid-write", "write-to-readonly", "bad-jump", "misaligned-access"),
    *("bus-error", "heap-corruption", "double-free", "use-after-free", "python-without-gil"),
)
"""Rules on what a bad access looks like, for ``beats`` of a rule that knows where it came from."""


def causes_of(crash: Crash) -> tuple[Possibility, ...]:
    """The causes that the end of the process leaves open; empty where no table knows it, or where a subcode decides."""
    end, signal = crash.exit, signal_of(crash)
    if end is not None and end.ntstatus is not None:
        return of_status(int(end.ntstatus.value, 16)) if end.ntstatus.fast_fail is None else ()
    if signal is not None:
        return of_signal(signal)
    return of_code(end.code) if end is not None and end.kind == "exited" and end.code is not None else ()


def of_status(status: int) -> tuple[Possibility, ...]:
    """The causes of a Windows status."""
    return _made(_rows("statuses.toml", "status", "code").get(status))


def of_signal(signal: str) -> tuple[Possibility, ...]:
    """The causes of a signal."""
    return _made(_rows("signals.toml", "signal", "name").get(signal))


def of_code(code: int) -> tuple[Possibility, ...]:
    """The causes of a plain exit code."""
    return _made(_rows("exit_codes.toml", "code", "value").get(code))


def of_load_error(error: int) -> tuple[Possibility, ...]:
    """The causes of an error of Windows' loader, while a program runs."""
    return _made(_rows("load_errors.toml", "error", "code").get(error))


def what_is(end: Exit) -> str | None:
    """The first sentence of what the tables say of this end, without its full stop; None where they do not know it."""
    row: dict[str, Any] | None = None
    if end.ntstatus is not None:
        row = _rows("statuses.toml", "status", "code").get(int(end.ntstatus.value, 16))
    elif end.kind == "signaled":
        row = _rows("signals.toml", "signal", "name").get(end.signal)
    elif end.kind == "exited" and end.code is not None:
        signal = SIGNALS.get(end.code - 128)
        rows = _rows("exit_codes.toml", "code", "value")
        row = _rows("signals.toml", "signal", "name").get(signal) if signal is not None else rows.get(end.code)
    return row["what"].split(". ")[0].rstrip(".") if row is not None else None


@lru_cache(maxsize=8)
def _rows(file: str, kind: str, key: str) -> dict[Any, dict[str, Any]]:
    return {row[key]: row for row in table(file)[kind]}


def _made(row: dict[str, Any] | None) -> tuple[Possibility, ...]:
    return tuple(Possibility(**cause) for cause in row.get("cause", ())) if row is not None else ()
