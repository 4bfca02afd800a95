"""A runtime's message before it ended the process by an exit code, found in the memory in which it was formatted.

Each form is the whole of a message with its values, which a library's constant lacks. Only writable memory that comes
from no file is searched. Go keeps the words of a panic as a value, which its ``g`` leads to (``runtime/runtime2.go``;
Go 1.18 to 1.24 on x86-64).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from necropsy.capture.process.memory import Memory

MOST_BYTES = 64 << 20
_PIECE = 4 << 20
_OVERLAP = 4096
_TEXT = rb"[\x20-\x7e\t\xc2-\xf4\x80-\xbf]"
_LONGEST = 1000


@dataclass(frozen=True)
class Form:
    """A message. ``anchor`` is a constant part of it, which is searched first; ``codes``: what it ends with, or any."""

    anchor: bytes
    words: re.Pattern[bytes]
    codes: frozenset[int] = frozenset()


def _form(anchor: bytes, words: bytes, *codes: int) -> Form:
    return Form(anchor, re.compile(words.replace(b"<text>", _TEXT)), frozenset(codes))


FORMS = (
    _form(b" panicked at ", rb"thread '[^'\0]{1,80}'(?: \(\d+\))? panicked at <text>{4,400}(?:\n<text>{1,400})?", 101),
    _form(b"()` on a", rb"(?:called `)?(?:Result|Option)::\w+\(\)` on an? `\w+` value(?:: <text>{1,400})?", 101),
    _form(
        b"MPI_ABORT was ", rb"MPI_ABORT was invoked on rank \d+ in communicator <text>{1,200}\n\s*with errorcode -?\d+"
    ),
    _form(b"*** MPI_ERR_", rb"\*\*\* MPI_ERR_\w+: <text>{3,200}"),
    _form(b"Abort(", rb"Abort\(\d+\) on node \d+ \(rank \d+ in comm \d+\): <text>{3,400}"),
    _form(b"fatal error: ", rb"fatal error: <text>{4,200}(?=\n)", 2),
    _form(b"java.lang.OutOfMemoryError", rb"Terminating due to java\.lang\.OutOfMemoryError: <text>{3,200}", 3),
    _form(
        b'Exception in thread "', rb'Exception in thread "[^"\0]{1,80}" [\w.$]+(?:Error|Exception)\b<text>{0,300}', 1
    ),
    _form(b"Unhandled exception. ", rb"Unhandled exception\. [\w.]+(?:: <text>{1,300})?(?=\n)", 134, 150),
    _form(b"Reached heap limit", rb"FATAL ERROR: (?:\w[\w ]{0,80} )?Reached heap limit <text>{3,200}"),
    _form(b"memory allocation of ", rb"memory allocation of \d+ bytes failed"),
    _form(b"Execution halted", rb"Error(?: in <text>{1,200} : ?\n?| ?: ?)<text>{2,300}\s+Execution halted", 1),
)
FORMS_OF_THREADS = (
    *FORMS,
    # faulthandler.dump_traceback_later(exit=True) keeps the line ready; its own thread writes it and ends the process.
    _form(b"Timeout (", rb"Timeout \(\d+:\d\d:\d\d(?:\.\d{6})?\)!(?=\n\0)", 1),
)
"""Where another thread than the first one ended the process."""
_CONVERSION = re.compile(r"%[-+ #0]*\d*(?:l|ll|z)?[diuxXsp]")


def words(
    memory: Memory,
    spans: Iterable[tuple[int, int]],
    code: int | None,
    has_time: Callable[[], bool] = lambda: True,
    known: Iterable[Form] = FORMS,
) -> str | None:
    """The longest message of a known form in these addresses, or None; ``code``: the exit code, None for abort()."""
    forms = [form for form in known if not form.codes or code is None or code in form.codes]
    best = ""
    for piece in _pieces(memory, spans, has_time):
        for form in forms:
            for text in _found(form, piece):
                if len(text) > len(best):
                    best = text
    return best[:_LONGEST] or None


def _found(form: Form, piece: bytes) -> Iterator[str]:
    at = piece.find(form.anchor)
    while at >= 0:
        begin = max(at - 300, 0)
        for match in form.words.finditer(piece, begin, at + 2000):
            if match.start() <= at < match.end():
                text = match[0].decode("utf-8", "replace").partition("\ufffd")[0].strip()
                if not _CONVERSION.search(text):
                    yield text
        at = piece.find(form.anchor, at + len(form.anchor))


def _pieces(memory: Memory, spans: Iterable[tuple[int, int]], has_time: Callable[[], bool]) -> Iterator[bytes]:
    left = MOST_BYTES
    for low, high in spans:
        for at in range(low, high, _PIECE):
            if left <= 0 or not has_time():
                return
            size = min(high - at, _PIECE + _OVERLAP, left)
            yield memory.some(at, size)
            left -= size


# ---------------------------------------------------------------- Go

_G_PANIC, _G_M = 32, 48
_M_WITHIN = 1024
_MOST_THREADS = 16
_KIND, _STRING = 23, 24


def go_panic(memory: Memory, thread_pointer: int) -> str | None:
    """``panic: `` with the words of a Go program's panic, or None; ``thread_pointer``: of any of its threads."""
    g = memory.u64(thread_pointer - 8) if thread_pointer else None
    m = memory.u64(g + _G_M) if g else None
    if not m or not _is_m(memory, m):
        return None
    waiting, seen = [m], {m}
    while waiting and len(seen) <= _MOST_THREADS:
        m = waiting.pop()
        data = memory.some(m, _M_WITHIN)
        for one in dict.fromkeys(value for (value,) in struct.iter_unpack("<Q", data[: len(data) & ~7])):
            if one < 4096 or one % 8 or one in seen:
                continue
            if memory.u64(one + _G_M) == m:
                panic = memory.u64(one + _G_PANIC)
                value = memory.exactly(panic, 32) if panic else None
                text = _go_string(memory, *struct.unpack_from("<QQ", value, 8)) if value is not None else None
                if text:
                    return f"panic: {text}"
            elif _is_m(memory, one):
                seen.add(one)
                waiting.append(one)
    return None


def _is_m(memory: Memory, address: int) -> bool:
    """It begins with the ``g`` on whose stack the scheduler runs, which leads back to it."""
    first = memory.u64(address)
    return bool(first) and first is not None and memory.u64(first + _G_M) == address


def _go_string(memory: Memory, kind: int, data: int) -> str | None:
    """The value of an interface that holds a string."""
    head = memory.exactly(kind, 24) if kind else None
    if head is None or head[_KIND] & 31 != _STRING:
        return None
    value = memory.exactly(data, 16)
    if value is None:
        return None
    at, size = struct.unpack("<QQ", value)
    text = memory.exactly(at, min(size, _LONGEST)) if 0 < size < 1 << 20 else None
    return text.decode("utf-8", "replace") if text else None
