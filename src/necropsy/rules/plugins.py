"""Rules of other packages: entry points in the group ``necropsy.rules``, each the name of a ``Rule`` on crashes.

A package that cannot be loaded, or whose rule is invalid, is replaced by a rule that fails: each report has a gap.
"""

from __future__ import annotations

import os
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from necropsy.errors import RuleError
from necropsy.model import Crash, Diagnosis
from necropsy.rule import Finding, Rule, to_diagnosis

GROUP = "necropsy.rules"
_METADATA = (".dist-info", ".egg-info")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_OF_THREAD = frozenset({"stack", "frames"})
"""Parts of the crashed thread that a rule may need; the others are fields of the crash."""


@dataclass(frozen=True)
class AddedRules:
    """``rules``: the usable ones. ``stand_ins``: a rule that fails for each of ``problems``, which are by name."""

    rules: tuple[Rule[Crash], ...]
    stand_ins: tuple[Rule[Crash], ...]
    problems: dict[str, str]


@lru_cache(maxsize=1)
def loaded() -> AddedRules:
    """Load every added rule, once for each process."""
    points = declared()
    if not points:
        return AddedRules((), (), {})
    own = {info.name.replace("_", "-") for info in pkgutil.iter_modules([str(Path(__file__).parent / "crash")])}
    found: dict[str, Rule[Crash]] = {}
    problems: dict[str, str] = {}
    for name, value, package in points:
        try:
            found[name] = _guarded(_checked(name, pkgutil.resolve_name(value), {*own, *found}))
        except (Exception, SystemExit) as error:  # noqa: BLE001, PERF203 - whatever the other package does
            problems[name] = f"{value} of the package {package}: {_told(error)}"
    stand_ins = tuple(_stand_in(name, problem) for name, problem in problems.items())
    return AddedRules(tuple(found.values()), stand_ins, problems)


@lru_cache(maxsize=1)
def declared() -> tuple[tuple[str, str, str], ...]:
    """Name, value and package of each entry point in the group; nothing of those packages is loaded."""
    return tuple(_entry_points(sys.path))


def _entry_points(folders: Collection[str]) -> Iterator[tuple[str, str, str]]:
    # This takes a tenth of the time of ``importlib.metadata``; a report waits for it.
    seen: set[str] = set()
    for folder in folders:
        try:
            names = sorted(one.name for one in os.scandir(folder or os.devnull) if one.name.endswith(_METADATA))
        except OSError:  # a zip archive, or not there; the working directory ("") is not looked at
            continue
        for name in names:
            package = name.rpartition(".")[0].partition("-")[0]
            try:
                data = Path(folder, name, "entry_points.txt").read_bytes()
            except OSError:
                continue
            if f"[{GROUP}]".encode() in data and package not in seen:
                seen.add(package)
                yield from ((*point, package) for point in _of_group(data.decode("utf-8", "replace")))


def _of_group(text: str) -> Iterator[tuple[str, str]]:
    inside = False
    for line in text.splitlines():
        row = line.strip()
        if row.startswith("["):
            inside = row == f"[{GROUP}]"
        elif inside and row and not row.startswith(("#", ";")):
            name, _, value = row.partition("=")
            yield name.strip(), value.partition("[")[0].strip()


def _checked(name: str, rule: object, taken: Collection[str]) -> Rule[Crash]:
    """Raises ``RuleError`` if it is not a usable rule on crashes."""
    if not isinstance(rule, Rule):
        raise RuleError(f"it is a {type(rule).__name__}, not a necropsy.rule.Rule")
    if rule.name != name or not _NAME.fullmatch(name):
        raise RuleError(f"the rule is called {rule.name!r}; it needs the name of its entry point, in lower-case words")
    if name in taken:
        raise RuleError("there is another rule of this name")
    if rule.subject not in {None, Crash}:
        raise RuleError("only rules on necropsy.model.Crash can be added")
    parts = {field.name for field in msgspec.structs.fields(Crash)} | _OF_THREAD
    if unknown := {part for need in rule.needs for part in need.split(" or ")} - parts:
        raise RuleError(f"it needs {min(unknown)}, which a crash does not have")
    for part in ("title", "page"):
        if not isinstance(getattr(rule, part), str):
            raise RuleError(f"its {part} is not a text")
    return rule


def _guarded(rule: Rule[Crash]) -> Rule[Crash]:
    """Check that findings fit into a document; experiments are not made."""
    ask: Callable[[Crash], Any] = rule.match

    def match(crash: Crash) -> Finding | None:
        try:
            finding = ask(crash)
        except SystemExit as error:
            raise RuleError(_told(error)) from error
        if finding is None:
            return None
        if not isinstance(finding, Finding):
            raise RuleError(f"it found a {type(finding).__name__}, not a necropsy.rule.Finding")
        msgspec.convert(msgspec.to_builtins(to_diagnosis(rule, finding)), Diagnosis)
        return finding

    return replace(rule, match=match, experiments=None)


def _stand_in(name: str, problem: str) -> Rule[Crash]:
    def match(_crash: Crash) -> Finding | None:
        raise RuleError(problem)

    page = f"This rule cannot be used: {problem}"
    return Rule(match, name=name, title="A rule that cannot be used", page=page)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
