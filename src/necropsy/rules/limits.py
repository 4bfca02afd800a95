"""Limits as evidence: which of them the process ran into, and what of it was in use."""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix, Limit
from necropsy.rule import Found
from necropsy.rules.wording import size

MEMORY = ("RLIMIT_AS", "RLIMIT_DATA")
"""What an allocation of main memory can fail for. At the limit of its control group a process is killed instead."""
_FULL = 0.9
"""A limit of which less is left was in reach."""
WHAT = {
    "RLIMIT_AS": "address space",
    "RLIMIT_DATA": "data",
    "RLIMIT_STACK": "stack",
    "RLIMIT_CPU": "CPU time",
    "RLIMIT_FSIZE": "the size of files",
    "RLIMIT_NPROC": "threads of the user",
    "RLIMIT_NOFILE": "open files",
    "memory.max": "memory of the control group",
    "pids.max": "threads of the control group",
    "/dev/shm": "shared memory",  # noqa: S108 - a name
    "vm.max_map_count": "memory mappings",
}
"""What each of them limits."""
_OPTIONS = {"RLIMIT_AS": "v", "RLIMIT_DATA": "d", "RLIMIT_STACK": "s", "RLIMIT_CPU": "t", "RLIMIT_FSIZE": "f"}
_COUNTS = frozenset({"RLIMIT_NPROC", "RLIMIT_NOFILE", "pids.max", "vm.max_map_count"})


def all_of(crash: Crash, *names: str) -> tuple[Limit, ...]:
    """Those of these limits that were set."""
    return tuple(one for one in crash.limits or () if one.name in names)


def limit_of(crash: Crash, name: str) -> Limit | None:
    """The limit of this name, where one was set."""
    return next((one for one in crash.limits or () if one.name == name), None)


def reached(crash: Crash, *names: str, more: int = 0) -> tuple[Limit, ...]:
    """Those of these limits that were all but used up, or would have been exceeded by ``more`` (bytes, or counts)."""
    found = []
    for name in names:
        one = limit_of(crash, name)
        most = max(one.used or 0, one.peak or 0) if one is not None else 0
        if one is not None and (most >= _FULL * one.limit or (more and (one.used or 0) + more > one.limit)):
            found.append(one)
    return tuple(found)


def evidence(*limits: Limit) -> Found:
    """What was allowed, and what was in use."""
    return tuple(
        Evidence(claim=f"the limit on {WHAT.get(one.name, one.name)}", seen=in_words(one), where=_where(one))
        for one in limits
    )


def in_words(one: Limit) -> str:
    """``480 MiB of 512 MiB were in use when it ended``."""
    if one.used is None and one.peak is None:
        return amount(one, one.limit)
    if one.name == "RLIMIT_FSIZE":
        return f"{amount(one, one.limit)}; its largest open file has {amount(one, one.used or 0)}"
    used = f"{amount(one, one.used)} of {amount(one, one.limit)} in use" if one.used is not None else ""
    peak = f"at most {amount(one, one.peak)}" if one.peak is not None and one.peak != one.used else ""
    return ", ".join(part for part in (used or f"limit {amount(one, one.limit)}", peak) if part)


def amount(one: Limit, value: int) -> str:
    """A value of this limit, with its unit."""
    if one.name == "RLIMIT_CPU":
        return f"{value:,} s"
    return f"{value:,}" if one.name in _COUNTS else size(value)


def summary(*limits: Limit) -> str:
    """An ending for a sentence, empty without a limit."""
    if not limits:
        return ""
    one = limits[0]
    return f" The limit on {WHAT.get(one.name, one.name)} was reached: {in_words(one)}."


def raising(*limits: Limit) -> tuple[Fix, ...]:
    """How each of these limits is raised, here."""
    return tuple(
        Fix(text=f"Or raise the limit on {WHAT.get(one.name, one.name)}, where it is set.", command=_command(one))
        for one in limits
    )


def _command(one: Limit) -> str:
    if one.name in _OPTIONS:
        hard = "unlimited" if one.hard is None else "hard"
        return f"ulimit -S -{_OPTIONS[one.name]} {hard}"
    if one.name == "RLIMIT_NPROC":
        return "ulimit -u"
    if one.name == "/dev/shm":  # noqa: S108 - a name
        return "df -h /dev/shm; docker run --shm-size=8g ..."
    options = "-m 16g" if one.name == "memory.max" else "--pids-limit=-1"
    return f"cat {one.where}; docker run {options} ..."


def _where(one: Limit) -> str:
    if one.name == "RLIMIT_FSIZE" and one.where:
        return f"{one.name}; {one.where}"
    return one.where or one.name
