"""What in a text is a secret: read from one table, ``data/secrets.toml``.

``mask`` loads this module when a text is suspicious, because reading the table costs some milliseconds. Everything
here is linear in the text: a hostile log must not cost more than a long one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from necropsy.data import table

MASK = "***"
Verdict = Literal["yes", "unsure", "path", "no"]
"""Whether the value of a name is a secret; ``unsure``: if it looks like one; ``path``: if it is not a path."""

_LONGEST_NAME = 96
"""Characters of a name that are looked at, from its end."""
# Escapes that end in a letter or a digit: what follows them begins anew.
_ESCAPES = (r"%[0-9A-Fa-f]{2}", r"\\[nrtbfv0]", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}")
_COLOURS = tuple(rf"\x1b\[[0-9;]{{{count}}}m" for count in range(10))
_APART = rf"(?:(?<![A-Za-z0-9])|{'|'.join(f'(?<={one})' for one in (*_ESCAPES, *_COLOURS))})"


@dataclass(frozen=True)
class Form:
    """A token, or an address: ``literals``, of which one is in the text where ``spelled``, the pattern, can match."""

    literals: tuple[str, ...]
    spelled: str
    needs: str | None = None
    """What must be found behind what stays readable."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled where it is first needed: most texts need none."""
        return re.compile(self.spelled)

    def masked(self, text: str) -> str:
        """The text without the secrets of this form; what ``keep`` matched stays."""
        return self.pattern.sub(self._kept, text) if any(one in text for one in self.literals) else text

    def _kept(self, match: re.Match[str]) -> str:
        keep = match["keep"] if "keep" in match.re.groupindex else ""
        if self.needs is not None and not re.search(self.needs, match.group()[len(keep) :]):
            return match.group()
        return keep + MASK


@lru_cache(maxsize=1)
def forms() -> tuple[Form, ...]:
    """The forms of the table in its order, links first: they may hold what looks like a token."""
    data = table("secrets.toml")
    found = [Form(tuple(row["contains"]), row["pattern"]) for row in data["link"]]
    for row in data["token"]:
        apart = _APART if row.get("apart") else ""
        if "pattern" in row:
            found.append(Form(tuple(row["contains"]), apart + row["pattern"]))
            continue
        literals = tuple(row["starts"])
        keep = "|".join(map(re.escape, sorted(literals, key=len, reverse=True)))
        found.append(Form(literals, rf"{apart}(?P<keep>{keep}){row.get('rest', '[A-Za-z0-9_-]{20,}')}", row.get("needs")))
    return tuple(found)


def masked(text: str) -> str:
    """The same text with every secret replaced by ``***``; its lines stay lines."""
    text = _without_private_keys(text)
    for form in forms():
        text = form.masked(text)
    text = _without_userinfo(text)
    text = _without_named(text)
    return _SCHEME.sub(rf"\g<keep>{MASK}", text)


_SCHEME = re.compile(
    r"(?P<keep>(?<![A-Za-z0-9])(?:[Bb]earer|BEARER|[Bb]asic|BASIC)[^\S\n]{1,16})"
    r"(?=[A-Za-z._~+/=-]{0,255}[0-9=])[A-Za-z0-9._~+/-]{12,}=*"
)


# ---------------------------------------------------------------- private keys

_BEGIN = re.compile(r"-----? ?BEGIN [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)? ?-----?|Private-Lines: [0-9]{1,4}")
_END = re.compile(r"-----? ?END [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)? ?-----?|Private-MAC: [0-9a-f]{1,64}")
_MOST_OF_KEY = 16_384
# What can follow the beginning of a key whose end is missing: lines of base64, and the headers of old forms.
_BODY = re.compile(
    r"(?:(?:\\[nr]|\s){1,8}(?:[A-Za-z0-9+/=]{16,}|(?:Proc-Type|DEK-Info|Version|Comment): ?[^\n\\]{0,100}))*"
)
# The same before the end of one whose beginning is missing, read backwards.
_BODY_REVERSED = re.compile(r"(?:(?:[nr]\\|\s){1,8}[A-Za-z0-9+/=]+)*")


def _without_private_keys(text: str) -> str:
    if "PRIVATE KEY" not in text and "Private-" not in text:
        return text
    pieces, done = [], 0
    ends = [match.span() for match in _END.finditer(text)]
    place = 0
    for match in _BEGIN.finditer(text):
        if match.start() < done:
            continue
        while place < len(ends) and ends[place][0] < match.end():
            pieces += _before(text, done, ends[place][0])
            done = max(done, ends[place][0])
            place += 1
        if place < len(ends) and ends[place][0] - match.end() <= _MOST_OF_KEY:
            stop = ends[place][1]
            place += 1
        else:
            body = _BODY.match(text, match.end())
            stop = body.end() if body is not None else match.end()
        pieces += [text[done : match.end()], _blank(text[match.end() : stop])]
        done = stop
    for start, _ in ends[place:]:
        pieces += _before(text, done, start)
        done = max(done, start)
    return "".join((*pieces, text[done:]))


def _before(text: str, done: int, end: int) -> list[str]:
    """``text[done:end]`` without the body of a key that stands at its end."""
    if end <= done:
        return []
    window = text[max(done, end - _MOST_OF_KEY) : end]
    body = _BODY_REVERSED.match(window[::-1])
    start = end - (body.end() if body is not None else 0)
    return [text[done:start], _blank(text[start:end])] if end - start >= 16 else [text[done:end]]


def _blank(text: str) -> str:
    return MASK + "\n" * text.count("\n") if text.strip("\n*") else text


# ---------------------------------------------------------------- addresses

_AUTHORITY = re.compile(r"[^\s\"'<>`/?#\\]*")
_ADDRESS = re.compile(r"[^\s\"'<>`]{0,1024}")
_PORT = re.compile(r"[0-9]{0,5}")


def _without_userinfo(text: str) -> str:
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
        if _is_plain(password):
            return None
        return f"{MASK if len(user) >= 20 and looks_random(user) else user}:{MASK}"
    if len(user) >= (16 if colon else 20) and re.fullmatch(r"[A-Za-z0-9_~+=.%-]+", user):
        return MASK + colon + password
    return None


# ---------------------------------------------------------------- names

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@lru_cache(maxsize=1)
def _names() -> dict[str, frozenset[str]]:
    return {name: frozenset(words) for name, words in table("secrets.toml")["names"].items()}


def _ends(word: str) -> bool:
    """Words run together: ``pgpassword``, ``accesstoken``, ``dbpass``."""
    known = _names()
    return any(word.endswith(one) for one in known["ends"]) or (word[-4:] == "pass" and word[:-4] in known["pass_of"])


@lru_cache(maxsize=4096)
def verdict_on(name: str) -> Verdict:
    """Whether a variable, an option, a header or a field of this name holds a secret."""
    known = _names()
    bare = name.lstrip("-")[-_LONGEST_NAME:]
    low = bare.lower()
    if low in known["whole"] or low in known["headers"]:
        return "yes"
    if low in known["paths"]:
        return "path"
    words = [word.lower() for word in _WORD.findall(bare)]
    while words and words[-1].isdigit():
        words.pop()
    if not words:
        return "no"
    capitals = bare.upper() == bare and len(words) > 1
    if capitals and any(word.startswith("pass") for word in words[1:]):
        return "yes"
    return _by_last_word(words, capitals=capitals, option=name.startswith("-")) or _by_any_word(words, capitals)


def _by_last_word(words: Sequence[str], *, capitals: bool, option: bool) -> Verdict | None:
    known = _names()
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in known["always"] or (last in known["last"] and last != "token"):
        return "yes"
    if last == "token":
        return "unsure" if before in known["plain_token"] and not capitals else "yes"
    if last == "tokens":
        return "yes" if before in known["key_of"] | {"refresh", "bearer", "session"} else "unsure"
    if last in {"key", "keys"}:
        return "yes" if before and (capitals or before in known["key_of"]) else "unsure"
    if last == "pass":
        return "yes" if option or (before and (capitals or before in known["pass_of"])) else "unsure"
    if last in known["unsure"]:
        return "yes" if last == "auth" and capitals else "unsure"
    return "yes" if _ends(last) else None


def _by_any_word(words: Sequence[str], capitals: bool) -> Verdict:  # noqa: FBT001 - one caller, beside it
    known = _names()
    if words[-1] in known["about"]:
        return "no"
    if any(word in known["always"] or _ends(word) for word in words):
        return "yes" if any(word in known["always"] for word in words) or capitals else "unsure"
    pairs = zip(words, words[1:], strict=False)
    return "yes" if any(two == "key" and one in known["key_of"] for one, two in pairs) else "no"


# ---------------------------------------------------------------- values

_COLOUR = r"(?:\x1b\[[0-9;]{0,16}m){0,4}"
_SPACE = r"[^\S\n]{0,16}"
_NAMED = re.compile(
    rf"(?<![\w.-])(?P<name>[\w.-]+)(?P<close>\\*[\"'`]\]?)?{_COLOUR}{_SPACE}{_COLOUR}(?P<sign>:=|=>|===?|=|:(?!:)){_COLOUR}"
    rf"(?P<gap>{_SPACE}){_COLOUR}"
    rf"|(?<!\S)(?P<option>--?[\w.-]+)[^\S\n]{{1,16}}(?=[^\s-])"
    rf"|<(?P<tag>[\w.-]+)>(?=[^<\s])"
)
# A variable in YAML or JSON: its name is the value of one field, and its value that of the next.
_PAIR = re.compile(
    r"(?:[Nn]ame|[Kk]ey)\\*[\"']?\s{0,8}[:=]\s{0,8}\\*[\"']?(?P<name>[\w.-]{1,96})\\*[\"']?\s{0,8},?\s{0,32}\\*[\"']?"
    r"[Vv]alue\\*[\"']?\s{0,8}[:=]\s{0,8}"
)
_OPENING = re.compile(r"(?:[bBrRuUfF]{0,2}|\$|@)(?P<open>(?P<slashes>\\*)(?P<quote>[\"'`]))")
_CLOSING = {quote: re.compile(rf"(\\*){quote}|\n") for quote in "\"'`"}
_STOP = re.compile(r"[\s\"'`,;&)\]}<\x1b]")
_KEY_AHEAD = re.compile(r"[\w.-]{1,64}[\"']?[=:]")
_ANNOTATION = re.compile(r"[A-Za-z_][\w.]{0,60}(?:\[[^\]\n]{0,80}\])?(?:[^\S\n]?\|[^\S\n]?None)?[^\S\n]{0,4}=(?!=)[^\S\n]{0,4}")
_POINTER = re.compile(r"0x[0-9a-f]{1,16}[^\S\n]{1,2}(?=\\?[\"'])")
_EXPRESSION = re.compile(r"(?:await |not |new |&|\*)?[A-Za-z_][A-Za-z_.]*[(\[]")
_ATTRIBUTE = re.compile(r"[A-Za-z_][\w.]{0,100}")
_SENTENCE = re.compile(r"[A-Za-z][A-Za-z'-]{0,24}[,.;:!?)]?[^\S\n]{1,4}[A-Za-z('\"](?![\w.-]{0,64}[=:])")
_HEADER_END = re.compile(r"\n|\\r|\\n|\r")
_HEADER_END_IN = {quote: re.compile(rf"\n|\\r|\\n|\r|\\*{quote}") for quote in "\"'`"}
_AUTH_SCHEMES = frozenset({"bearer", "basic", "token", "digest", "negotiate", "apikey"})
_PLAIN = re.compile(
    r"(?i:none|null|nil|true|false|undefined|yes|no|unset|empty|redacted|hidden|masked|filtered|required|optional|string"
    r"|str|int|bool|bytes|float|object|any|optional\[\w{1,20}\]|secretstr|nan)"
    r"|\$[A-Z_][A-Z0-9_]*|\$\{[^}]*\}?|\$\([^)]*\)?|%[A-Za-z_]\w*%|<[\w \-.:/|]{0,60}>?|\{\{?[\w. -]{0,60}\}?\}?"
    r"|0x[0-9A-Fa-f]{1,16}|\[?\*{2,}\]?|\[[A-Za-z]{0,20}\]?|[^A-Za-z0-9]*|x{3,}|X{3,}"
)
_PATH = re.compile(r"~?/[^\s]*|[A-Za-z]:[\\/][^\s]*|\.{1,2}(?:/[^\s]*)?")


def _is_plain(value: str) -> bool:
    """A variable's name, a placeholder, a pointer, ``None``: no secret whatever the name says."""
    return _PLAIN.fullmatch(value) is not None


def looks_random(value: str) -> bool:
    """Letters and digits, or small and capital letters, take turns as in nothing that a person would write."""
    if len(value) < 12 or value.startswith("0x") or "/" in value[:1]:
        return False
    kinds = ["0" if char.isdigit() else "A" if char.isupper() else "a" for char in value[:256] if char.isalnum()]
    turns = sum(one != two and (one, two) != ("A", "a") for one, two in zip(kinds, kinds[1:], strict=False))
    return turns >= max(4, len(kinds) // 8)


def _looks_like_one(name: str, value: str) -> bool:
    """The value of a name that says little: ``key``, ``auth``, ``pad_token``, ``pass``."""
    if name.lower().endswith("pass"):
        return len(value) >= 6 and any(map(str.isalpha, value)) and not value.isalpha() and not _PATH.fullmatch(value)
    return looks_random(value)


def is_secret_value(name: str, value: str) -> bool:
    """Whether the value of a variable, alone and whole, is a secret."""
    verdict = verdict_on(name)
    if verdict == "no" or not value:
        return False
    quoted = re.fullmatch(r"[bBrRuU]{0,2}(['\"])(.*)\1", value, re.DOTALL)
    inner = quoted[2] if quoted is not None else value
    if not inner or _is_plain(inner):
        return False
    if verdict == "path":
        return not _PATH.fullmatch(inner)
    return verdict == "yes" or _looks_like_one(name, inner)


def _without_named(text: str) -> str:
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
    """Where the values of telling names stand."""
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
    name = match["name"] or match["option"] or match["tag"]
    known = _names()
    low = name.lower()[-_LONGEST_NAME:]
    before = text[max(0, match.start() - 5) : match.start()]
    sign = match["sign"]
    if sign == "=" and not match["close"] and before.endswith(("?", "&", "&amp;")):
        if low in known["parameters"] or verdict_on(name) != "no":
            return _until(text, match.end(), _PARAMETER)
        return None
    if sign == ":" and low in known["headers"] and not match["close"] and low != "cookies":
        return _header(text, match.end(), before[-1:])
    verdict = verdict_on(name)
    if verdict == "no":
        return None
    if match["tag"]:
        return _until(text, match.end(), _TAG) if verdict == "yes" else None
    if sign == ":" and match["gap"] and not match["close"] and name.isalpha() and _SENTENCE.match(text, match.end()):
        return None
    at = match.end()
    if sign == ":" and not match["close"] and (annotated := _ANNOTATION.match(text, at)) is not None:
        at = annotated.end()
        sign = "="
    return _value(text, name, at, verdict, code=sign == "=" and not name.isupper())


_PARAMETER = re.compile(r"[^\s&#\"'<>`)\]\\]+")
_TAG = re.compile(r"[^<\n]+")


def _until(text: str, at: int, run: re.Pattern[str]) -> tuple[int, int] | None:
    match = run.match(text, at)
    return match.span() if match is not None and not _is_plain(match.group()) else None


def _header(text: str, at: int, before: str) -> tuple[int, int] | None:
    """The rest of a header's line, which ends where the quote does that it stands in."""
    quoted = _OPENING.match(text, at)
    if quoted is not None and before not in _CLOSING:
        return _quoted(text, quoted)
    match = (_HEADER_END_IN[before] if before in _CLOSING else _HEADER_END).search(text, at)
    end = match.start() if match is not None else len(text)
    while end > at and text[end - 1] in " \t":
        end -= 1
    return (at, end) if end > at and not _is_plain(text[at:end]) else None


def _value(text: str, name: str, at: int, verdict: Verdict, *, code: bool = False) -> tuple[int, int] | None:
    """Where the value of ``name`` stands that begins at ``at``; None where it is no secret."""
    if verdict == "no":
        return None
    pointer = _POINTER.match(text, at)
    at = pointer.end() if pointer is not None else at
    quoted = _OPENING.match(text, at)
    span = _quoted(text, quoted) if quoted is not None else _unquoted(text, at)
    value = text[span[0] : span[1]]
    if _is_plain(value) or (verdict == "path" and _PATH.fullmatch(value)):
        return None
    if verdict == "unsure" and not _looks_like_one(name, value):
        return None
    return None if quoted is None and code and _is_code(text, name, at) else span


def _is_code(text: str, name: str, at: int) -> bool:
    """A line of a program, which says where a secret comes from: ``token = get_token(user)``, ``token=self.token``."""
    if _EXPRESSION.match(text, at):
        return True
    match = _ATTRIBUTE.match(text, at)
    if match is None or text[match.end() : match.end() + 1].strip(",)]}:;\\\"'") != "":
        return False
    said = match.group()
    return said.rpartition(".")[2].lstrip("_") == name.rpartition(".")[2].lstrip("_-") or (
        "." in said and verdict_on(said) != "no"
    )


def _quoted(text: str, opening: re.Match[str]) -> tuple[int, int]:
    """What stands between quotes, which may themselves be escaped; to the end of the line where they are not closed."""
    depth, quote = len(opening["slashes"]), opening["quote"]
    start = opening.end()
    for match in _CLOSING[quote].finditer(text, start):
        if match[1] is None:
            return start, match.start()
        slashes = len(match[1])
        if slashes <= depth if depth else slashes % 2 == 0:
            return start, match.end() - 1 - depth if depth else match.end() - 1
    return start, len(text)


def _unquoted(text: str, at: int) -> tuple[int, int]:
    """A value that ends at a space, or at what ends it in a list, a call, an address or a string."""
    place = at
    while (stop := _STOP.search(text, place)) is not None:
        end = stop.start()
        char, after = text[end], text[end + 1 : end + 2]
        if char.isspace() or char == "\x1b" or not after or after.isspace():
            break
        if char == "<" and after != "/":
            place = end + 1
        elif char in "\"'`" and (after.isalnum() or after == "_"):
            place = end + 1
        elif char in ",;&" and after not in ",;&)]}\"'`" and not _KEY_AHEAD.match(text, end + 1):
            place = end + 1
        elif char in ")]}" and (after.isalnum() or after in "_!#%@$*"):
            place = end + 1
        else:
            break
    else:
        return at, len(text)
    end = stop.start()
    word = text[at:end].lower()
    if word in _AUTH_SCHEMES and text[end] in " \t":
        following = re.compile(r"[^\S\n]{1,16}[^\s\"'`,;]+").match(text, end)
        if following is not None:
            return at, following.end()
    return at, end


# ---------------------------------------------------------------- command lines

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
        takes_one = word in options or (word.startswith("-") and verdict_on(word) in {"yes", "unsure"})
        behind = word if takes_one and "=" not in word else None
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
        if len(option) == 2 and word.startswith(option) and len(word) > 2:  # noqa: PLR2004 - of one letter: -pSECRET
            return option + _value_of(option, word[2:], options)
    match = _ASSIGNED.fullmatch(word)
    if match is not None and is_secret_value(match["name"], match["value"]):
        return f"{match['name']}={MASK}"
    return masked(word)
