"""Reorders possible causes, given by frequency, by evidence of this crash; the facts are in ``data/likelier.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from necropsy.data import table
from necropsy.lazy_re import regex
from necropsy.model import Crash, Diagnosis, Evidence, Fix, Possibility
from necropsy.predicates import frames_of
from necropsy.rules.exit_causes import causes_of

_OPEN = frozenset({"exit-status-only", "uncaught-cpp-exception"})
_ACCESSES = frozenset({"invalid-read", "invalid-write"})
_IMPORT = regex(
    r"(?m)^(?:>>> |In \[\d+\]: |\$ |% |# )?[ \t]*(?:from [\w.]+ )?import [\w.]+.*$|python[\w.]{0,12} (?:-\w{1,20} ){0,4}-c ['\"]?(?:import|from) [\w.]+"
)
_LAST_LINES = 4
_LOADING = regex(
    r"(?m)^  File \"<frozen importlib\._bootstrap(?:_external)?>\", line \d+ in (?:create_module|_call_with_frames_removed)"
)
_LOADS = Possibility(
    cause="Native libraries that do not fit together: they were being loaded",
    rule="conflicting-libraries",
    decide="Does the import die alone, in a fresh environment with only what is needed?",
    command='python -X faulthandler -c "import PACKAGE"',
)


def with_likelier_causes(diagnosis: Diagnosis, crash: Crash) -> Diagnosis:
    """Order an open diagnosis's possible causes by this crash, and add the evidence; others stay unchanged."""
    if not _is_open(diagnosis, crash):
        return diagnosis
    listed = diagnosis.possible or (causes_of(crash) if diagnosis.rule in _ACCESSES else ())
    found = [*_of_module(crash), *_of_text(crash)]
    if not found:
        return diagnosis
    # A word of a deep recursion says nothing of an end that no recursion has: the list tells which causes this end can have.
    can_be = {one.rule for one in listed}
    kept = [row for row in found if row.fits is None or row.fits in can_be]
    if not kept:
        return diagnosis
    causes = _once(*(row.causes for row in kept), listed)
    return msgspec.structs.replace(
        diagnosis,
        possible=tuple(one for one in causes if one.rule != diagnosis.rule or diagnosis.rule not in _ACCESSES),
        evidence=(*diagnosis.evidence, *(row.seen for row in kept)),
        fixes=(*(row.fix for row in kept if row.fix is not None), *diagnosis.fixes),
    )


def _is_open(diagnosis: Diagnosis, crash: Crash) -> bool:
    if diagnosis.rule == "uncaught-cpp-exception":
        # Its kind and text say what it was; without them there is only the place.
        return crash.cpp_exception is None and bool(diagnosis.possible)
    return diagnosis.confidence == "possible" and diagnosis.rule in _OPEN | _ACCESSES


@dataclass(frozen=True)
class _Row:
    """Evidence for some causes. ``fits``: causes of which the list must have one; otherwise the row does not apply."""

    seen: Evidence
    causes: tuple[Possibility, ...]
    fits: str | None = None
    fix: Fix | None = None


_CONFLICT = "conflicting-libraries"


def _of_module(crash: Crash) -> Iterator[_Row]:
    """The library of the innermost frame, if nothing else is known of it."""
    frame = next(iter(frames_of(crash)), None)
    if frame is None or frame.module is None:
        return
    name = frame.module.replace("\\", "/").rsplit("/", 1)[-1]
    for row in table("likelier.toml")["module"]:
        if re.fullmatch(row["pattern"], name.lower()):
            seen = Evidence(claim=row["claim"], seen=name, where="frame 0")
            yield _Row(seen, _causes(row), fix=Fix(**row["fix"]) if "fix" in row else None)


def _of_text(crash: Crash) -> Iterator[_Row]:
    text = crash.log_tail
    if text is None:
        return
    status = crash.exit.ntstatus.value if crash.exit is not None and crash.exit.ntstatus is not None else None
    rows = table("likelier.toml")
    for row in rows["text"]:
        found = re.search(row["pattern"], text) if "status" not in row or status in row["status"] else None
        if found is not None:
            causes = _causes(row)
            yield _Row(
                Evidence(claim=row["claim"], seen=_line(text, found), where="text"),
                causes,
                row.get("fits", causes[0].rule),
            )
    for row in rows["together"]:
        used = _used(text, row["packages"]) if "where" not in row or re.search(row["where"], text) else []
        if len(used) > 1:
            yield _Row(Evidence(claim=row["claim"], seen=", ".join(used), where="text"), _causes(row), _CONFLICT)
    loading = _LOADING.search(text) or _last_import(text)
    if loading is not None:
        yield _Row(Evidence(claim="it was importing", seen=_line(text, loading), where="text"), (_LOADS,), _CONFLICT)


def _last_import(text: str) -> re.Match[str] | None:
    """An import on one of the last lines; its outcome is the end."""
    start = len(text)
    for _ in range(_LAST_LINES):
        start = text.rfind("\n", 0, max(start, 0))
    return next(iter(_IMPORT.finditer(text, max(start, 0))), None)


def _used(text: str, packages: Iterable[str]) -> list[str]:
    """Packages that the text shows as imported, installed with a version, or by one of their files."""
    found = []
    for name in packages:
        if name not in text:
            continue  # so it is in most texts, and costs nothing to see
        word = re.escape(name)
        shown = (
            rf"(?m)\b(?:import|from) {word}\b|^{word}==\d|[;,] ?import {word}\b|(?:site|dist)-packages[/\\]{word}[/\\.]"
        )
        if re.search(shown, text):
            found.append(name)
    return found


def _line(text: str, match: re.Match[str]) -> str:
    start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.start())
    return text[start : end if end >= 0 else None].strip()[:200]


def _causes(row: dict[str, Any]) -> tuple[Possibility, ...]:
    return tuple(Possibility(**cause) for cause in row["cause"])


def _once(*lists: Iterable[Possibility]) -> Iterator[Possibility]:
    """Each rule once, in order; causes without a rule are kept."""
    seen: set[str] = set()
    for one in chain.from_iterable(lists):
        if one.rule is None or one.rule not in seen:
            yield one
        if one.rule is not None:
            seen.add(one.rule)
