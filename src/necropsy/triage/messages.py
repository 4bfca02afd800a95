"""What a process said when it died, without what differs from one death to the next."""

from __future__ import annotations

import re

from necropsy.lazy_re import regex
from necropsy.triage.documents import Death, Phrase

HEAP = "damaged heap"
"""Which of its complaints the C library makes is chance."""
_GENERAL = frozenset({HEAP, "stack-smash", "fortify"})
_OF_THE_LIBRARY = regex(
    r"std::\w+: (?:basic_string|vector|deque|array|bitset|map|unordered_map|_Map_base|sto[a-z]{1,3}|std|bad)\b"
)
"""What the C++ library itself throws: ``basic_string::substr: __pos (which is 2) > this->size()``."""
_LENGTH = 300
_VALUES = regex(r"\s*\((?:[^()]|\([^()]*\)){0,200}? vs\. .*$")
"""What a CHECK of two values prints behind its condition: ``(29 vs. 8)`` and the words that follow."""
_PATH = regex(r"(?:[A-Za-z]:)?(?:[\\/][\w.+~@%-]+){2,}[\\/]?")
_QUOTED = regex(r"'[^'\n]{0,200}'|\"[^\"\n]{0,200}\"|`[^`'\n]{0,200}'")
_ADDRESS = regex(r"\b0[xX][0-9a-fA-F]+\b")
_NUMBER = regex(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\b")


def text_of(death: Death) -> str | None:
    """``CHECK rank <= 8``, ``assertion n > 0``, ``std::out_of_range: no key #``; None where nothing was said.

    What its own memory holds goes before the log, which other processes write to as well; there the last words count.
    """
    thrown = death.cpp_exception
    if thrown is not None and thrown.type is not None:
        return _exception(thrown.type, thrown.what)
    if death.abort_message is not None and (text := _of_abort(death.abort_message)) is not None:
        return text
    said = [text for message in death.messages or () if (text := _of_message(message)) is not None]
    return said[-1] if said else None


def _of_message(message: Phrase) -> str | None:
    fields = message.fields
    kind = message.kind
    text: str | None = None
    if kind in {"check-failed", "non-ok-status"}:
        text = f"CHECK {condition(fields.get('expression', message.text))}"
    elif kind in {"assertion", "libstdcxx-assertion", "python-assertion"}:
        text = _assertion(fields.get("expression", message.text))
    elif kind == "cpp-terminate":
        text = _exception(fields.get("type"), fields.get("what"))
    elif kind in {"glibc-abort", "foreign-free", "malloc-complaint"}:
        text = HEAP
    elif kind in {"stack-smash", "fortify"}:
        text = kind
    elif kind == "python-traceback":
        text = _exception(fields.get("exception"), fields.get("what") or fields.get("message"))
    elif kind in {"missing-library", "undefined-symbol"}:
        text = f"{kind} {_last(fields.get('library') or fields.get('symbol') or message.text)}"
    elif kind in {"last-words", "not-reached"}:
        text = f"said {words(fields.get('what', message.text))}"
    return text


def _of_abort(message: str) -> str | None:
    """Of ``__abort_msg``: an assertion, or what malloc or the stack protector found."""
    found = re.search(r"Assertion [`'](?P<expression>.*)' failed", message)
    if found is not None:
        return _assertion(found["expression"])
    if "stack smashing" in message:
        return "stack-smash"
    if "buffer overflow" in message:
        return "fortify"
    if re.search(r"corrupt|free\(\)|malloc|double|realloc\(\)|munmap_chunk", message):
        return HEAP
    return None


def _assertion(expression: str) -> str:
    """A debugger prints it as a string of C, with backslashes."""
    return f"assertion {_spaces(expression.replace(chr(92), ''))}"


def _exception(kind: str | None, what: str | None) -> str | None:
    said = words(what) if what else ""
    return f"{kind or '?'}: {said}" if said else kind


def condition(text: str) -> str:
    """The condition of a CHECK, whose numbers belong to it, without the values that were compared and what follows."""
    return _spaces(_VALUES.sub("", text))


def words(text: str) -> str:
    """A message without its numbers, addresses, paths and quoted text."""
    text = text.split("\n", 1)[0]
    text = _PATH.sub("<path>", text)
    text = _QUOTED.sub("<text>", text)
    text = _ADDRESS.sub("#", text)
    return _spaces(_NUMBER.sub("#", text))


def _spaces(text: str) -> str:
    return " ".join(text.split())[:_LENGTH]


def _last(path: str) -> str:
    return re.split(r"[\\/]", path)[-1]


def kind_of(text: str) -> str:
    """``CHECK``, ``assertion``, or the type of an exception."""
    return text.split(" ", 1)[0].rstrip(":")


def tells_a_bug(text: str | None) -> bool:
    """Not every program that dies in this way says it, as it does of a damaged heap or a lack of memory."""
    if text is None or bare_exception(text):
        return False
    return text not in _GENERAL and _OF_THE_LIBRARY.match(text) is None


def bare_exception(text: str) -> bool:
    """Only the type of an exception is known, without its words."""
    return " " not in text and text not in _GENERAL


def contradict(first: str | None, second: str | None) -> bool:
    """Both said something, and not the same: never one bug. A type without words fits every message of that type."""
    if first is None or second is None or first == second:
        return False
    if bare_exception(first) or bare_exception(second):
        return kind_of(first) != kind_of(second)
    return True
