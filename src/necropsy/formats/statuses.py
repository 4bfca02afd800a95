"""The tables of signals, exit codes, Windows statuses and fast-fail subcodes, each read when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from necropsy.data import table
from necropsy.model import Possibility


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One known code. ``next``: what to do; ``causes``: known ones, most frequent first (``rules.exit_causes``)."""

    name: str
    what: str
    mistaken: str
    next: tuple[str, ...]
    source: str
    causes: tuple[Possibility, ...] = ()
    unix: str | None = None
    system: str = "any"
    texts: tuple[str, ...] = ()
    macos: int | None = None


@dataclass(frozen=True)
class Subcode:
    """A subcode of ``__fastfail``."""

    code: int
    name: str
    meaning: str | None


def _entry(row: dict[str, Any], name: str) -> Entry:
    return Entry(
        name=name,
        what=row["what"],
        mistaken=row["mistaken"],
        next=tuple(row["next"]),
        source=row["source"],
        causes=tuple(Possibility(**cause) for cause in row.get("cause", ())),
        unix=row.get("unix"),
        system=row.get("system", "any"),
        texts=tuple(row.get("texts", ())),
        macos=row.get("macos"),
    )


_SIGRTMIN, _SIGRTMAX = 34, 64
"""As glibc has them: it keeps the kernel's first two for itself."""


@lru_cache(maxsize=1)
def signals() -> dict[int, Entry]:
    """Linux' number of each signal that ends programs, and what is known of it."""
    return {row["number"]: _entry(row, row["name"]) for row in table("signals.toml")["signal"]}


def signal_name(number: int, *, macos: bool = False) -> str:
    """The name of a signal that ends programs by its number on Linux or on macOS, whatever system this is."""
    own = {(entry.macos or known) if macos else known: entry.name for known, entry in signals().items()}
    real_time = not macos and _SIGRTMIN < number <= _SIGRTMAX
    return f"SIGRTMIN+{number - _SIGRTMIN}" if real_time else own.get(number, f"signal {number}")


@lru_cache(maxsize=1)
def exit_codes() -> dict[int, Entry]:
    """Small exit codes with a meaning by convention."""
    return {row["value"]: _entry(row, row["title"]) for row in table("exit_codes.toml")["code"]}


@lru_cache(maxsize=1)
def statuses() -> dict[int, Entry]:
    """The Windows statuses that processes die with."""
    return {row["code"]: _entry(row, row["name"]) for row in table("statuses.toml")["status"]}


@lru_cache(maxsize=1)
def _names() -> dict[int, str]:
    rows: dict[str, str | list[str]] = table("ntstatus.json")["names"]
    return {int(code, 16): names if isinstance(names, str) else names[0] for code, names in rows.items()}


@lru_cache(maxsize=1)
def _values() -> dict[str, int]:
    rows: dict[str, str | list[str]] = table("ntstatus.json")["names"]
    return {
        name: int(code, 16) for code, names in rows.items() for name in ([names] if isinstance(names, str) else names)
    }


def name_of_status(value: int) -> str | None:
    """``STATUS_STACK_BUFFER_OVERRUN`` for 0xC0000409; None for a value that Microsoft's header does not have."""
    entry = statuses().get(value)
    return entry.name if entry else _names().get(value)


def status_of_name(name: str) -> int | None:
    """The value of a status by its name, in either case, also as ``EXCEPTION_...`` or without its prefix."""
    name = name.upper()
    for prefix in ("STATUS_", "EXCEPTION_"):
        if name.startswith(prefix):
            name = name[len(prefix) :]
            break
    aliases = {"INT_DIVIDE_BY_ZERO": "INTEGER_DIVIDE_BY_ZERO", "PRIV_INSTRUCTION": "PRIVILEGED_INSTRUCTION"}
    name = f"STATUS_{aliases.get(name, name)}"
    by_entry = next((value for value, entry in statuses().items() if entry.name == name), None)
    return by_entry if by_entry is not None else _values().get(name)


@lru_cache(maxsize=1)
def subcodes() -> dict[int, Subcode]:
    """The subcodes of ``__fastfail`` by number."""
    rows = table("fast_fail.json")["codes"]
    return {int(code): Subcode(int(code), row["name"], row.get("meaning")) for code, row in rows.items()}


@lru_cache(maxsize=1)
def foreign_words() -> dict[str, tuple[str, ...]]:
    """Signal name to how strsignal(3) spells it in other languages than English."""
    return {name: tuple(words) for name, words in table("strsignal.json")["signals"].items()}
