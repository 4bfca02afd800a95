"""What the rules on variables share: the table of known variables, and the lines of a shell that change one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from necropsy.data import table
from necropsy.model import Environment, Evidence, Fix


def known(environment: Environment) -> Iterator[tuple[dict[str, Any], str]]:
    """The rows of the table whose variable is set, each with its value; an empty value counts as not set."""
    for row in table("variables.toml")["variable"]:
        value = (environment.variables or {}).get(row["name"], "")
        if value.strip():
            yield row, value


def fits(pattern: str, value: str, row: dict[str, Any]) -> bool:
    """The pattern matches the whole value."""
    return re.fullmatch(pattern, value, 0 if row.get("exact") else re.IGNORECASE) is not None


def evidence(name: str, value: str) -> Evidence:
    """The variable as it is set. Only for variables of the table: none of them holds a secret."""
    return Evidence(claim="the variable", seen=f"{name}={value}", where="environment")


def unset(name: str, text: str) -> Fix:
    """Take it out of the shell's environment."""
    return Fix(text=text, command=f"unset {name}")


def export(name: str, value: str, text: str) -> Fix:
    """Give it another value."""
    return Fix(text=text, command=f"export {name}={shlex.quote(value)}")
