"""Secrets in command lines, whose words are known apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.data import table
from necropsy.lazy_re import regex
from necropsy.secrets.forms import MASK, RUN, forms, without_private_keys
from necropsy.secrets.named import is_plain, is_secret_value, looks_random, without_named
from necropsy.secrets.names import verdict_on

_OPTION = regex(r"--?[\w.-]+")
_ASSIGNED = regex(r"(?P<name>-{0,2}[\w.-]+)=(?P<value>.+)", re.DOTALL)


def of_command(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line, masked; also the word behind an option whose name says that it is a secret."""
    options = _options_of(words)
    found: list[str] = []
    behind: str | None = None
    """The option whose value follows."""
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
    """Secret options of the programs that occur, and the character before their value."""
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


_SCHEME = regex(
    r"(?P<keep>(?<![A-Za-z0-9])(?:[Bb]earer|BEARER|[Bb]asic|BASIC)[^\S\n]{1,16})"
    r"(?=[A-Za-z._~+/=-]{0,255}[0-9=])[A-Za-z0-9._~+/-]{12,}=*"
)


def masked(text: str) -> str:
    """The same text with every secret replaced by ``***``; its lines stay lines."""
    text = without_private_keys(text)
    links, tokens = forms()
    for form in (*links, *tokens) if RUN.search(text) else links:
        text = form.masked(text)
    text = without_passwords(text)
    text = without_named(text)
    return _SCHEME.sub(rf"\g<keep>{MASK}", text)


_AUTHORITY = regex(r"[^\s\"'<>`/?#\\]*")
_ADDRESS = regex(r"[^\s\"'<>`]{0,1024}")
_PORT = regex(r"[0-9]{0,5}")


def without_passwords(text: str) -> str:
    """``postgres://me:s3cret@host/db`` without the password; ``https://TOKEN@host`` without the token."""
    pieces, done = [], 0
    at = text.find("://")
    while at >= 0:
        start = at + 3
        said = _userinfo(text, start)
        if start >= done and said:
            user, colon, password = said.partition(":")
            hidden = _hidden_userinfo(user, colon, password)
            if hidden is not None:
                pieces += [text[done:start], hidden]
                done = start + len(said)
        at = text.find("://", start)
    return "".join((*pieces, text[done:])) if pieces else text


def _userinfo(text: str, start: int) -> str:
    """The part before the host's last ``@``; a password may contain ``@`` and even ``/``."""
    match = _AUTHORITY.match(text, start)
    authority = match.group() if match is not None else ""
    if "@" in authority and "http" in text[max(0, start - 8) : start].lower():
        return authority.rpartition("@")[0]  # the path of such an address may well hold another
    host, colon, port = authority.partition(":")
    if "@" not in authority and (not colon or host.startswith("[") or _PORT.fullmatch(port)):
        return ""
    whole = _ADDRESS.match(text, start)
    return whole.group().rpartition("@")[0] if whole is not None else ""


def _hidden_userinfo(user: str, colon: str, password: str) -> str | None:
    if colon and password and password != "x-oauth-basic":  # noqa: S105 - what GitHub wants behind a token
        if is_plain(password):
            return None
        return f"{MASK if len(user) >= 20 and looks_random(user) else user}:{MASK}"
    if len(user) >= (16 if colon else 20) and re.fullmatch(r"[A-Za-z0-9_~+=.%-]+", user):
        return MASK + colon + password
    return None
