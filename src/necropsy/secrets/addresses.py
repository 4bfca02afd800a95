"""Passwords in addresses."""

from __future__ import annotations

import re

from necropsy.secrets.forms import MASK
from necropsy.secrets.values import is_plain, looks_random

_AUTHORITY = re.compile(r"[^\s\"'<>`/?#\\]*")
_ADDRESS = re.compile(r"[^\s\"'<>`]{0,1024}")
_PORT = re.compile(r"[0-9]{0,5}")


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
    """What stands before the last ``@`` of an address's host; the password may hold ``@``, and even ``/``."""
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
