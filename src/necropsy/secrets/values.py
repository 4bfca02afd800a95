"""Which values are secrets where their name says so, or says little."""

from __future__ import annotations

import re
from itertools import pairwise

from necropsy.secrets.names import verdict_on

_LONGEST_PLAIN = 200
_PLAIN = re.compile(
    r"(?i:none|null|nil|true|false|undefined|yes|no|unset|empty|redacted|hidden|masked|filtered|required|optional|string"
    r"|str|int|bool|bytes|float|object|any|optional\[\w{1,20}\]|secretstr|nan)"
    r"|\$[A-Z_][A-Z0-9_]*|\$\{[^}]*\}?|\$\([^)]*\)?|%[A-Za-z_]\w*%|<[\w \-.:/|]{0,60}>?|\{\{?[\w. -]{0,60}\}?\}?"
    r"|%(?:\(\w{1,40}\))?[-0-9.]{0,6}[diouxXeEfFgGcrsa]|0x[0-9A-Fa-f]{1,16}"
    r"|\[?\*{2,}\]?|\[[A-Za-z]{0,20}\]?|[^A-Za-z0-9]*|x{3,}|X{3,}"
)
PATH = re.compile(r"~?/[^\s]*|[A-Za-z]:[\\/][^\s]*|\.{1,2}(?:/[^\s]*)?")


def is_plain(value: str) -> bool:
    """A variable's name, a placeholder, a pointer, ``None``: no secret whatever the name says."""
    return len(value) <= _LONGEST_PLAIN and _PLAIN.fullmatch(value) is not None


def looks_random(value: str) -> bool:
    """Letters and digits, or small and capital letters, take turns as in nothing that a person would write."""
    if len(value) < 12 or value.startswith("0x") or value[0] == "/":
        return False
    if "_" in value and re.fullmatch(r"[a-z][a-z0-9]{0,19}(?:_[a-z0-9]{1,19})+", value):
        return False  # a name: conv2d_1x1_fp16
    kinds = ["0" if char.isdigit() else "A" if char.isupper() else "a" for char in value[:64] if char.isalnum()]
    turns = sum(one != two and (one, two) != ("A", "a") for one, two in pairwise(kinds))
    return turns >= max(4, len(kinds) // 8)


def looks_like_one(name: str, value: str) -> bool:
    """The value of a name that says little: ``key``, ``auth``, ``pad_token``, ``pass``."""
    if " " in value:
        return False
    if name.lower().endswith("pass"):
        return len(value) >= 6 and any(map(str.isalpha, value)) and not value.isalpha() and not PATH.fullmatch(value)
    return looks_random(value)


def is_secret_value(name: str, value: str) -> bool:
    """Whether the value of a variable, alone and whole, is a secret."""
    verdict = verdict_on(name)
    if verdict == "no" or not value:
        return False
    quoted = re.fullmatch(r"[bBrRuU]{0,2}(['\"])(.*)\1", value, re.DOTALL)
    inner = quoted[2] if quoted is not None else value
    if not inner or is_plain(inner):
        return False
    if verdict == "path":
        return not PATH.fullmatch(inner)
    return verdict == "yes" or looks_like_one(name, inner)
