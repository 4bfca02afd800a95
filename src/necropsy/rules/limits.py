"""Limits of the shell or the batch system that leave a program without memory (setrlimit(2))."""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix
from necropsy.rule import Found
from necropsy.rules.wording import size

_OF_MEMORY = (
    ("RLIMIT_AS", "address space", "ulimit -v"),
    ("RLIMIT_DATA", "data segment", "ulimit -d"),
)


def of_memory(crash: Crash) -> Found:
    """The limits on memory that the process had; empty where it had none, or where they are not known."""
    return tuple(
        Evidence(claim=f"the {what} of the process is limited", seen=f"{size(limit)} ({command})", where=name)
        for name, what, command, limit in _set(crash)
    )


def told(crash: Crash) -> str:
    """A sentence about them, with a space before it: `` Its address space is limited to 390 MiB (ulimit -v).``"""
    parts = [f"{what} is limited to {size(limit)} ({command})" for _, what, command, limit in _set(crash)]
    return f" Its {' and its '.join(parts)}." if parts else ""


def to_lift(crash: Crash) -> tuple[Fix, ...]:
    """How to find out whether a limit was the reason."""
    return tuple(
        Fix(
            text=f"Raise the limit on the {what}, or lift it, and run again: it may be all that is wrong.",
            command=f"{command} unlimited",
        )
        for _, what, command, _ in _set(crash)
    )


def address_space(crash: Crash) -> int | None:
    """The limit on the address space in bytes."""
    return next((limit for name, _, _, limit in _set(crash) if name == "RLIMIT_AS"), None)


def _set(crash: Crash) -> list[tuple[str, str, str, int]]:
    limits = (crash.environment.limits if crash.environment is not None else None) or {}
    return [(name, what, command, limits[name]) for name, what, command in _OF_MEMORY if limits.get(name, -1) > 0]
