"""The page of an exit code: what it is, what it was found to be, what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.formats import exit_status
from necropsy.formats.exit_status import ExitCode, ExitReading
from necropsy.formats.statuses import Entry, exit_codes, signals, statuses, subcodes
from necropsy.model import Possibility
from necropsy.reports import wording
from necropsy.reports.terminal import wrap

_FASTFAIL = 0xC0000409


def page(code: ExitCode, width: int) -> list[str]:
    """The lines of one code's page, its likeliest reading first."""
    lines = _reading(code, code.best, width)
    others = code.readings[1:]
    if others:
        lines += ["", "Other readings"]
        for how, readings in _grouped(others).items():
            names = "; ".join(filter(None, (_short(reading) for reading in readings[:4])))
            lines += wrap(f"{how}{': ' + names if names else ''}", width, first="  * ")
    return lines


def _grouped(readings: Sequence[ExitReading]) -> dict[str, list[ExitReading]]:
    groups: dict[str, list[ExitReading]] = {}
    for reading in readings:
        groups.setdefault(reading.how, []).append(reading)
    return groups


def _short(reading: ExitReading) -> str:
    if reading.kind == "signal":
        return exit_status.signal_name(reading.value)
    if reading.kind == "status":
        status = exit_status.nt_status(reading.value)
        return f"{status.value} {status.name or ''}".strip()
    return ""


def _reading(code: ExitCode, reading: ExitReading, width: int) -> list[str]:
    lines = wrap(_title(code, reading), width, rest="  ")
    lines += wrap(f"({reading.how})", width) if _says_more(code, reading) else []
    entry = _entry(reading)
    if entry is None:
        return [*lines, "", *_unknown(reading, width)]
    lines += ["", *_section("What it is", (entry.what,), width)]
    if entry.unix is not None:
        lines += wrap(f"Linux and macOS show the same as {entry.unix}.", width, first="  ")
    if reading.kind == "status" and reading.value == _FASTFAIL:
        lines += ["", *_section("The subcodes that matter", _deciding(), width, mark="* ")]
    if entry.causes:
        lines += ["", *_causes(entry.causes, width)]
    lines += ["", *_section("What it is often mistaken for", (entry.mistaken,), width)]
    return [*lines, "", *_section("What to do next", entry.next, width, numbered=len(entry.next) > 1)]


def _causes(causes: Sequence[Possibility], width: int) -> list[str]:
    """Commands stay on one line, so that they can be copied."""
    counted = any(one.share for one in causes)
    lines = ["Possible causes, most often first" if counted else "Possible causes"]
    for place, one in enumerate(causes, 1):
        first = f"  {place}. "
        lines += wrap(wording.possibility(one), width, first=first)
        lines += [f"{' ' * len(first)}$ {one.command}"] if one.command else []
    return lines


def _says_more(code: ExitCode, reading: ExitReading) -> bool:
    if code.is_name or reading.kind == "subcode" or reading.how == f"signal {reading.value}":
        return False
    return reading.how not in {"a 32-bit Windows status", f"exit code {code.spelled}"}


def _title(code: ExitCode, reading: ExitReading) -> str:
    if reading.kind == "signal":
        number, entry = reading.value, signals().get(reading.value)
        text = f" ({entry.texts[0]})" if entry and entry.texts else ""
        macos = f", {entry.macos} on macOS" if entry and entry.macos is not None else ""
        name = exit_status.signal_name(number)
        shown = "" if code.spelled == name else f"{code.spelled} is "
        return f"{shown}{name}{text}, signal {number}{macos}: {128 + number} in a shell, {-number} in Python"
    if reading.kind == "status":
        status = exit_status.nt_status(reading.value)
        name = f" {status.name}" if status.name else ""
        spellings = [status.value, str(status.signed), str(int(status.value, 16))]
        others = [one for one in dict.fromkeys(spellings[1:]) if one != code.spelled]
        shown = (
            "" if code.spelled.lower() in {status.value.lower(), (status.name or "").lower()} else f"{code.spelled} is "
        )
        return f"{shown}{status.value}{name}, also shown as {' or '.join(others)}"
    if reading.kind == "subcode":
        sub = subcodes()[reading.value]
        return f"{sub.name}, subcode {sub.code} of 0xC0000409"
    entry = exit_codes().get(reading.value)
    return f"exit code {reading.value}: {entry.name}" if entry else f"exit code {reading.value}"


def _entry(reading: ExitReading) -> Entry | None:
    if reading.kind == "signal":
        return signals().get(reading.value)
    if reading.kind == "status":
        return statuses().get(reading.value)
    return exit_codes().get(reading.value) if reading.kind == "exit" else None


def _unknown(reading: ExitReading, width: int) -> list[str]:
    """The form of a code that is in no table."""
    if reading.kind == "subcode":
        meaning = subcodes()[reading.value].meaning or "its meaning is not documented publicly"
        more = "`necropsy explain 0xC0000409` explains the status that it comes with."
        return [*_section("What it is", (f"{_sentence(meaning)}.", more), width)]
    if reading.kind == "status":
        severity = ("success", "information", "warning", "error")[reading.value >> 30]
        by = "an application's own" if reading.value & 0x20000000 else "Microsoft's"
        facility, low = reading.value >> 16 & 0xFFF, reading.value & 0xFFFF
        what = f"A Windows status of severity {severity}, {by}, facility 0x{facility:X}, number {low}."
        why = "Processes are not known to die with it: the program may have chosen this value."
        return _section("What it is", (what, why), width)
    if reading.kind == "signal":
        return _section("What it is", ("A signal without a fixed meaning: programs define their own.",), width)
    if not -128 <= reading.value <= 255:
        return _section("What it is", ("The program's own number: it ended by itself.",), width)
    return [
        *_section("What it is", ("The program ended by itself with this number, which has no agreed meaning.",), width),
        "",
        *_section("What to do next", ("Read what it printed; its documentation may list its codes.",), width),
    ]


def _deciding() -> tuple[str, ...]:
    rows = [subcodes()[code] for code in (7, 2, 0, 5, 10, 50)]
    return tuple(f"{row.code} {row.name}: {row.meaning or 'not documented publicly'}" for row in rows)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _section(title: str, paragraphs: Sequence[str], width: int, *, numbered: bool = False, mark: str = "") -> list[str]:
    lines = [title]
    for place, paragraph in enumerate(paragraphs, 1):
        lines += wrap(paragraph, width, first=f"  {place}. " if numbered else f"  {mark}")
    return lines
