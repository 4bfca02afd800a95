"""What the rules on limits of an environment share: a limit's value, and the line of a shell that raises it."""

from __future__ import annotations

from typing import Literal

from necropsy.model import Crash, Environment, Evidence, Fix, Limit, Mount
from necropsy.rule import Found
from necropsy.rules.wording import size

Name = Literal["RLIMIT_STACK", "RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_NPROC", "RLIMIT_NOFILE"]
_OPTIONS: dict[Name, tuple[str, int]] = {
    "RLIMIT_STACK": ("s", 1024),
    "RLIMIT_AS": ("v", 1024),
    "RLIMIT_CORE": ("c", 512),
    "RLIMIT_NPROC": ("u", 1),
    "RLIMIT_NOFILE": ("n", 1),
}
"""The option of ``ulimit``, and its unit in bytes, as the shells of POSIX have it."""
UNLIMITED = -1


def soft(environment: Environment, name: Name) -> int | None:
    """The soft limit, in bytes or as a count; None if there is none."""
    value = (environment.limits or {}).get(name, UNLIMITED)
    return None if value == UNLIMITED else value


def evidence(environment: Environment, name: Name) -> Evidence:
    """The limit as it is set."""
    value = (environment.limits or {}).get(name, UNLIMITED)
    unit = _OPTIONS[name][1]
    words = "unlimited" if value == UNLIMITED else f"{value:,}" if unit == 1 else size(value)
    return Evidence(claim="the soft limit", seen=words, where=name)


def raised(environment: Environment, name: Name, wanted: int) -> tuple[Fix, ...]:
    """How the soft limit becomes ``wanted`` (bytes or a count, -1 for unlimited) in this shell, where it can."""
    option, unit = _OPTIONS[name]
    hard = (environment.machine.hard_limits if environment.machine is not None else {}).get(name, UNLIMITED)
    value = "unlimited" if wanted == UNLIMITED else str(wanted // unit)
    if hard == UNLIMITED or UNLIMITED < wanted <= hard:
        return (Fix(text="Raise it in this shell.", command=f"ulimit -S -{option} {value}"),)
    if environment.user == 0:
        return (Fix(text="Raise it in this shell.", command=f"ulimit -{option} {value}"),)
    kind = name.removeprefix("RLIMIT_").lower()
    text = f"Have the hard limit raised: a line for {kind} in /etc/security/limits.conf, or `docker run --ulimit {kind}=...`."
    return (Fix(text=text),)


def group(environment: Environment, name: Literal["memory.max", "pids.max"]) -> Limit | None:
    """The limit of the control group with the least room left; None if none is set."""
    return next((one for one in environment.groups or () if one.name == name), None)


def mount(environment: Environment, role: str) -> Mount | None:
    """The file system of this role."""
    return next((one for one in environment.mounts or () if one.role == role), None)


def is_container(environment: Environment) -> bool:
    """The environment is that of a container, as far as its files say."""
    return environment.machine is not None and environment.machine.is_container


def frameworks(environment: Environment) -> tuple[str, ...]:
    """The frameworks that are installed, whose needs are known."""
    return tuple(one.name for one in environment.distributions or () if one.named)


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
