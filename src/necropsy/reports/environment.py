"""Where the process lived, as rows of a table: what a maintainer asks for first."""

from __future__ import annotations

from necropsy.model import Crash, Diagnosis, Document
from necropsy.reports.terminal import size

_LIMITS = {"RLIMIT_STACK": "stack", "RLIMIT_AS": "address space", "RLIMIT_NPROC": "processes", "RLIMIT_NOFILE": "files"}
_COUNTS = frozenset({"RLIMIT_NPROC", "RLIMIT_NOFILE"})

TITLE = "In this environment"


def finding(one: Diagnosis) -> str:
    """What is wrong with the environment and could explain the death, in one line."""
    return f"{one.summary} [{one.rule}, {one.severity}]"


def rows(crash: Crash, document: Document | None) -> list[tuple[str, str]]:
    """Name and value; only what was observed."""
    one = crash.environment
    found: list[tuple[str, str | None]] = []
    if document is not None and document.subject.command:
        found.append(("Command", " ".join(document.subject.command)))
    if crash.at is not None:
        found.append(("Died at", crash.at))
    if one is not None:
        found += [("System", one.platform), ("CPU", one.cpu), ("C library", one.libc)]
        found += [("Python", one.python), ("Executable", one.executable)]
    versions = {**(crash.libraries or {}), **((one.packages if one else None) or {})}
    if one is not None and one.libc:
        versions.pop("libc", None)
    found.append(("Packages", ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))))
    if one is not None:
        found.append(("Variables", ", ".join(f"{name}={value}" for name, value in (one.variables or {}).items())))
        found.append(("Limits", ", ".join(_limits(one.limits or {}))))
    if document is not None:
        found.append(("Report", f"{document.id}, {document.tool.name} {document.tool.version}"))
    return [(name, value) for name, value in found if value]


def _limits(limits: dict[str, int]) -> list[str]:
    said = []
    for name, words in _LIMITS.items():
        value = limits.get(name)
        if value is not None and (value >= 0 or name == "RLIMIT_STACK"):
            said.append(f"{words} {'unlimited' if value < 0 else f'{value:,}' if name in _COUNTS else size(value)}")
    return said
