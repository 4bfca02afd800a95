"""``necropsy explain``: a code or a verdict's name to a page of text, or to a document."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence

from necropsy import __version__
from necropsy.capture.text import from_reading
from necropsy.diagnose import diagnose
from necropsy.document import new_id
from necropsy.errors import UnknownCodeError
from necropsy.formats import exit_status
from necropsy.formats.exit_status import Code, Reading
from necropsy.formats.statuses import Entry, exit_codes, signals, statuses, subcodes
from necropsy.model import Crash, Document, Subject, Tool
from necropsy.reports.layout import wrap
from necropsy.rule import Rule

_FASTFAIL = 0xC0000409


def of(words: Sequence[str], *, width: int = 80) -> str:
    """The text for codes and names of verdicts, in the order in which they were given.

    Raises:
        UnknownCodeError: a word is neither.

    """
    pages = [page for word in words if (page := page_of_rule(word)) is not None]
    rest = [word for word in words if page_of_rule(word) is None]
    lines: list[str] = []
    if rest:
        codes = exit_status.read(rest)
        for said in exit_status.contradictions(codes):
            lines += [*wrap(f"Note: {said}.", width, rest="  "), ""]
        for code in codes:
            lines += [*_code(code, width), ""]
    for page in pages:
        lines += [*reflow(page, width), ""]
    return "\n".join(lines[:-1]) + "\n"


def document(words: Sequence[str], rules: Sequence[Rule[Crash]]) -> Document:
    """The document of an explanation: one report for each code, made of its likeliest reading.

    Raises:
        UnknownCodeError: there is no code among the words.

    """
    codes = [word for word in words if page_of_rule(word) is None]
    if not codes:
        raise UnknownCodeError("a verdict's page has no JSON form; give an exit code")
    reports = tuple(diagnose(from_reading(code), rules) for code in exit_status.read(codes))
    return Document(
        kind="diagnosis",
        id=new_id(),
        tool=Tool(name="necropsy", version=__version__),
        complete=True,
        subject=Subject(kind="exit-status", text=" ".join(words)),
        reports=reports,
    )


def page_of_rule(word: str) -> str | None:
    """The page of the verdict of this name (``stack-smash``), or None where there is no such verdict."""
    name = word.strip().lower().replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*", name):
        return None
    module = f"necropsy.rules.crash.{name}"
    if importlib.util.find_spec(module) is None:
        return None
    rule = getattr(importlib.import_module(module), "RULE", None)
    if not isinstance(rule, Rule):
        return None
    return f"{rule.name}: {_uncapitalised(rule.page.strip())}"


def reflow(page: str, width: int) -> list[str]:
    """A page (reStructuredText of the simple kind) for ``width`` columns; titles and code keep their lines."""
    lines: list[str] = []
    for block in re.split(r"\n[ \t]*\n", page.strip("\n")):
        rows = block.splitlines()
        if len(rows) > 1 and re.fullmatch(r"[-=~^]{3,}", rows[1].strip()):
            lines += rows[:2]
            rows = rows[2:]
        if rows and rows[0].startswith((" ", "|", "+")):
            lines += rows
        else:
            for item in re.split(r"\n(?=[-*] |\d+\. )", "\n".join(rows)):
                mark = re.match(r"[-*] |\d+\. ", item)
                lines += wrap(item[mark.end() :] if mark else item, width, first=mark.group() if mark else "")
        lines.append("")
    return lines[:-1]


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


# ---------------------------------------------------------------- one code


def _code(code: Code, width: int) -> list[str]:
    lines = _reading(code, code.best, width)
    others = code.readings[1:]
    if others:
        lines += ["", "Other readings"]
        for how, readings in _grouped(others).items():
            names = "; ".join(filter(None, (_short(reading) for reading in readings[:4])))
            lines += wrap(f"{how}{': ' + names if names else ''}", width, first="  * ")
    return lines


def _grouped(readings: Sequence[Reading]) -> dict[str, list[Reading]]:
    groups: dict[str, list[Reading]] = {}
    for reading in readings:
        groups.setdefault(reading.how, []).append(reading)
    return groups


def _short(reading: Reading) -> str:
    if reading.kind == "signal":
        return exit_status.signal_name(reading.value)
    if reading.kind == "status":
        status = exit_status.nt_status(reading.value)
        return f"{status.value} {status.name or ''}".strip()
    return ""


def _reading(code: Code, reading: Reading, width: int) -> list[str]:
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
        lines += ["", *_section("What it was, most often first", entry.causes, width, numbered=True)]
    lines += ["", *_section("What it is often mistaken for", (entry.mistaken,), width)]
    return [*lines, "", *_section("What to do next", entry.next, width, numbered=len(entry.next) > 1)]


def _says_more(code: Code, reading: Reading) -> bool:
    if code.is_name or reading.kind == "subcode" or reading.how == f"signal {reading.value}":
        return False
    return reading.how not in {"a 32-bit status of Windows", f"exit code {code.spelled}"}


def _title(code: Code, reading: Reading) -> str:
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


def _entry(reading: Reading) -> Entry | None:
    if reading.kind == "signal":
        return signals().get(reading.value)
    if reading.kind == "status":
        return statuses().get(reading.value)
    return exit_codes().get(reading.value) if reading.kind == "exit" else None


def _unknown(reading: Reading, width: int) -> list[str]:
    """What can be said of a code that no table explains: its form, and nothing more."""
    if reading.kind == "subcode":
        meaning = subcodes()[reading.value].meaning or "its meaning is not documented publicly"
        more = "`necropsy explain 0xC0000409` tells about the status that it comes with."
        return [*_section("What it is", (f"{_sentence(meaning)}.", more), width)]
    if reading.kind == "status":
        severity = ("success", "information", "warning", "error")[reading.value >> 30]
        by = "an application's own" if reading.value & 0x20000000 else "Microsoft's"
        facility, low = reading.value >> 16 & 0xFFF, reading.value & 0xFFFF
        what = f"A status of Windows of severity {severity}, {by}, facility 0x{facility:X}, number {low}."
        why = "It is not one that processes are known to die with: it may be a value that the program chose."
        return _section("What it is", (what, why), width)
    if reading.kind == "signal":
        return _section("What it is", ("A signal with no fixed meaning: programs give it one.",), width)
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
