"""The page of a verdict, as its rule carries it."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from typing import TYPE_CHECKING

from necropsy.reports.terminal import wrap
from necropsy.rule import Rule

if TYPE_CHECKING:
    from necropsy.formats.error_names import ErrorName
    from necropsy.model import Crash


def rule_names() -> tuple[str, ...]:
    """The names of all verdicts, by their files: nothing is imported."""
    from necropsy.rules import crash as package

    return tuple(sorted(found.name.replace("_", "-") for found in pkgutil.iter_modules(package.__path__)))


def of_rule(word: str) -> str | None:
    """The page of the verdict of this name (``stack-smash``), or None where there is no such verdict."""
    name = word.strip().lower().replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*", name):
        return None
    modules = (f"necropsy.rules.{kind}.{name}" for kind in ("crash", "env", "data", "profile"))
    module = next((one for one in modules if importlib.util.find_spec(one) is not None), None)
    rule = getattr(importlib.import_module(module), "RULE", None) if module is not None else _added(name)
    if not isinstance(rule, Rule):
        return None
    return f"{rule.name}: {_uncapitalised(rule.whole_page.strip())}"


def _added(name: str) -> Rule[Crash] | None:
    from necropsy.rules import plugins

    added = plugins.loaded()
    wanted = name.replace("_", "-")
    return next((rule for rule in (*added.rules, *added.stand_ins) if rule.name == wanted), None)


def reflow(page: str, width: int) -> list[str]:
    """A page (reStructuredText of the simple kind) for ``width`` columns; titles and code keep their lines."""
    lines: list[str] = []
    for block in re.split(r"\n[ \t]*\n", page.strip("\n")):
        rows = block.splitlines()
        if len(rows) > 1 and re.fullmatch(r"[-=~^]{3,}", rows[1].strip()):
            lines += rows[:2]
            rows = rows[2:]
        if rows and rows[0].startswith((" ", "|", "+")):
            lines += rows
        else:
            for item in re.split(r"\n(?=[-*] |\d+\. )", "\n".join(rows)):
                mark = re.match(r"[-*] |\d+\. ", item)
                lines += wrap(item[mark.end() :] if mark else item, width, first=mark.group() if mark else "")
        lines.append("")
    return lines[:-1]


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def of_named(named: ErrorName, width: int) -> list[str]:
    """What is known of an error that has a name."""
    number = f" ({named.code})" if named.code is not None else ""
    lines = wrap(f"{named.name}{number}, {named.kind}", width, rest="  ")
    if named.text:
        lines += wrap(f"Printed as: {named.text}", width, first="  ", rest="  ")
    lines += ["", *wrap(named.meaning, width, first="  ", rest="  ")]
    for also in named.also:
        lines += wrap(f"The same: {also}", width, first="  ", rest="  ")
    if named.rule:
        lines += ["", *wrap(f"Mostly it is `{named.rule}`: `necropsy explain {named.rule}` says what to do.", width)]
    return [*lines, *wrap(f"Source: {named.source}", width, rest="  ")]
