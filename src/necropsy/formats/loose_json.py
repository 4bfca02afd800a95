"""JSON that may be cut off anywhere, or begin in the middle: as much of a value as is there."""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST = 60
"""Levels that are kept; what lies deeper is passed over."""

_TOKEN = re.compile(r'"(?P<string>(?:[^"\\]|\\.)*)"?|(?P<bracket>[{}\[\]:,])|(?P<atom>[-+.\w]+)', re.DOTALL)
_DECODER = json.JSONDecoder()


def value_at(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at ``text[at]``, and where it ends. What is missing of it is left out; None for nothing."""
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return _loose(text, at)


def fields(text: str, *names: str) -> dict[str, Any]:
    """The values of the keys ``names``, each where it stands first; only what is outside of the values found before."""
    pattern = re.compile(rf'"({"|".join(names)})"\s{{0,4}}:\s{{0,4}}')
    found: dict[str, Any] = {}
    at = 0
    while match := pattern.search(text, at):
        if match[1] in found:
            at = match.end()
            continue
        found[match[1]], at = value_at(text, match.end())
        at = max(at, match.end())
    return found


def _loose(text: str, at: int) -> tuple[Any, int]:
    """Token by token: an unclosed bracket is closed by the end of the text."""
    root: list[Any] = []
    stack: list[Any] = [root]
    keys: list[str | None] = [None]
    too_deep = 0
    end = at
    for match in _TOKEN.finditer(text, at):
        end = match.end()
        bracket = match["bracket"]
        if bracket in {"{", "["}:
            if len(stack) > DEEPEST:
                too_deep += 1
                continue
            value: Any = {} if bracket == "{" else []
            _put(stack[-1], keys, value)
            stack.append(value)
            keys.append(None)
        elif bracket in {"}", "]"}:
            if too_deep:
                too_deep -= 1
            elif len(stack) > 1:
                stack.pop()
                keys.pop()
        elif bracket == ":" or too_deep:
            continue
        elif bracket == ",":
            keys[-1] = None
        elif isinstance(stack[-1], dict) and keys[-1] is None and match["string"] is not None:
            keys[-1] = _text(match["string"])
            continue
        else:
            _put(stack[-1], keys, _text(match["string"]) if match["string"] is not None else _atom(match["atom"]))
        if len(stack) == 1 and root:
            break
    return (root[0] if root else None), end


def _put(parent: Any, keys: list[str | None], value: Any) -> None:
    if isinstance(parent, list):
        parent.append(value)
    elif keys[-1] is not None:
        parent[keys[-1]] = value
        keys[-1] = None


def _text(inside: str) -> str:
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        return inside


def _atom(text: str) -> Any:
    known = {"true": True, "false": False, "null": None}
    if text in known:
        return known[text]
    try:
        return int(text) if len(text) <= 40 else None
    except ValueError:
        return None
