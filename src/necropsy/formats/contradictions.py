"""Inputs about one death that cannot both be true, and which of them to believe.

Texts on the web mix up statuses with similar names, or quote the number of one crash beside the words of another. The
number came from the system; the name was written beside it by a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from necropsy.formats.exit_readings import GIT_BASH, ExitCode, ExitReading, of_number
from necropsy.formats.exit_status import nt_status, number, signal_name, signal_number
from necropsy.formats.statuses import signals, statuses
from necropsy.model import Contradiction, Exit

_ENDS_ONCE = (
    "one process ends once: these are the ends of two processes or of two runs, or one of them was noted down wrong"
)
_OVERRUN, _OVERFLOW = 0xC0000409, 0xC00000FD
_WRAPPED = 0x10000000
"""The bit by which an HRESULT wraps a status (HRESULT_FROM_NT)."""
_ENDED_BY_OTHERS = frozenset({"SIGTERM", "SIGKILL", "SIGINT", "SIGHUP"})
_SIGABRT = 6
_SHOWN_AS = {(value, code - 128) for code, value in GIT_BASH.items()} | {(_OVERRUN, _SIGABRT)}
"""Status and signal: Git Bash's forms, and abort(), which is mostly what 0xC0000409 is."""
_STATUS_IN_WORDS = re.compile(r"(?<![\w.])(?:0[xX]([0-9A-Fa-f]{8})(?!\w)|(-?\d{9,10})(?![\w.]))")
_SIGNAL_IN_WORDS = re.compile(r"code (\d{3}) \(interrupted by signal \d{1,2}: ?(SIG[A-Z]{3,6})\)")


def of_codes(codes: Sequence[ExitCode]) -> tuple[Contradiction, ...]:
    """The pairs of codes that cannot be the end of one process.

    Not contradictory: two forms of one end (Git Bash shows 0xC0000005 as 139, abort() is 0xC0000409 or 3), and a plain
    exit code beside a signal, which are a launcher's and its child's.
    """
    return tuple(
        _between_codes(one, other)
        for one, other in combinations(codes, 2)
        if _is_death(one.best) and _is_death(other.best) and not _agree(one.readings, other.readings)
    )


def of_exits(exits: Sequence[Exit]) -> tuple[Contradiction, ...]:
    """The pairs of ends that cannot be one process's, and the sentences that contradict themselves."""
    own = [found for end in exits if end.text for found in _within(end.text)]
    known = [(end, reading) for end in exits if (reading := _reading(end)) is not None]
    for (one, first), (other, second) in combinations(known, 2):
        if not (_is_death(first) and _is_death(second)) or _agree((first,), (second,)):
            continue
        if _is_sentence(one) and _is_sentence(other) and _ENDED_BY_OTHERS & {one.signal, other.signal}:
            continue  # who runs several processes ends the others when one of them died
        own.append(
            Contradiction(
                said=_told(one, first),
                against=_told(other, second),
                why=_ENDS_ONCE,
            )
        )
    return tuple(dict.fromkeys(own))


def _within(text: str) -> Iterator[Contradiction]:
    """Contradictions within one sentence; only a number long enough to be nothing else counts as a status."""
    values: dict[int, str] = {}
    for match in _STATUS_IN_WORDS.finditer(text[:400]):
        value = int(match[1], 16) if match[1] else int(match[2])
        value &= 0xFFFFFFFF
        if value in statuses():
            values.setdefault(value, match[0])
    for (first, spelled), (second, other) in combinations(values.items(), 2):
        if first & ~_WRAPPED == second & ~_WRAPPED:
            continue
        yield Contradiction(
            said=f"{spelled} ({_name(ExitReading('status', first, ''))})",
            against=f"{other} ({_name(ExitReading('status', second, ''))})",
            why="one sentence gives both as the same number in two forms: one of them was copied wrong",
        )
    for match in _SIGNAL_IN_WORDS.finditer(text[:400]):
        named = signal_number(match[2])
        value = int(match[1])
        if named is not None and value - 128 != named:
            yield _number_or_name(f"exit code {value}", ExitReading("signal", value - 128, ""), match[2])


# ---------------------------------------------------------------- two codes


def _between_codes(one: ExitCode, other: ExitCode) -> Contradiction:
    if one.is_name == other.is_name:
        return Contradiction(
            said=_spelled(one),
            against=_spelled(other),
            why=_ENDS_ONCE,
        )
    number_, name = (other, one) if one.is_name else (one, other)
    return _number_or_name(number_.spelled, number_.best, name.spelled, name.best)


def _number_or_name(spelled: str, reading: ExitReading, name: str, named: ExitReading | None = None) -> Contradiction:
    why = "the number comes from the system; the name was written beside it by a person or a program"
    if named is not None and {reading.value, named.value} == {_OVERRUN, _OVERFLOW}:
        why += (
            "; texts often mix up these two, whose names both begin with STACK: 0xC00000FD is a stack that was full, "
            "0xC0000409 a process that ended itself at once"
        )
    against = f"{name} ({_number(named)})" if named is not None else name
    return Contradiction(said=f"{spelled} ({_name(reading)})", against=against, right=_name(reading), why=why)


def _spelled(code: ExitCode) -> str:
    if code.is_name:
        return f"{code.spelled} ({_number(code.best)})"
    return f"{code.spelled} ({_name(code.best)})"


def _name(reading: ExitReading) -> str:
    if reading.kind == "signal":
        return signal_name(reading.value)
    if reading.kind == "subcode":
        return f"subcode {reading.value} of 0xC0000409"
    status = nt_status(reading.value)
    return f"{status.value} {status.name}" if status.name else status.value


def _number(reading: ExitReading) -> str:
    if reading.kind == "signal":
        return f"{128 + reading.value} in a shell, {-reading.value} in Python"
    if reading.kind == "subcode":
        return _name(reading)
    status = nt_status(reading.value)
    return f"{status.value}, {status.signed}"


# ---------------------------------------------------------------- can they be one end?


def _is_death(reading: ExitReading) -> bool:
    """A signal or a status of Windows. A launcher ends with a plain exit code after its child's death too."""
    return reading.kind != "exit"


def _agree(one: Sequence[ExitReading], other: Sequence[ExitReading]) -> bool:
    return any(_same(first, second) for first in one for second in other)


def _same(one: ExitReading, other: ExitReading) -> bool:
    if one.kind == other.kind:
        return one.value == other.value
    kinds = {one.kind: one.value, other.kind: other.value}
    if "subcode" in kinds:
        return kinds.get("status") == _OVERRUN
    if "status" in kinds and "signal" in kinds:
        entry = statuses().get(kinds["status"])
        signal = signals().get(kinds["signal"])
        same = entry is not None and signal is not None and entry.unix == signal.name
        return same or (kinds["status"], kinds["signal"]) in _SHOWN_AS
    return False


def _reading(end: Exit) -> ExitReading | None:
    if end.ntstatus is not None:
        return ExitReading("status", int(end.ntstatus.value, 16), "")
    if end.kind == "signaled" and end.signal is not None:
        value = signal_number(end.signal)
        return ExitReading("signal", value, "") if value is not None else None
    if end.kind == "exited" and end.code is not None and -(1 << 31) <= end.code < 1 << 32:
        return of_number(end.code, str(end.code))[0]
    return None


def _is_sentence(end: Exit) -> bool:
    """A sentence; a bare number or name was given beside the texts, as what is known of the end."""
    return end.text is not None and number(end.text) is None and signal_number(end.text) is None


def _told(end: Exit, reading: ExitReading) -> str:
    text = (end.text or "").strip()
    name = _name(reading)
    if not text or text == name:
        return name
    return f"{text} ({name})" if len(text) <= 24 else f'{name} ("{text[:90]}{"..." if len(text) > 90 else ""}")'
