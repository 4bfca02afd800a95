"""What is kept of one death: a row of the store, and the fingerprint by which it is compared with others."""

from __future__ import annotations

import msgspec

from necropsy.model import DeathSource


class FramePlace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One physical frame, and everything that it may be called in another build."""

    names: tuple[str, ...] = ()
    """Last components without template arguments, the innermost inlined function first, the physical one last."""
    qualified: tuple[str, ...] = ()
    """The same functions with their namespaces, where known."""
    module: str | None = None
    """File name, without its folder."""
    build_id: str | None = None
    offset: str | None = None
    """In the module, hex."""
    lines: tuple[str, ...] = ()
    """``file.cc:12`` for each name that debug information gave a line."""


class Fingerprint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All that grouping knows of a death. Deaths with equal ``key`` are one bug without further comparison."""

    key: str
    """A hash of everything below."""
    family: str
    """``memory``, ``stack``, ``abort``, ``arithmetic``, ``trap``, ``killed``, ``loading``, ``exception``, ``unknown``.
    Of a text that says "Segmentation fault" only: ``memory-or-stack``."""
    end: str
    """``SIGSEGV``, ``exited 1``, ``0xc0000409/7``."""
    text: str | None = None
    """What was said, without numbers, addresses and paths: the condition of a CHECK, an exception's type and words."""
    frames: tuple[FramePlace, ...] = ()
    """The program's own physical frames, innermost first, without the messengers (``abort``, ``check_failed``)."""
    period: tuple[FramePlace, ...] = ()
    """Of a recursion: the functions that repeat, in an order that does not depend on where it ended."""
    python: tuple[str, ...] = ()
    """``train.py:score``, innermost first, the user's own."""
    python_line: str | None = None
    """``train.py:7``, the innermost of them."""
    native: bool = False
    """A stack of native frames was seen."""
    verdict: str | None = None
    """Without frames of the program: the rule and the summary of the report, without what differs each time."""
    versions: tuple[str, ...] = ()
    """``tensorflow 2.20.0``: line numbers may join builds of equal versions only."""


class DeathRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One death, without contents of memory and with harmless variables only."""

    path: str
    number: int
    """Which of the file's deaths it is, from 0."""
    line: int | None = None
    """Of a log: at which it begins."""
    document: str | None = None
    pid: int | None = None
    died_at: str | None = None
    """ISO 8601 in UTC."""
    source: DeathSource
    host: str | None = None
    rule: str | None = None
    confidence: str | None = None
    end: str
    signature: str | None = None
    summary: str | None = None
    function: str | None = None
    module: str | None = None
    source_line: str | None = None
    """``dot.cc:12``"""
    python_file: str | None = None
    python_line: int | None = None
    python_function: str | None = None
    op: str | None = None
    versions: dict[str, str] = {}
    """Of libraries that tell something: tensorflow, numpy, the culprit's package."""
    key: str
    """Of its fingerprint."""


def storable(text: str) -> str:
    """The text with lone surrogates escaped: names of files may hold bytes that are not UTF-8, which SQLite refuses."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
