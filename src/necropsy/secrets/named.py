"""What stands behind a name that says that it is a secret: where such a value ends, and whether it is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from necropsy.lazy_re import regex
from necropsy.secrets.forms import MASK
from necropsy.secrets.names import LONGEST, Verdict, known, verdict_on

_OPENING = regex(r"(?:[bBrRuUfF]{0,2}|\$|@)(?P<open>(?P<slashes>\\*)(?P<quote>[\"'`]))")
_CLOSING = {quote: regex(rf"(\\*){quote}|\n") for quote in "\"'`"}
_STOP = regex(r"[\s\"'`,;&)\]}<\x1b]")
_KEY_AHEAD = regex(r"[\w.-]{1,64}[\"']?[=:]")
_FOLLOWING = regex(r"[^\S\n]{1,16}[^\s\"'`,;]+")
_AUTH_SCHEMES = frozenset({"bearer", "basic", "token", "digest", "negotiate", "apikey"})


def opening(text: str, at: int) -> re.Match[str] | None:
    """The quote that begins a string at ``at``, with its prefix (``b``, ``f``) and the backslashes before it."""
    return _OPENING.match(text, at)


def quoted(text: str, first: re.Match[str], limit: int | None = None) -> tuple[int, int]:
    """What stands between quotes, which may themselves be escaped; to the end of the line where they are not closed."""
    return first.end(), closing(text, first.end(), first["quote"], len(first["slashes"]), limit)


def closing(text: str, start: int, quote: str, depth: int, limit: int | None = None) -> int:
    """Where a string ends whose quotes have ``depth`` backslashes; the end of its line where nothing closes it."""
    end = len(text) if limit is None else limit
    for match in _CLOSING[quote].finditer(text, start, end):
        if match[1] is None:
            return match.start()
        slashes = len(match[1])
        if slashes <= depth if depth else slashes % 2 == 0:
            return match.end() - 1 - min(depth, slashes)
    return end


_QUOTED_FIRST = regex(r"\s{0,8}[bru]?\\*[\"']")
_BRACKETS = {"[": "]", "{": "}", "(": ")"}


def listed(text: str, at: int, limit: int) -> tuple[int, int] | None:
    """Several values in brackets, to the end of the line where they are not closed."""
    last = _BRACKETS.get(text[at : at + 1])
    if last is None or not _QUOTED_FIRST.match(text, at + 1):
        return None
    line = text.find("\n", at, limit)
    line = limit if line < 0 else line
    end = text.find(last, at, line)
    return at + 1, line if end < 0 else end


def unquoted(text: str, at: int, limit: int) -> tuple[int, int]:
    """A value that ends at a space, or at what ends it in a list, a call, an address or a string."""
    place = at
    while (stop := _STOP.search(text, place, limit)) is not None:
        end = stop.start()
        char, after = text[end], text[end + 1 : end + 2]
        if char.isspace() or char == "\x1b" or not after or after.isspace():
            break
        if not _goes_on(text, end, char, after):
            break
        place = end + 1
    else:
        return at, limit
    end = stop.start()
    word = text[at:end].lower()
    if word in _AUTH_SCHEMES and text[end] in " \t":
        following = _FOLLOWING.match(text, end, limit)
        if following is not None:
            return at, following.end()
    return at, end


def _goes_on(text: str, at: int, char: str, after: str) -> bool:
    """What follows ``char`` shows that the value continues."""
    if char == "<":
        return after != "/"
    if char in "\"'`":
        return after.isalnum() or after == "_"
    if char in ",;&":
        return after not in ",;&)]}\"'`" and not _KEY_AHEAD.match(text, at + 1)
    return after.isalnum() or after in "_!#%@$*"


_ANNOTATION = regex(
    r"[A-Za-z_][\w.]{0,60}(?:\[[^\]\n]{0,80}\])?(?:[^\S\n]?\|[^\S\n]?None)?[^\S\n]{0,4}=(?!=)[^\S\n]{0,4}"
)
_POINTER = regex(r"0x[0-9a-f]{1,16}[^\S\n]{1,2}(?=\\?[\"'])")
_EXPRESSION = regex(r"(?:await |not |new |&|\*)?[A-Za-z_][A-Za-z_.]{0,100}[(\[]")
_ATTRIBUTE = regex(r"[A-Za-z_][\w.]{0,100}")
_SENTENCE = regex(r"[A-Za-z][A-Za-z'-]{0,24}[,.;:!?)]?[^\S\n]{1,4}[A-Za-z('\"](?![\w.-]{0,64}[=:])")
_HEADER_END = regex(r"\n|\\r|\\n|\r")
_COLOUR = r"(?:\x1b\[[0-9;]{0,16}m){0,4}"
_SPACE = r"[^\S\n]{0,16}"
# `(?![\w.-])` saves time: without it, all shorter beginnings of a name are tried too, and no sign can follow those.
_NAMED = regex(
    rf"(?<![\w.-])(?P<name>[\w.-]+)(?![\w.-])(?P<close>\\*[\"'`]\]?)?{_COLOUR}{_SPACE}{_COLOUR}(?P<sign>:=|=>|===?|=|:(?!:|//)){_COLOUR}"
    rf"(?P<gap>{_SPACE}){_COLOUR}"
    rf"|(?<!\S)(?P<option>--?[\w.-]+)(?![\w.-])[^\S\n]{{1,16}}(?=[^\s-])"
    rf"|<(?P<tag>[\w.-]+)(?![\w.-])>(?=[^<\s])"
)
# A variable in YAML or JSON: its name is the value of one field, and its value that of the next.
_PAIR = regex(
    r"(?:[Nn]ame|[Kk]ey)\\*[\"']?\s{0,8}[:=]\s{0,8}\\*[\"']?(?P<name>[\w.-]{1,96})"
    r"(?:\\*[\"']\s{0,8},?\s{0,32}|[^\S\n]{0,8}(?:,|\n)\s{0,64})\\*[\"']?"
    r"[Vv]alue\\*[\"']?\s{0,8}[:=]\s{0,8}"
)


def without_named(text: str) -> str:
    """What stands behind ``password=``, ``"api_key":``, ``--token``, ``Cookie:`` or ``<secret>``."""
    pieces, done = [], 0
    for start, end in _named(text):
        if start < done or start == end:
            continue
        if text[start:end] != MASK:
            pieces += [text[done:start], MASK]
            done = end
    return "".join((*pieces, text[done:])) if pieces else text


def _named(text: str) -> Iterator[tuple[int, int]]:
    """Positions of the values of telling names."""
    done = 0
    if "alue" in text:
        text_pairs = [(match["name"], match.end()) for match in _PAIR.finditer(text)]
        yield from sorted(
            span for name, at in text_pairs if (span := _value(text, name, at, verdict_on(name))) is not None
        )
    for match in _NAMED.finditer(text):
        if match.start() < done:
            continue
        span = _of_name(text, match)
        if span is not None:
            done = span[1]
            yield span


def _of_name(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    before = text[max(0, match.start() - 12) : match.start()]
    name = _bare(match["name"] or match["option"] or match["tag"], before)
    of = known()
    low = name.lower()[-LONGEST:]
    sign = match["sign"]
    if sign == "=" and not match["close"] and before.endswith(("?", "&", "&amp;")):
        if low in of["parameters"] or verdict_on(name) != "no":
            return _until(text, match.end(), _PARAMETER)
        return None
    if sign == ":" and low in of["headers"] and not match["close"] and low != "cookies":
        return _header(text, match.end(), before)
    verdict = verdict_on(name)
    if verdict == "no":
        return None
    if match["tag"]:
        return _until(text, match.end(), _TAG) if verdict == "yes" else None
    if sign == ":" and _is_prose(text, match, name, before, verdict):
        return None
    at = match.end()
    if sign == ":" and not match["close"] and (annotated := _ANNOTATION.match(text, at)) is not None:
        at = annotated.end()
        sign = "="
    return _value(text, name, at, verdict, code=sign == "=" and not name.isupper())


_IN_COLOUR = regex(r"\x1b\[[0-9;]{0,9}\Z")


def _bare(name: str, before: str) -> str:
    r"""``name`` without a preceding escape's end: ``\nCookie``, or a colour."""
    if name[0] in "nrt" and before[-1:] == "\\":
        return name[1:] or name
    if before and name[0] in "0123456789m" and _IN_COLOUR.search(before):
        return name.lstrip("0123456789").removeprefix("m") or name
    return name


_FAR = 96
_PARAMETER = regex(r"[^\s&#\"'<>`)\]\\]+")
_TAG = regex(r"[^<\n]+")


def _is_prose(text: str, match: re.Match[str], name: str, before: str, verdict: Verdict) -> bool:
    """A sentence, not a field: ``invalid credentials: user not found``, ``kernel key: 1a2b``, ``PASS: test_token``."""
    word = name.rpartition(".")[2]
    if match["gap"] and word.isalpha() and _SENTENCE.match(text, match.end()):
        return True
    if verdict != "unsure" or match["close"] or not word.isalpha():
        return False
    return word.lower() not in {"key", "keys", "auth"} or (before[-1:] == " " and before[-2:-1].isalnum())


def _until(text: str, at: int, run: re.Pattern[str]) -> tuple[int, int] | None:
    match = run.match(text, at)
    return match.span() if match is not None and not is_plain(match.group()) else None


def _header(text: str, at: int, before: str) -> tuple[int, int] | None:
    """The rest of a header's line, up to the end of its quote."""
    around = before[-1:]
    first = opening(text, at)
    if first is not None and around not in {'"', "'", "`"}:
        return quoted(text, first)
    match = _HEADER_END.search(text, at)
    end = match.start() if match is not None else len(text)
    if around in {'"', "'", "`"}:
        depth = len(before) - 1 - len(before[:-1].rstrip("\\"))
        end = min(end, closing(text, at, around, depth))
    while end > at and text[end - 1] in " \t":
        end -= 1
    return (at, end) if end > at and not is_plain(text[at:end]) else None


def _value(text: str, name: str, at: int, verdict: Verdict, *, code: bool = False) -> tuple[int, int] | None:
    """The value of ``name`` that begins at ``at``; None if it is not a secret."""
    if verdict == "no":
        return None
    pointer = _POINTER.match(text, at)
    at = pointer.end() if pointer is not None else at
    first = opening(text, at)
    if first is None and code and _is_code(text, name, at):
        return None
    # What is masked is not looked at again; what may not be, only so far that the whole stays linear in the text.
    limit = len(text) if verdict == "yes" else min(len(text), at + _FAR)
    span = quoted(text, first, limit) if first is not None else listed(text, at, limit) or unquoted(text, at, limit)
    value = text[span[0] : span[1]]
    if is_plain(value) or (verdict == "path" and PATH.fullmatch(value)):
        return None
    return None if verdict == "unsure" and not looks_like_one(name, value) else span


def _is_code(text: str, name: str, at: int) -> bool:
    """Code that shows where a secret comes from: ``token = get_token(user)``, ``token=self.token``."""
    if _EXPRESSION.match(text, at):
        return True
    match = _ATTRIBUTE.match(text, at)
    after = text[match.end() : match.end() + 1] if match is not None else ""
    if match is None or (after.strip() and after not in ",)]}:;\\\"'"):
        return False
    said = match.group()
    return said.rpartition(".")[2].lstrip("_") == name.rpartition(".")[2].lstrip("_-") or (
        "." in said and verdict_on(said) != "no"
    )


_LONGEST_PLAIN = 200
_PLAIN = regex(
    r"(?i:none|null|nil|true|false|undefined|yes|no|unset|empty|redacted|hidden|masked|filtered|required|optional|string"
    r"|str|int|bool|bytes|float|object|any|optional\[\w{1,20}\]|secretstr|nan)"
    r"|\$[A-Z_][A-Z0-9_]*|\$\{[^}]*\}?|\$\([^)]*\)?|%[A-Za-z_]\w*%|<[\w \-.:/|]{0,60}>?|\{\{?[\w. -]{0,60}\}?\}?"
    r"|%(?:\(\w{1,40}\))?[-0-9.]{0,6}[diouxXeEfFgGcrsa]|0x[0-9A-Fa-f]{1,16}"
    r"|\[?\*{2,}\]?|\[[A-Za-z]{0,20}\]?|[^A-Za-z0-9]*|x{3,}|X{3,}"
)
PATH = regex(r"~?/[^\s]*|[A-Za-z]:[\\/][^\s]*|\.{1,2}(?:/[^\s]*)?")


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
