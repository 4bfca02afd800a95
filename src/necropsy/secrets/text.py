"""A text without its secrets."""

from __future__ import annotations

import re

from necropsy.secrets.addresses import without_passwords
from necropsy.secrets.forms import MASK, RUN, forms, without_private_keys
from necropsy.secrets.named import without_named

_SCHEME = re.compile(
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
