"""The last words that a process left in its memory: the text of a failed CHECK."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Protocol

from necropsy.capture.process.memory import Memory
from necropsy.formats.log import split_check
from necropsy.model import Stack

_STACK_SEARCHED = 64 << 10
_PAGES_SEARCHED = 4096
_PAGE = 4096
_LONGEST_PREFIX = 300
_SHORTEST_DETAIL = 3
"""Characters of a message behind the compared values that may be somebody's words."""
_LONGEST_LINE = 2100
_AFTER_POINTER = 32 << 10
"""absl keeps the finished line behind a buffer of 15,000 bytes in the object that the stack points to."""
_CHECK = re.compile(
    rb"(?:[FE]?\d{4} [\d:.]{8,} +\d+ [\w./+-]+:\d+\] |[\d-]{10} [\d:.]{8,}: F [\w./+-]+:\d+\] )?"
    rb"(?:Check failed: |Non-OK-status: )[\x20-\x7e\t\xc2-\xf4\x80-\xbf]{1,2000}"
)
_REPORTER = re.compile(r"LogMessage|CheckFail|CheckOp|DieBecause|FatalError|SendToLog|Fail\(")


class MemoryPiece(Protocol):
    """Memory that is one: where it ends, and whether it may be written."""

    @property
    def high(self) -> int:
        """Its end."""

    @property
    def writable(self) -> bool:
        """It may be written."""


class MemoryPieces(Protocol):
    """The mappings of a process, or what stands for them."""

    def at(self, address: int) -> MemoryPiece | None:
        """What lies at ``address``; None for nothing."""


def reports_a_check(functions: Iterable[str | None]) -> bool:
    """Whether the innermost functions are those of a library that reports a failed CHECK."""
    return any(function is not None and _REPORTER.search(function) for function in functions)


def check_text(memory: Memory, maps: MemoryPieces, stack: Stack) -> str | None:
    """The line of a failed CHECK in writable memory on a thread's stack, or to which that points; else None."""
    if stack.pointer is None or stack.high is None:
        return None
    top = memory.some(stack.pointer, min(_STACK_SEARCHED, max(stack.high - stack.pointer, 0)))
    best = _best(_checks(top))
    for block in pointed_to(memory, maps, top, stack):
        best = _best((best or b"", *_checks(block)))
    return None if best is None else _without_remains(best.decode("utf-8", "replace").partition("\ufffd")[0].strip())


def _without_remains(line: str) -> str:
    """Without what lay in the buffer before: where no NUL ends the line, a character or two of that stand behind it."""
    _, _, detail = split_check(line)
    return line.removesuffix(detail).rstrip() if detail is not None and len(detail) < _SHORTEST_DETAIL else line


def _checks(block: bytes) -> Iterator[bytes]:
    """Every line of a CHECK in it; megabytes are searched for two words, and the expression sees only what is near."""
    for words in (b"Check failed: ", b"Non-OK-status: "):
        at = block.find(words)
        while at >= 0:
            start = max(at - _LONGEST_PREFIX, 0)
            near = _CHECK.finditer(block[start : at + _LONGEST_LINE])
            yield from (match[0] for match in near if match.start() <= at - start < match.end())
            at = block.find(words, at + len(words))


def _best(found: Iterable[bytes]) -> bytes | None:
    """The longest: the others are pieces of it, or the expression before its operands were added."""
    return max(found, key=len, default=None) or None


def pointed_to(memory: Memory, maps: MemoryPieces, top: bytes, stack: Stack) -> Iterator[bytes]:
    """The memory behind the pointers that lie on the stack: whole pages, neighbours in one piece, a bounded number."""
    pages: dict[int, None] = {}
    for (value,) in struct.iter_unpack("<Q", top[: len(top) & ~7]):
        if len(pages) >= _PAGES_SEARCHED:
            break
        one = maps.at(value) if 0x1000 <= value < 1 << 47 else None
        if one is None or not one.writable or (stack.low or 0) <= value < (stack.high or 0):
            continue
        first, last = value // _PAGE, min(value + _AFTER_POINTER, one.high) // _PAGE
        pages.update(dict.fromkeys(range(first, last)))
    run: list[int] = []
    for page in sorted(pages):
        if run and page != run[-1] + 1:
            yield memory.some(run[0] * _PAGE, len(run) * _PAGE)
            run = []
        run.append(page)
    if run:
        yield memory.some(run[0] * _PAGE, len(run) * _PAGE)
