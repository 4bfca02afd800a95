"""Masks secrets before anything is judged, written or printed.

Reports are made to be shared, and command lines, logs and environments often hold tokens. Masked is what has the form
of a secret (documented prefixes of vendors) or follows a name that announces one (``data/secrets.toml``, read by
``secrets``). Other secrets look like ordinary words, so reports are also private to their owner (mode 0600).
"""

from __future__ import annotations

import operator
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from necropsy.model import Address, Crash, Document, Frame

MASK = "***"

# A text without any of these holds no secret of the table. Most texts of a run that ends well are of that kind, and
# the table is not even read for them.
_RUN = re.compile(r"[A-Za-z0-9_~+=%-]{16}")
_STEMS = (
    *("pass", "pwd", "secret", "token", "key", "cred", "auth", "cooki", "hook", "jwt", "csrf", "xsrf", "otp", "sess"),
    *("sig", "sid", "sas", "dsn", "-pat", "_pat", ".pat", "pat=", "pat:", "bearer", "basic", "://", "connectionstring"),
    *("-u", "-p", "-a", "x-amz", "x-goog"),
)
_LONG = 256
"""Texts of this many characters are cached: the same log is masked several times."""
_known: OrderedDict[str, str] = OrderedDict()


def _is_suspicious(value: str) -> bool:
    low = value.lower()
    return any(stem in low for stem in _STEMS) or _RUN.search(value) is not None


def text(value: str) -> str:
    """The same text with everything that looks like a secret replaced by ``***``; line structure is kept."""
    if not _is_suspicious(value):
        return value
    from necropsy.secrets.commands import masked

    if len(value) < _LONG:
        return masked(value)
    found = _known.get(value)
    if found is None:
        found = masked(value)
        _known[value] = _known[found] = found
        while len(_known) > 8:  # the logs of the last few deaths
            _known.popitem(last=False)
    return found


def is_secret_name(name: str) -> bool:
    """A variable or an option of this name holds a secret: ``HF_TOKEN`` does, ``--max-tokens`` does not."""
    if not _is_suspicious(name):
        return False
    from necropsy.secrets.names import verdict_on

    return verdict_on(name) == "yes"


def argv(words: Sequence[str]) -> tuple[str, ...]:
    """A command line; also the word behind an option whose name says that it is a secret."""
    if not any(map(_is_suspicious, words)):
        return tuple(words)
    from necropsy.secrets.commands import of_command

    return of_command(words)


def variables(values: Mapping[str, str]) -> dict[str, str]:
    """Names and their values, as of an environment or of a frame's locals."""
    return {name: _variable(name, value) for name, value in values.items()}


def _variable(name: str, value: str) -> str:
    if value and _is_suspicious(name):
        from necropsy.secrets.named import is_secret_value

        if is_secret_value(name, value):
            return MASK
    return text(value)


# ---------------------------------------------------------------- nouns

_Noun = TypeVar("_Noun", bound=msgspec.Struct)
_OWN_WORDS = frozenset({"function", "functions", "signal", "kind", "build_id"})
"""Fields left as they are: names of code, and fixed words of the model."""
_VARIABLES = frozenset({"variables", "locals"})
_COMMANDS = frozenset({"command", "sender_command"})


def noun(one: _Noun) -> _Noun:
    """The same with every string in it masked, at whatever depth: what a field's name says of its value counts."""
    return _Masked().struct(one)


class _Masked:
    """Masks a tree of model objects; paths that many frames share are masked once."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def struct(self, one: _Noun) -> _Noun:
        changed = {}
        for name in _frame_fields(one) or one.__struct_fields__:
            before = getattr(one, name)
            if before is None or type(before) in _SCALARS or name in _OWN_WORDS:
                continue
            after = self._value(name, before)
            if after is not before:
                changed[name] = after
        if isinstance(one, Frame) and "code" in changed:
            changed["columns"] = None  # they counted the letters of what is masked now
        return msgspec.structs.replace(one, **changed) if changed else one

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, msgspec.Struct):
            return self.struct(value)
        if isinstance(value, tuple):
            masked = argv(value) if name in _COMMANDS else tuple(self._value(name, one) for one in value)
            return value if all(map(operator.is_, value, masked)) else masked
        if isinstance(value, dict):
            made = (
                variables(value) if name in _VARIABLES else {key: self._value(key, one) for key, one in value.items()}
            )
            return value if made == value else made
        return value

    def _text(self, value: str) -> str:
        found = self._seen.get(value)
        if found is None:
            masked = text(value)
            found = self._seen[value] = value if masked == value else masked
        return value if found == value else found


_SCALARS = frozenset({int, bool, float, Address})


def _frame_fields(one: msgspec.Struct) -> tuple[str, ...]:
    """Only fields that can hold a secret, because there may be a hundred thousand frames."""
    return ("source", "code", "excerpt", "module", "locals", "mapping") if isinstance(one, Frame) else ()


def crash(one: Crash) -> Crash:
    """A crash with every text that came from the program masked; what is concluded from it is masked by that."""
    return noun(one)


def document(one: Document) -> Document:
    """A document, masked but for its reports: their crashes are masked before they are judged."""
    return msgspec.structs.replace(noun(msgspec.structs.replace(one, reports=())), reports=one.reports)
