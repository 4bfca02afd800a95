"""Exit statuses in any spelling: a shell's 139, Python's -11, PyCharm's -1073740791 (0xC0000409), a name.

The same number means different things in different places, and then every reading is given, the likeliest first. How
codes are shown where: measured with bash, dash, CPython's subprocess and wine; for Windows' own consoles read in
Microsoft's documentation, for Git Bash in Cygwin's winsup/cygwin/pinfo.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from necropsy.errors import UnknownCodeError
from necropsy.formats.statuses import signals, status_of_name, statuses, subcodes
from necropsy.model import NtStatus

Kind = Literal["signal", "status", "exit", "subcode"]
STATUS_FROM = 0x40000000
"""Below it lie the statuses that say success; no process dies with one."""
HIGHEST_SIGNAL = 64

_GIT_BASH = {139: 0xC0000005, 132: 0xC000001D, 135: 0xC0000017, 130: 0xC000013A}
_TOKEN = re.compile(
    r"[-+]?0[xX][0-9A-Fa-f]+|(?<![\w.])[0-9A-Fa-f]{8}(?![\w.])|(?<![\w.])[-+]?\d+(?!\.?\w)|[A-Za-z_][\w+]*"
)
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and application at by code codes command crash crashed died does dumped core ended error exit exited "
        "exitcode failed finished first has in is it kernel killed main mean my of on or process program python rc "
        "returncode returned status terminated the value was what windows with",
    )
)
_SIGNAL_WORDS = frozenset({"signal", "sig", "signo"})
_SUBCODE_WORDS = frozenset({"subcode", "fastfail", "fast_fail"})


@dataclass(frozen=True)
class Reading:
    """One way to read a code. ``value``: the signal's number, the 32-bit status, the exit code, or the subcode."""

    kind: Kind
    value: int
    how: str


@dataclass(frozen=True)
class Code:
    """A code as it was spelled, and its readings, the likeliest first (never empty).

    ``also`` holds the other spellings of the same that were given with it.
    """

    spelled: str
    readings: tuple[Reading, ...]
    is_name: bool = False
    also: tuple[str, ...] = ()

    @property
    def best(self) -> Reading:
        """The likeliest reading."""
        return self.readings[0]


def read(words: Sequence[str]) -> tuple[Code, ...]:
    """Every code in ``words``, each once however often it is spelled, in their order.

    A word that holds white space is a piece of text, in which what is no code is passed over; a word of its own must
    be a code or one of those that stand around codes (``exit code 139``).

    Raises:
        UnknownCodeError: a word is no code, or there is none at all.

    """
    found: list[Code] = []
    context = ""
    alone = len(words) == 1
    for word in words:
        text, lenient = _spell_signals(word, alone=alone), bool(re.search(r"\s", word.strip()))
        for token in _tokens(text, word):
            code = _code(token, context)
            if code is None and not lenient and token.lower() not in _WORDS | _SIGNAL_WORDS | _SUBCODE_WORDS:
                raise UnknownCodeError(f"{word!r} is neither an exit code nor a signal nor a verdict")
            context = token.lower()
            if code is not None:
                found.append(code)
    if not found:
        raise UnknownCodeError(f"no exit code in {' '.join(words)!r}")
    return _merged(found)


def _merged(found: Sequence[Code]) -> tuple[Code, ...]:
    merged: dict[tuple[Kind, int], Code] = {}
    for code in found:
        key = (code.best.kind, code.best.value)
        same = merged.get(key)
        merged[key] = code if same is None else replace(same, also=(*same.also, code.spelled))
    return tuple(merged.values())


def contradictions(codes: Sequence[Code]) -> tuple[str, ...]:
    """Where a number and a name, or two spellings of a status, were given together and are not the same."""
    given = [code for code in codes if code.best.kind == "status"]
    said = [
        f"{one.spelled} is {nt_status(one.best.value).value}, {other.spelled} is "
        f"{nt_status(other.best.value).value}: these are two different things"
        for place, one in enumerate(given)
        for other in given[place + 1 :]
    ]
    numbers = [code for code in codes if not code.is_name and any(one.kind == "signal" for one in code.readings)]
    for name in codes:
        if name.is_name and name.best.kind == "signal" and not name.also:
            said += [
                f"{code.spelled} is not {name.spelled}"
                for code in numbers
                if name.best.value not in {one.value for one in code.readings if one.kind == "signal"}
            ]
    return tuple(said)


def nt_status(value: int) -> NtStatus:
    """The status in the model's form: hex, signed as consoles print it, and its name where it has one."""
    from necropsy.formats.statuses import name_of_status

    value &= 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return NtStatus(value=f"0x{value:08X}", signed=signed, name=name_of_status(value))


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``SIGRTMIN+2`` and the like for those that have no name of their own."""
    entry = signals().get(number)
    if entry is not None:
        return entry.name
    return f"SIGRTMIN+{number - 34}" if 34 <= number <= HIGHEST_SIGNAL else f"signal {number}"


# ---------------------------------------------------------------- tokens


def _spell_signals(text: str, *, alone: bool) -> str:
    """``Segmentation fault`` becomes SIGSEGV."""
    text = text.replace("(core dumped)", " ")
    for entry in signals().values():
        for spelling in entry.texts:
            # One word alone (Killed, Quit) stands in many sentences: it counts where it is all that is said.
            if " " not in spelling and not (alone and text.strip().lower() == spelling.lower()):
                continue
            text = re.sub(rf"(?i)(?<!\w){re.escape(spelling)}(?!\w)", f" {entry.name} ", text)
    return text


def _tokens(text: str, word: str) -> Iterator[str]:
    tokens = _TOKEN.findall(text)
    if not tokens:
        raise UnknownCodeError(f"{word!r} is neither an exit code nor a signal nor a verdict")
    yield from tokens


def _code(token: str, context: str) -> Code | None:
    if re.fullmatch(r"[-+]?0[xX][0-9A-Fa-f]+", token):
        return Code(token, _of_hex(int(token, 16), token))
    if re.fullmatch(r"[0-9A-Fa-f]{8}", token) and (not token.isdigit() or int(token, 16) in statuses()):
        return Code(token, _of_hex(int(token, 16), token))
    if re.fullmatch(r"[-+]?\d+", token):
        return Code(token, _of_number(int(token), token, context))
    return _of_name(token)


def _of_name(token: str) -> Code | None:
    upper = token.upper()
    for number, entry in signals().items():
        if upper in {entry.name, entry.name[3:]}:
            return Code(entry.name, (Reading("signal", number, f"signal {number}"),), is_name=True)
    if upper.startswith("FAST_FAIL_"):
        number_of = next((code for code, sub in subcodes().items() if sub.name == upper), None)
        return (
            None if number_of is None else Code(upper, (Reading("subcode", number_of, f"subcode {number_of}"),), True)
        )
    if len(upper) > 6 and (value := status_of_name(upper)) is not None:
        return Code(upper, (Reading("status", value, "the status of this name"),), is_name=True)
    return None


# ---------------------------------------------------------------- numbers


def _of_hex(value: int, spelled: str) -> tuple[Reading, ...]:
    if value < 0:
        return _of_number(value, spelled, "")
    if value < 0x100:
        return _of_number(value, spelled, "")
    if value < 0x10000:
        full = [code for code in statuses() if code & 0xFFFF == value]
        if full:
            return tuple(Reading("status", code, f"if {spelled} are the last digits of a status") for code in full)
    return _of_number(value, spelled, "")


def _of_number(number: int, spelled: str, context: str) -> tuple[Reading, ...]:
    if context in _SIGNAL_WORDS and 1 <= abs(number) <= HIGHEST_SIGNAL:
        return (Reading("signal", abs(number), f"signal {abs(number)}"),)
    if context in _SUBCODE_WORDS and number in subcodes():
        return (Reading("subcode", number, f"subcode {number} of __fastfail"),)
    if not -(1 << 31) <= number < 1 << 32:
        raise UnknownCodeError(f"{spelled} has more than 32 bits: no exit status is that large")
    if number < 0:
        return _of_negative(number)
    if number >= STATUS_FROM:
        return _of_status(number)
    if number > 0xFF:
        return _of_large(number, spelled)
    return _of_byte(number)


def _of_negative(number: int) -> tuple[Reading, ...]:
    own = Reading("exit", number, f"on Windows: the program's own exit({number})")
    if number >= -HIGHEST_SIGNAL:
        signal = Reading("signal", -number, f"a negative code is a signal's number in Python's subprocess: {-number}")
        return (signal, own) if number in {-1, -2, -3} else (signal,)
    if number > -0x10000:
        return (Reading("exit", number, f"the program's own exit({number})"),)
    return _of_status(number & 0xFFFFFFFF)


def _of_status(value: int) -> tuple[Reading, ...]:
    if value >= 0xFFFF0000:
        own = value - (1 << 32)
        return (Reading("exit", own, f"exit({own}), its 32 bits read without a sign"),)
    plain = value & ~0x10000000
    if value not in statuses() and value & 0x10000000 and plain in statuses():
        return (Reading("status", plain, f"0x{value:08X} is an HRESULT that wraps the status 0x{plain:08X}"),)
    return (Reading("status", value, "a 32-bit status of Windows"),)


def _of_large(number: int, spelled: str) -> tuple[Reading, ...]:
    readings = []
    if 256 < number <= 256 + HIGHEST_SIGNAL:
        readings.append(Reading("signal", number - 256, f"256 + {number - 256}, as ksh93 and PBS show a signal"))
    if number & 0xFF == 0 and number <= 0xFF00:
        first, *_ = _of_byte(number >> 8)
        how = f"the wait status of os.system on Linux and macOS: exit code {number >> 8}; {first.how}"
        readings.append(Reading(first.kind, first.value, how))
    kept = f" (Linux and macOS would keep {number & 0xFF})"
    readings.append(Reading("exit", number, f"the program's own exit({spelled}) on Windows{kept}"))
    return tuple(readings)


def _of_byte(number: int) -> tuple[Reading, ...]:
    if 128 < number <= 128 + HIGHEST_SIGNAL:
        signal = number - 128
        readings = [Reading("signal", signal, f"128 + {signal}: how a shell or a container shows a signal")]
        if number in _GIT_BASH:
            how = f"in Git Bash, MSYS2 and Cygwin: Windows' 0x{_GIT_BASH[number]:08X}"
            readings.append(Reading("status", _GIT_BASH[number], how))
        readings.append(Reading("exit", number, f"the program's own exit({number}): the number cannot tell"))
        return tuple(readings)
    readings = [Reading("exit", number, f"exit code {number}")]
    if number in signals() and number not in {1, 2, 3}:
        readings.append(Reading("signal", number, "if it is a signal's number (Slurm's 0:N, `killed by signal N`)"))
    # 1, 2 and 3 are what programs end with every day: no crash is read out of them.
    if number > 3:
        how = "under WSL and wine, which keep the last byte of a Windows status"
        readings += [Reading("status", code, how) for code in statuses() if code & 0xFF == number and code >> 28 == 0xC]
    return tuple(readings)
