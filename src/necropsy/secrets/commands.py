"""Secrets in command lines, whose words are known apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.data import table
from necropsy.secrets.forms import MASK
from necropsy.secrets.names import verdict_on
from necropsy.secrets.text import masked
from necropsy.secrets.values import is_secret_value

_OPTION = re.compile(r"--?[\w.-]+")
_ASSIGNED = re.compile(r"(?P<name>-{0,2}[\w.-]+)=(?P<value>.+)", re.DOTALL)


def of_command(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line, masked; also the word behind an option whose name says that it is a secret."""
    options = _options_of(words)
    found: list[str] = []
    behind: str | None = None
    """The option whose value comes next."""
    for word in words:
        if behind is not None and not word.startswith("--"):
            found.append(_value_of(behind, word, options))
            behind = None
            continue
        takes_one = word in options or (_OPTION.fullmatch(word) and verdict_on(word) in {"yes", "unsure"})
        behind = word if takes_one else None
        found.append(_word(word, options))
    return tuple(found)


def _options_of(words: Sequence[str]) -> dict[str, str]:
    """The options that take a secret by the programs that are named, and the character that it stands behind."""
    programs = {re.split(r"[/\\]", word)[-1].removesuffix(".exe") for word in words[:64]}
    rows = table("secrets.toml")["option"]
    return {
        option: row.get("behind", "") for row in rows if programs & set(row["programs"]) for option in row["options"]
    }


def _value_of(option: str, word: str, options: dict[str, str]) -> str:
    if option in options:
        before, sign, value = word.partition(options[option]) if options[option] else ("", "", word)
        return f"{before}{sign}{MASK}" if value or not sign else masked(word)
    return MASK if is_secret_value(option, word) else masked(word)


def _word(word: str, options: dict[str, str]) -> str:
    for option in options:
        if len(option) == 2 and word.startswith(option) and len(word) > 2:
            return option + _value_of(option, word[2:], options)
    match = _ASSIGNED.fullmatch(word)
    if match is not None and is_secret_value(match["name"], match["value"]):
        return f"{match['name']}={MASK}"
    return masked(word)
