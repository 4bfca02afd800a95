"""Limits that make ``malloc`` return a null pointer, which the caller then uses (setrlimit(2))."""

from __future__ import annotations

from necropsy.model import Crash, Evidence
from necropsy.rule import Found
from necropsy.rules.wording import size

_OF_MEMORY = (
    ("RLIMIT_AS", "address space", "ulimit -v"),
    ("RLIMIT_DATA", "data segment", "ulimit -d"),
)


def limits_of(crash: Crash) -> Found:
    """The limits on memory that the process had; empty where it had none, or where they are not known."""
    return tuple(
        Evidence(claim=f"the {what} of the process is limited", seen=f"{size(limit)} ({command})", where=name)
        for name, what, command, limit in _set(crash)
    )


def told(crash: Crash) -> str:
    """`` Its data segment is limited to 195 MiB (ulimit -d). An allocation ...``; empty without a limit."""
    parts = [f"{what} is limited to {size(limit)} ({command})" for _, what, command, limit in _set(crash)]
    if not parts:
        return ""
    return f" Its {' and its '.join(parts)}. An allocation that such a limit refuses gives a null pointer."


def _set(crash: Crash) -> list[tuple[str, str, str, int]]:
    limits = (crash.environment.limits if crash.environment is not None else None) or {}
    return [(name, what, command, limits[name]) for name, what, command in _OF_MEMORY if limits.get(name, -1) > 0]
