"""The rules. One file, one diagnosis; the folder names the kind of subject that it judges.

Rules are discovered, not listed: a module in ``rules/<kind>/`` with a ``RULE`` is a rule. The loader refuses a rule
whose name is not its file's, so that ``stack-smash`` is always ``stack_smash.py`` and ``tests/cases/stack-smash/``.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from necropsy.errors import RuleError
from necropsy.model import Crash, Environment, Process
from necropsy.rule import Rule

if TYPE_CHECKING:  # no rule on a crash is asked about these
    from necropsy.model import CallComparison, Part

_OF_FILES = frozenset({"binaries", "uses", "code"})
"""Parts of an environment that only ``necropsy check`` fills."""


def _names(kind: str) -> list[str]:
    package = importlib.import_module(f"{__name__}.{kind}")
    return sorted(info.name for info in pkgutil.iter_modules(package.__path__))


def one_by_one() -> Iterator[Rule[Crash] | None]:
    """Load our own rules one by one, for who has time to spare now and none later; never raises.

    None where something else was loaded.
    """
    for name in _names("crash"):
        rule = None
        with contextlib.suppress(Exception):  # ``crash_rules`` will tell
            rule = importlib.import_module(f"{__name__}.crash.{name}").RULE
        yield rule
    from necropsy.rules import plugins

    with contextlib.suppress(Exception):
        plugins.declared()
    yield None


def _load(kind: str, names: Iterable[str] | None = None) -> tuple[Rule[Any], ...]:
    found = []
    for name in _names(kind) if names is None else sorted(names):
        module = importlib.import_module(f"{__name__}.{kind}.{name}")
        rule = getattr(module, "RULE", None)
        if not isinstance(rule, Rule):
            raise RuleError(f"{module.__file__}: defines no RULE")
        if rule.name != name.replace("_", "-"):
            raise RuleError(f"{module.__file__}: the rule is called {rule.name}, the file is not")
        found.append(rule)
    return tuple(found)


@lru_cache(maxsize=1)
def crash_rules() -> tuple[Rule[Crash], ...]:
    """Every rule on a crash, by name; then those of other packages. Raises ``RuleError`` if one of ours is invalid."""
    from necropsy.rules import plugins

    added = plugins.loaded()
    return (*_load("crash"), *added.rules, *added.stand_ins)


@lru_cache(maxsize=1)
def environment_rules() -> tuple[Rule[Environment], ...]:
    """Every rule on an environment, by name; raises ``RuleError`` if a rule file is invalid."""
    return _load("env")


def environment_rules_named(names: Iterable[str]) -> tuple[Rule[Environment], ...]:
    """The rules on an environment or a custom op with these names, loading no others; raises ``RuleError``."""
    wanted = {name.replace("-", "_") for name in names}
    return tuple(rule for kind in ("env", "op") for rule in _load(kind, wanted.intersection(_names(kind))))


@lru_cache(maxsize=1)
def data_rules() -> tuple[Rule[Part], ...]:
    """Every rule on a dataset, by name; raises ``RuleError`` if a rule file is invalid."""
    return _load("data")


@lru_cache(maxsize=1)
def call_rules() -> tuple[Rule[CallComparison], ...]:
    """Every rule on a call that was made several times, by name; raises ``RuleError`` if a rule file is invalid."""
    return _load("call")


@lru_cache(maxsize=1)
def profile_rules() -> tuple[Rule[Process], ...]:
    """Every rule on a profiled process, by name; raises ``RuleError`` if a rule file is invalid."""
    return _load("profile")


@lru_cache(maxsize=1)
def op_rules() -> tuple[Rule[Environment], ...]:
    """Every rule that compares a library named with ``--op`` with its environment, by name; raises ``RuleError``."""
    return tuple(rule for rule in audit_rules() if not _OF_FILES.intersection(" ".join(rule.needs).split()))


@lru_cache(maxsize=1)
def audit_rules() -> tuple[Rule[Environment], ...]:
    """Every rule on a custom op, by name; raises ``RuleError`` if a rule file is invalid."""
    return _load("op")


def all_rules() -> tuple[Rule[Any], ...]:
    """Every rule of any kind; rules on crashes and on libraries may share a name and a page. Raises ``RuleError``."""
    return (
        *call_rules(),
        *crash_rules(),
        *environment_rules(),
        *audit_rules(),
        *data_rules(),
        *profile_rules(),
    )


def page(name: str) -> str | None:
    """The page of the rule called ``name``; None if there is no such rule. Raises ``RuleError``."""
    return next((rule.whole_page for rule in all_rules() if rule.name == name), None)
