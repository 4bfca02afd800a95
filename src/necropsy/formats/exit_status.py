"""Exit statuses in any spelling: a shell's 139, Python's -11, PyCharm's -1073740791 (0xC0000409), a name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import msgspec

from necropsy.errors import UnknownCodeError
from necropsy.formats.exit_readings import (
    HIGHEST_SIGNAL,
    SIGNAL_WORDS,
    SUBCODE_WORDS,
    ExitCode,
    ExitReading,
    Kind,
    of_hex,
    of_number,
)
from necropsy.formats.statuses import foreign_words, name_of_status, signals, status_of_name, statuses, subcodes
from necropsy.model import Exit, FastFail, NtStatus

__all__ = ["ExitCode", "ExitReading", "Kind", "exit_of", "nt_status", "number", "read", "signal_name", "signal_number"]

FAST_FAIL = 0xC0000409
_MINUS = str.maketrans("\u2212\u2013\u2011\ufe63\uff0d", "-----")
"""What word processors and forums make of a minus sign."""
_NUMBER = r"[-+]?(?:0[xX][0-9A-Fa-f]+|\d{1,3}(?:,\d{3})+|\d+)"
_TOKEN = re.compile(
    r"[-+]?0[xX][0-9A-Fa-f]+|(?<![\w.])[0-9A-Fa-f]{8}(?=h?(?![\w.]))|(?<![\w.])[-+]?\d{1,3}(?:,\d{3})+(?![\d,])"
    r"|(?<![\w.])[-+]?\d+(?=\.0+(?!\w))|(?<![\w.])[-+]?\d+(?=[uUlL]{0,3}(?!\.?\w))|[A-Za-z_][\w+]*"
)
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and application at by code codes command crash crashed died does dumped core ended error exit exited "
        "exitcode failed finished first has in is it kernel killed main mean my of on or process program python rc "
        "returncode returned status terminated the value was what windows with u l ul ull h",
    )
)
_SAYING = SIGNAL_WORDS | SUBCODE_WORDS | {"code", "codes", "exit", "exited", "exitcode"}
_SAYING |= {"rc", "returncode", "returned", "status", "terminated"}
"""Words that make the plain number behind them an exit code, in a sentence too ..."""
_PERHAPS = frozenset({"", "died", "error", "is", "return", "value", "was", "with"})
"""... and those that do so where it is one that a shell makes of a failed start or of a signal: 126 and more."""
_LONGEST = 4096
"""Characters of a word that are looked at."""


def read(words: Sequence[str]) -> tuple[ExitCode, ...]:
    """Every code in ``words``, each once, in order. Raises UnknownCodeError for a word that is not one, or if none is.

    A word with white space is text, in which other words are passed over; any other must be a code or one of the words
    around codes (``exit code 139``).
    """
    found: list[ExitCode] = []
    context = ""
    alone = len(words) == 1
    for word in words:
        text, lenient = _spell_signals(word[:_LONGEST], alone=alone), bool(re.search(r"\s", word.strip()))
        for token in _tokens(text, word):
            code = None if lenient and _is_bare(token, context) else _code(token, context)
            if code is None and not lenient and token.lower() not in _WORDS | SIGNAL_WORDS | SUBCODE_WORDS:
                raise UnknownCodeError(f"{word!r} is not an exit code, a signal or the name of a rule")
            context = token.lower()
            if code is not None:
                found.append(code)
    if not found:
        raise UnknownCodeError(f"no exit code in {' '.join(words)!r}")
    return _merged(found)


def _is_bare(token: str, context: str) -> bool:
    """A plain number in a sentence without a word before it that says what it is: a step, a line, an hour."""
    if not re.fullmatch(r"\d{1,9}", token) or context in _SAYING or number(context) is not None:
        return False
    return context not in _PERHAPS or int(token) < 126


def number(text: str) -> int | None:
    """The number that ``text`` spells, in decimal or hex; None where it is none or has thousands of digits."""
    text = text.translate(_MINUS).strip()
    if len(text) > 32 or not re.fullmatch(_NUMBER, text):
        return None
    return int(text.replace(",", ""), 16 if "x" in text.lower() else 10)


def _merged(found: Sequence[ExitCode]) -> tuple[ExitCode, ...]:
    merged: dict[tuple[Kind, int], ExitCode] = {}
    for code in found:
        key = (code.best.kind, code.best.value)
        same = merged.get(key)
        merged[key] = code if same is None else replace(same, also=(*same.also, code.spelled))
    return tuple(merged.values())


# ---------------------------------------------------------------- in the model's form


def nt_status(value: int) -> NtStatus:
    """The status in the model's form: hex, signed as consoles print it, and its name where it has one."""
    value &= 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return NtStatus(value=f"0x{value:08X}", signed=signed, name=name_of_status(value))


def exit_of(reading: ExitReading, text: str) -> Exit:
    """The end of a process that one reading of a code speaks of; ``text`` is how it was written."""
    if reading.kind == "signal":
        return Exit(kind="signaled", signal=signal_name(reading.value), text=text)
    if reading.kind == "status":
        status = nt_status(reading.value)
        return Exit(kind="exited", code=status.signed, ntstatus=status, text=text)
    if reading.kind == "subcode":
        name = subcodes()[reading.value].name
        status = msgspec.structs.replace(nt_status(FAST_FAIL), fast_fail=FastFail(code=reading.value, name=name))
        return Exit(kind="exited", code=status.signed, ntstatus=status, text=text)
    return Exit(kind="exited", code=reading.value, text=text)


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``SIGRTMIN+2`` and the like for those that have no name of their own."""
    entry = signals().get(number)
    if entry is not None:
        return entry.name
    return f"SIGRTMIN+{number - 34}" if 34 <= number <= HIGHEST_SIGNAL else f"signal {number}"


def signal_names() -> tuple[str, ...]:
    """The names of all signals."""
    return tuple(entry.name for entry in signals().values())


def signal_number(text: str) -> int | None:
    """Linux' number of a signal (``11``, ``segv``, strsignal(3) in glibc's languages), or None."""
    text = text.strip()[:80]
    if re.fullmatch(r"\d{1,2}", text):
        return int(text) if 1 <= int(text) <= HIGHEST_SIGNAL else None
    text = re.sub(r": \d{1,2}$", "", text).lower()
    return _signal_words().get(text)


@lru_cache(maxsize=1)
def _signal_words() -> dict[str, int]:
    words: dict[str, int] = {}
    numbers = {entry.name: value for value, entry in signals().items()}
    for name, spellings in foreign_words().items():
        words |= {spelling.lower(): numbers[name] for spelling in spellings}
    for value, entry in signals().items():
        words |= {spelling.lower(): value for spelling in (entry.name, entry.name[3:], *entry.texts)}
    return words


# ---------------------------------------------------------------- tokens


def _spell_signals(text: str, *, alone: bool) -> str:
    text = re.sub(r"\((?:core dumped|Speicherabzug geschrieben)\)", " ", text.translate(_MINUS))
    for entry in signals().values():
        for spelling in (*entry.texts, *foreign_words().get(entry.name, ())):
            # One word alone (Killed, Quit) occurs in many sentences: it counts where it is all that is said.
            if (
                " " not in spelling
                and text.strip() != spelling
                and not (alone and text.strip().lower() == spelling.lower())
            ):
                continue
            if spelling.lower() in text.lower():
                text = re.sub(rf"(?i)(?<!\w){re.escape(spelling)}(?!\w)", f" {entry.name} ", text)
    return text


def _tokens(text: str, word: str) -> Iterator[str]:
    tokens = _TOKEN.findall(text)
    if not tokens:
        raise UnknownCodeError(f"{word!r} is not an exit code, a signal or the name of a rule")
    yield from tokens


def _code(token: str, context: str) -> ExitCode | None:
    if re.fullmatch(r"[-+]?0[xX][0-9A-Fa-f]+", token):
        return ExitCode(token, of_hex(int(token, 16), token))
    if re.fullmatch(r"[0-9A-Fa-f]{8}", token) and (not token.isdigit() or int(token, 16) in statuses()):
        return ExitCode(token, of_hex(int(token, 16), token))
    if re.fullmatch(_NUMBER, token):
        return ExitCode(token, of_number(int(token.replace(",", "")[:32]), token, context))
    return _of_name(token)


def _of_name(token: str) -> ExitCode | None:
    upper = token.upper()
    for value, entry in signals().items():
        if upper in {entry.name, entry.name[3:]}:
            return ExitCode(entry.name, (ExitReading("signal", value, f"signal {value}"),), is_name=True)
    if upper.startswith("FAST_FAIL_"):
        number_of = next((code for code, sub in subcodes().items() if sub.name == upper), None)
        return (
            None
            if number_of is None
            else ExitCode(upper, (ExitReading("subcode", number_of, f"subcode {number_of}"),), True)
        )
    if len(upper) > 6 and (status := status_of_name(upper)) is not None:
        return ExitCode(upper, (ExitReading("status", status, "the status of this name"),), is_name=True)
    return None


_NAMES = frozenset({"timeout", "gtimeout"})
_BOXES = frozenset({"busybox", "coreutils", "toybox"})
_WITH_VALUE = frozenset({"-s", "-k", "--signal", "--kill-after"})
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def time_limit_of(command: Sequence[str]) -> float | None:
    """The time limit in seconds; None where the command is not timeout(1), or has none (0)."""
    words = list(command)
    if words and words[0].rpartition("/")[2] in _BOXES:
        words = words[1:]
    if not words or words[0].rpartition("/")[2] not in _NAMES:
        return None
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            at += 1
            break
        at += 2 if words[at] in _WITH_VALUE else 1
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{0,9})?|\.\d{1,9})([smhd]?)", words[at]) if at < len(words) else None
    return (float(match[1]) * _UNITS[match[2]] or None) if match is not None else None
