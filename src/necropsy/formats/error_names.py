"""Meaning of an error's name or number: ``CUDNN_STATUS_NOT_INITIALIZED``, ``CUDA error 700``, ``WinError 126``.

Bare decimal numbers are exit codes (``formats.exit_status``). The names are in the tables of ``necropsy.data``, which
``scripts/rebuild_tables.py`` makes from primary sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from necropsy.data import table
from necropsy.formats.statuses import signals, statuses, subcodes

_TABLES = (
    "nvidia.json",
    "exceptions.json",
    "win32.json",
    "si_codes.json",
    "abort_messages.json",
    "sanitizers.json",
    "cpu_features.json",
)
RUNTIME, RUNTIME_OLD, DRIVER = "CUDA runtime error", "CUDA runtime error up to CUDA 10.0", "CUDA driver error"
WIN32, HRESULT, EXCEPTION, STATUS = "Win32 error", "HRESULT", "exception", "Windows status"
_FAST_FAIL = "subcode of __fastfail"
_BY_SIGNAL = re.compile(r"any|SIG[A-Z]+")
LONGEST = 400
"""Characters of a question that are looked at; no name is longer."""


@dataclass(frozen=True, kw_only=True)
class ErrorName:
    """One error by its name. ``kind`` is its family (``cuDNN 9 status``), ``code`` its number where it has one.

    ``text``: what programs print; ``rule``: the verdict that it mostly belongs to; ``also``: other names and numbers.
    """

    kind: str
    name: str
    code: int | None
    meaning: str
    source: str
    rule: str | None = None
    text: str | None = None
    also: tuple[str, ...] = ()


# ---------------------------------------------------------------- the tables


def _rows() -> Iterator[ErrorName]:
    for file in _TABLES:
        for kind, group in table(file)["groups"].items():
            for name, row in group["codes"].items():
                yield _named(kind, name, row, group["source"])


def _named(kind: str, name: str, row: Mapping[str, Any], source: str) -> ErrorName:
    level = f" It belongs to {row['level']}." if "level" in row else ""
    return ErrorName(
        kind=f"si_code of {kind}" if _BY_SIGNAL.fullmatch(kind) else kind,
        name=name,
        code=row.get("value"),
        meaning=row.get("meaning", "") + level,
        source=row.get("source", source),
        rule=row.get("rule"),
        text=row.get("text"),
    )


@lru_cache(maxsize=1)
def all_names() -> tuple[ErrorName, ...]:
    """Every row of the tables with a meaning: its own, that of the same error of CUDA, or what its name says."""
    rows = list(_rows())
    runtime = {row.name: row for row in rows if row.kind == RUNTIME}
    by_code = {row.code: row for row in runtime.values()}
    found = []
    for row in rows:
        same = by_code.get(row.code) if row.kind == DRIVER else runtime.get(row.name)
        if same is not None and same is not row:
            row = replace(  # noqa: PLW2901 - the same row, completed
                row, meaning=row.meaning or same.meaning, rule=row.rule or same.rule, text=row.text or same.text
            )
        found.append(row if row.meaning else replace(row, meaning=(row.text and _sentence(row.text)) or _spelled(row)))
    return tuple(found)


def _spelled(row: ErrorName) -> str:
    """The words of a name: ``ERROR_BAD_NETPATH`` is *Bad netpath*, as its name says."""
    words = re.sub(r"^(?:ERROR|STATUS|CU[A-Z]+(?:_STATUS)?|NVML(?:_ERROR)?|[A-Z]+_E)_", "", row.name)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", words).replace("_", " ").lower()
    return f"{_sentence(words)}, as its name says."


def _sentence(text: str) -> str:
    # `abort()` and `std::terminate` keep their letters.
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


@lru_cache(maxsize=1)
def _by_name() -> dict[str, list[ErrorName]]:
    found: dict[str, list[ErrorName]] = {}
    for row in all_names():
        for key in {_key(row.name), _key(row.text)} if row.text else {_key(row.name)}:
            found.setdefault(key, []).append(row)
    return found


@lru_cache(maxsize=1)
def _by_code() -> dict[tuple[str, int], ErrorName]:
    found: dict[tuple[str, int], ErrorName] = {}
    for row in all_names():
        if row.code is not None:
            found.setdefault((row.kind, row.code), row)
    return found


def _key(text: str) -> str:
    text = text.strip().removeprefix("*** ").removesuffix(": terminated").removesuffix(" ***")
    return re.sub(r"[\s.!]+$", "", text.strip("'\"`[]()").lower())


# ---------------------------------------------------------------- the question

_FLAGS = re.IGNORECASE
_NUMBER = r"(?:code|number|status|no\.?)?[\s:=#(]*(?P<code>-?0x[0-9a-f]{1,8}|-?\d{1,10})\b\)?"
_HEX_ONLY = r"(?:code)?[\s:=(]*(?P<code>0x[0-9a-f]{8})\b\)?"


def _spelling(whose: str, *kinds: str, number: str = _NUMBER) -> tuple[re.Pattern[str], tuple[str, ...]]:
    return re.compile(rf"(?:{whose})\s*{number}", _FLAGS), kinds


# The word *error* is asked for: `CUDA 12` and `cuDNN 8` are versions.
_SPELLINGS = (
    _spelling(r"cuda runtime error\s*\(", RUNTIME_OLD, RUNTIME),
    _spelling(r"(?:cuda|cudart|cuda[ _]?runtime)[ _]?(?:error|failure|err)", RUNTIME, DRIVER),
    _spelling(r"cuda_error|curesult", DRIVER),
    _spelling(r"cudnn(?:_|[ _]?)(?:status|error)(?:_t)?", "cuDNN 9 status", "cuDNN 8 status"),
    _spelling(r"cublas[ _]?(?:status|error)(?:_t)?", "cuBLAS status"),
    _spelling(r"cufft[ _]?(?:result|error)", "cuFFT result"),
    _spelling(r"curand[ _]?(?:status|error)", "cuRAND status"),
    _spelling(r"cusolver[ _]?(?:status|error)", "cuSOLVER status"),
    _spelling(r"cusparse[ _]?(?:status|error)", "cuSPARSE status"),
    _spelling(r"nccl[ _]?(?:result|error)(?:_t)?", "NCCL result"),
    _spelling(r"nvml[ _]?(?:return|error)", "NVML return"),
    _spelling(r"win(?:32)?[ _]?error|getlasterror(?:\(\))?", WIN32),
    _spelling(r"fast[ _]?fail|sub[ -]?code", _FAST_FAIL),
    _spelling(r"hresult", HRESULT, number=_HEX_ONLY),
    _spelling(r"ntstatus|status|exception", STATUS, number=_HEX_ONLY),
)
_SI_CODE = re.compile(r"(?P<signal>SIG[A-Z]+)[\s,;:(]*(?:si_)?code\s*[:=]?\s*(?P<code>-?\d+)\)?", _FLAGS)
_HEX = re.compile(r"0x[0-9a-f]{8}", _FLAGS)


def meaning_of(name_or_code: str) -> ErrorName | None:
    """An error by name, number with its family's word, or text; None if unknown, or a bare number, whose is unclear."""
    question = name_or_code.strip()[:LONGEST]
    if not question:
        return None
    return _of_name(question) or _of_spelling(question) or _of_hex(question) or _of_template(question)


def _of_name(question: str) -> ErrorName | None:
    key = _key(question)
    for spelled in (key, key.replace("-", "_"), key.replace("-", "").replace(" ", "")):
        if found := _by_name().get(spelled):
            return _together(found)
    return _of_status_name(question) or _of_signal_name(question)


def _together(found: list[ErrorName]) -> ErrorName:
    """One answer for a name in several tables: the newest first, its other numbers beside it."""
    best = next((row for row in found if row.kind == "cuDNN 9 status"), found[0])
    best = next((row for row in found if best.kind == RUNTIME_OLD and row.kind == RUNTIME), best)
    others = (row for row in found if row is not best)
    also = [f"{row.name} ({row.kind} {row.code})" if row.code is not None else row.kind for row in others]
    if best.kind in {RUNTIME, DRIVER}:
        other = _by_code().get((DRIVER if best.kind == RUNTIME else RUNTIME, best.code or 0))
        also += [f"{other.name} ({other.kind} {other.code})"] if other is not None else []
    return replace(best, also=tuple(dict.fromkeys(also)))


def _of_spelling(question: str) -> ErrorName | None:
    if match := _SI_CODE.fullmatch(question.strip("[](). ")):
        code = int(match["code"])
        own, any_ = (f"si_code of {match['signal'].upper()}", code), ("si_code of any", code)
        return _by_code().get(own) or _by_code().get(any_)
    for pattern, kinds in _SPELLINGS:
        match = pattern.fullmatch(question.strip("[]. "))
        if match is None:
            continue
        code = int(match["code"], 16 if "x" in match["code"].lower() else 10)
        if kinds == (_FAST_FAIL,):
            return _of_subcode(code)
        if kinds in {(HRESULT,), (STATUS,)}:
            return _of_value(code & 0xFFFFFFFF)
        found = [row for kind in kinds if (row := _by_code().get((kind, code))) is not None]
        return _together(found[:1]) if found else None
    return None


def _of_hex(question: str) -> ErrorName | None:
    match = _HEX.fullmatch(question.strip("[]. "))
    return _of_value(int(match[0], 16)) if match else None


def _of_template(question: str) -> ErrorName | None:
    """A text with values in it, as printed: *Fatal glibc error: malloc assertion failure in sysmalloc: ...*."""
    return next((row for pattern, row in _templates() if pattern.fullmatch(question)), None)


@lru_cache(maxsize=1)
def _templates() -> tuple[tuple[re.Pattern[str], ErrorName], ...]:
    rows = [row for row in all_names() if "%" in row.name and re.search(r"%\w?[sdux]", row.name)]
    return tuple((_template(row.name), row) for row in rows)


def _template(name: str) -> re.Pattern[str]:
    # What represents a value has no word of the text in it: each is matched once, so that the whole is linear.
    parts = re.split(r"(?:%z?[sdux])+", name)
    return re.compile(r"[^\n]{0,200}?".join(re.escape(part) for part in parts), _FLAGS)


# ---------------------------------------------------------------- what other tables hold


def _of_value(value: int) -> ErrorName | None:
    """A 32-bit code of Windows: an exception, a status, an HRESULT, or an HRESULT that wraps another."""
    for kind in (EXCEPTION, HRESULT):
        if row := _by_code().get((kind, value)):
            return row
    if value >> 16 == 0x8007 and (row := _by_code().get((WIN32, value & 0xFFFF))):
        return replace(row, kind=HRESULT, code=value, also=(f"{row.kind} {row.code}",))
    if row := _status(value):
        return row
    if value >> 28 == 0xD and (row := _status(value & ~0x10000000)):
        return replace(row, kind=HRESULT, code=value, also=(f"{row.kind} 0x{row.code or 0:08X}",))
    return None


def _status(value: int) -> ErrorName | None:
    if entry := statuses().get(value):
        rule = next((cause.rule for cause in entry.causes if cause.rule), None)
        return ErrorName(kind=STATUS, name=entry.name, code=value, meaning=entry.what, source=entry.source, rule=rule)
    data = table("ntstatus.json")
    key = f"0x{value:08X}"
    names = data["names"].get(key)
    if names is None:
        return None
    name = names if isinstance(names, str) else names[0]
    row = ErrorName(kind=STATUS, name=name, code=value, meaning=data["meanings"].get(key, ""), source=data["_source"])
    return row if row.meaning else replace(row, meaning=_spelled(row))


@lru_cache(maxsize=1)
def _status_values() -> dict[str, int]:
    rows: dict[str, str | list[str]] = table("ntstatus.json")["names"]
    return {
        name: int(code, 16) for code, names in rows.items() for name in ([names] if isinstance(names, str) else names)
    }


def _of_status_name(question: str) -> ErrorName | None:
    name = question.strip("[]. ").upper()
    value = _status_values().get(name)
    if value is None and name.startswith("EXCEPTION_"):
        value = _status_values().get("STATUS_" + name.removeprefix("EXCEPTION_"))
    if value is not None:
        return replace(named, name=name) if (named := _status(value)) else None
    return next((_of_subcode(code) for code, row in subcodes().items() if row.name == name), None)


_OF_SUBCODE = {0: "stack-smash", 2: "stack-smash", 7: "abort", 35: "heap-corruption", 50: "heap-corruption"}


def _of_subcode(code: int) -> ErrorName | None:
    row = subcodes().get(code)
    if row is None:
        return None
    meaning = f"{_sentence(row.meaning)}." if row.meaning else "Its meaning is not documented publicly."
    source = table("fast_fail.json")["_source"]
    rule = _OF_SUBCODE.get(code, "fast-fail")
    return ErrorName(kind=_FAST_FAIL, name=row.name, code=code, meaning=meaning, source=source, rule=rule)


def _of_signal_name(question: str) -> ErrorName | None:
    name = question.strip("[]. ").upper()
    for number, entry in signals().items():
        if name == entry.name:
            rule = next((cause.rule for cause in entry.causes if cause.rule), None)
            return ErrorName(kind="signal", name=name, code=number, meaning=entry.what, source=entry.source, rule=rule)
    return None
