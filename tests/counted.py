"""What it costs to read a text, counted: the same on every machine, whatever else the machine does.

A second copy of the readers is loaded whose patterns count the steps of their search (``backtracking``) and whose
lines count what is looked at in them; Python's own lines are counted as they are run. Times are nowhere looked at.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import necropsy
from backtracking import Counting, Meter, TooMuchWork
from necropsy.formats.text_reports import TextReader
from reading import asked

SOURCE = str(Path(necropsy.__file__).parent)
DEPTH = 50_000
"""Calls inside each other: the search of one pattern calls itself for each part that it goes on with."""
METER = Meter()
_IS_OURS: dict[CodeType, bool] = {}


class Text(str):
    """A line's text: what is looked at in it is counted, in what is cut from it as well."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Text:
        part = str.__getitem__(self, key)
        METER.add(len(part))
        return Text(part)

    def __contains__(self, key: object) -> bool:
        at = str.find(self, str(key))
        METER.add(len(self) if at < 0 else at + 1)
        return at >= 0

    def __add__(self, other: str) -> Text:
        METER.add(len(self) + len(other))
        return Text(str.__add__(self, other))

    def find(self, key: str, *ends: Any) -> int:
        return self._looked_for(str.find(self, key, *ends), *ends)

    def rfind(self, key: str, *ends: Any) -> int:
        at = str.rfind(self, key, *ends)
        start, end, _ = slice(*ends, *(None,) * (2 - len(ends))).indices(len(self))
        METER.add(max(end - (start if at < 0 else at), 0))
        return at

    def index(self, key: str, *ends: Any) -> int:
        return self._looked_for(str.index(self, key, *ends), *ends)

    def _looked_for(self, at: int, *ends: Any) -> int:
        start, end, _ = slice(*ends, *(None,) * (2 - len(ends))).indices(len(self))
        METER.add(max((end if at < 0 else at) - start, 0))
        return at


def _whole(name: str) -> Callable[..., Any]:
    """A method of ``str`` that looks at all of it."""
    real = getattr(str, name)

    def method(self: Text, *given: Any, **named: Any) -> Any:
        METER.add(len(self))
        made = real(self, *given, **named)
        if isinstance(made, str):
            return Text(made)
        return type(made)(map(Text, made)) if isinstance(made, list | tuple) else made

    return method


for _name in (
    *("count", "split", "rsplit", "splitlines", "partition", "rpartition", "replace", "translate", "expandtabs"),
    *("strip", "lstrip", "rstrip", "lower", "upper", "casefold", "removeprefix", "removesuffix"),
):
    setattr(Text, _name, _whole(_name))


# ---------------------------------------------------------------- the second copy

_OFFERED = ("match", "fullmatch", "search", "finditer", "findall", "sub", "split")
_REAL = {name: getattr(re, name) for name in ("compile", *_OFFERED)}


@cache
def _pattern(spelled: Any, flags: int) -> Any:
    real = _REAL["compile"](spelled, flags)
    return Counting(real, METER) if isinstance(real.pattern, str) else real


def _ours() -> bool:
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith("necropsy")


def _compile(pattern: Any, flags: int = 0) -> Any:
    return _pattern(pattern, int(flags)) if _ours() else _REAL["compile"](pattern, flags)


def _function(name: str) -> Callable[..., Any]:
    def function(pattern: Any, *given: Any, **named: Any) -> Any:
        if not _ours():
            return _REAL[name](pattern, *given, **named)
        return getattr(_pattern(pattern, int(named.pop("flags", 0))), name)(*given, **named)

    return function


_COPY: dict[str, ModuleType] = {}


@contextmanager
def _copied() -> Iterator[None]:
    """Inside, ``necropsy`` is the copy, and what it compiles counts."""
    others = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "necropsy"}
    sys.modules.update(_COPY)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(DEPTH)
    re.compile = _compile
    for name in _OFFERED:
        setattr(re, name, _function(name))
    try:
        yield
    finally:
        for name, real in _REAL.items():
            setattr(re, name, real)
        sys.setrecursionlimit(limit)
        for name in list(sys.modules):
            if name.split(".")[0] == "necropsy":
                _COPY[name] = sys.modules.pop(name)
        sys.modules.update(others)


def _lines_of(text: str) -> list[Any]:
    line = importlib.import_module("necropsy.formats.lines").Line
    rows = enumerate(map(Text, text.split("\n")), 1)
    return [line(number, row, Text(str(row).lstrip()), {}) for number, row in rows]


@cache
def _copies() -> dict[str, list[TextReader]]:
    found: dict[str, list[TextReader]] = {}
    for reader in importlib.import_module("necropsy.formats.readers").readers():
        found.setdefault(reader.kind, []).append(reader)
    return found


# ---------------------------------------------------------------- counting


def counted(task: Callable[[], object], most: int = 0) -> int:
    """Steps of the task: lines of the package that were run, places that its patterns tried, characters looked at.

    ``most``: no more than so many are taken; then it ends with ``TooMuchWork``.
    """

    def each_line(_frame: FrameType, event: str, _value: object) -> Any:
        if event == "line":  # as METER.add(1), which would take longer than most lines
            METER.steps += 1
            if METER.most and METER.steps > METER.most:
                raise TooMuchWork
        return each_line

    def each_call(frame: FrameType, _event: str, _value: object) -> Any:
        code = frame.f_code
        if (is_ours := _IS_OURS.get(code)) is None:
            is_ours = _IS_OURS[code] = code.co_filename.startswith(SOURCE)
        return each_line if is_ours else None

    METER.steps, METER.most = 0, most
    tracer = sys.gettrace()
    sys.settrace(each_call)
    try:
        task()
    finally:
        sys.settrace(tracer)
        METER.most = 0
    return METER.steps


def work(text: str, reader: TextReader, most: int = 0) -> int:
    """Steps of reading a text as often as its triggers ask for it."""
    with _copied():
        (copy,) = (one for one in _copies()[reader.kind] if one.triggers == reader.triggers)
        lines = _lines_of(text)
        return counted(lambda: list(asked(copy, lines)), most)


def linear(made: Callable[[int], str], reader: TextReader, size: int, *, each: int) -> None:
    """Four times as much takes about four times the steps, not sixteen times, and at most ``each`` for a character."""
    small, large = made(size), made(4 * size)
    before = work(small, reader, each * len(small))
    behind = work(large, reader, each * len(large))
    assert behind <= 6 * before + 20_000, (reader.kind, before, behind)
