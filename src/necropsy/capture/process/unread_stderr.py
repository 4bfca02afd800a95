"""The last words of a process whose stderr was not read: what its code and its memory still have of them.

The string constants that a function loaded before it called ``abort`` show what was written. Where one of them is a
format, the formatted text mostly still exists where it was put together: in the abandoned part of the stack, or in a
buffer of stdio.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from necropsy.capture.process import memory_messages, rust_panic
from necropsy.capture.process.code_constants import Code
from necropsy.capture.process.memory import Memory
from necropsy.model import Frame, LastWords, Stack

_LEFT_STACK = 64 << 10
"""Bytes below the stack pointer in which finished calls have put their texts together."""
_LIVE_STACK = 32 << 10
_FRAMES = 16
_CALLERS = 3
"""So many functions hand a message on to each other before the last one gives up."""
_LONGEST, _LINES = 1500, 3
_SYSTEM = re.compile(r"(?:lib(?:c|stdc\+\+|gcc_s|pthread|c\+\+|c\+\+abi)|ld(?:-linux[\w-]*|-musl[\w-]*)?)[.\-]")
_CONVERSION = re.compile(
    r"%(?P<percent>%)|%[-+ #0']*(?:\*|\d+)?(?:\.(?:\*|\d+)?)?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcspmCS]"
    r"|\{[^{}\n\"']{0,20}\}"
)
"""Of printf, and of the libraries that format as Python does."""
_SIGNATURE = re.compile(r".*\[(?:with )?\w+ = .*\]|(?:[\w:<>*&~,]+ )+[*&]?[\w:~<>]+\(.*\)(?: const)?", re.DOTALL)
"""``__PRETTY_FUNCTION__`` of a message's author: where, not what."""
_TEXT = rb"[\x20-\x7e\x80-\xff]"
_REPORTED = (
    ("std::__glibcxx_assert_fail", rb"[\w./+-]+:\d+: %s{1,1200}: Assertion '%s{1,400}' failed\." % (_TEXT, _TEXT)),
    ("__kmp_fatal", rb"OMP: Error #\d+: %s{4,600}" % _TEXT),
    ("rust_panic", rb"thread '%s{1,80}'(?: \(\d+\))? panicked at %s{4,600}(?:\n%s{4,400})?" % (_TEXT, _TEXT, _TEXT)),
    ("_PyMem_Debug", rb"bad (?:ID|leading pad byte|trailing pad byte)%s{0,200}" % _TEXT),
)
"""A function that reports an error, and what the line looks like that it has put together."""
_WORDS = re.compile(r"[^\W\d_]{2,}[,:;.!]? +[^\W_]")


def last_words(
    code: Code,
    frames: Sequence[Frame],
    stack: Stack | None,
    buffers: Iterable[bytes] = (),
    spans: Iterable[tuple[int, int]] = (),
) -> LastWords | None:
    """What the thread with these frames (innermost first) wrote before it ended, or None.

    ``buffers``: content of the C library's streams, written or not. ``spans``: memory of the program's own. Raises
    ImportError without capstone.
    """
    buffers = tuple(buffers)
    reported = _reported(code.memory, frames, stack, buffers)
    if reported is not None:
        return reported
    panic = rust_panic.message(code.memory, code.places, frames, stack)
    if panic is not None:
        first = rust_panic.thrown(code.memory, code.places, spans, panic)
        panic = f"{first}; then: {panic}" if first is not None else panic
        return LastWords(text=f"panicked: {panic}"[:_LONGEST], where="found in memory, not read from stderr")
    searched = _Searched(code, stack, buffers)
    inner: Frame | None = None
    for frame, is_return in _gave_up(frames):
        # A message that is put together by << is finished by the destructor of what it was given to.
        own = inner is None or "::~" in (inner.function or "")
        inner = frame
        if frame.address is None:
            continue
        found = code.passed_before(frame.address, is_return=is_return, arguments=not own)
        passed = [text for text in found if _is_said(text)]
        if not passed:
            continue
        text, is_whole = _put_together(passed, searched)
        if text:
            by = f"`{frame.function}`" if frame.function else "the code"
            how = f"constants that {by} passed on before it ended" if not is_whole else "found in memory"
            return LastWords(text=text[:_LONGEST], where=f"{how}, not read from stderr")
    return None


@dataclass
class _Searched:
    """The memory in which formatted texts are looked for: the nearest first, what the stack points to last."""

    code: Code
    stack: Stack | None
    buffers: Sequence[bytes]
    _near: list[bytes] | None = None
    _far: list[bytes] | None = None

    def longest(self, pattern: re.Pattern[bytes], *, but: str) -> str | None:
        """The longest match of the first place that has one other than the format itself."""
        for block in self._blocks():
            texts = {_decoded(match[0]) for match in pattern.finditer(block)} - {but}
            if texts:
                return max(texts, key=len)
        return None

    def _blocks(self) -> Iterator[bytes]:
        if self._near is None:
            self._near = [*_of_stack(self.code.memory, self.stack), *self.buffers]
        yield from self._near
        if self._far is None:
            self._far = []
            if self.stack is not None and self._near:
                pointed = memory_messages.pointed_to(
                    self.code.memory, self.code.places, self._near[0][-_LIVE_STACK:], self.stack
                )
                live = memory_messages.pointed_to(self.code.memory, self.code.places, self._live(), self.stack)
                self._far = [*live, *pointed]
        yield from self._far

    def _live(self) -> bytes:
        stack = self.stack
        if stack is None or stack.pointer is None:
            return b""
        return self.code.memory.some(stack.pointer, min(_LIVE_STACK, max((stack.high or 0) - stack.pointer, 0)))


def _reported(
    memory: Memory, frames: Sequence[Frame], stack: Stack | None, buffers: Sequence[bytes]
) -> LastWords | None:
    """The line of a function above the end that is known to report errors in a form of its own."""
    for frame in frames[:_FRAMES]:
        for name, form in _REPORTED:
            if frame.function is None or not frame.function.removeprefix("__rustc::").startswith(name):
                continue
            for block in (*_of_stack(memory, stack), *buffers):
                found = _decoded(max(re.findall(form, block), key=len, default=b""))
                if found:
                    return LastWords(text=found[:_LONGEST], where="found in memory, not read from stderr")
    return None


def _decoded(text: bytes) -> str:
    """Up to the first byte that is not text: what is in a reused buffer has no NUL at its end."""
    return text.decode("utf-8", "replace").partition("\ufffd")[0]


def never_written(streams: Iterable[tuple[str, bytes]]) -> LastWords | None:
    """The last lines that a stream of the C library (its name, what it still holds) was given and never wrote."""
    for name, pending in streams:
        lines = [line.strip() for line in pending.decode("utf-8", "replace").splitlines() if line.strip()]
        text = "\n".join(lines[-_LINES:])
        if text and all(char.isprintable() or char in "\n\t" for char in text):
            return LastWords(text=text[-_LONGEST:], where=f"in the buffer of {name} when it died, never written")
    return None


def _gave_up(frames: Sequence[Frame]) -> list[tuple[Frame, bool]]:
    """The innermost functions outside the system's libraries, and whether each is behind a call."""
    chosen: list[tuple[Frame, bool]] = []
    seen: set[int] = set()
    for index, frame in enumerate(frames[:_FRAMES]):
        module = (frame.module or "").rsplit("/", 1)[-1]
        if frame.address is None or frame.address in seen or _SYSTEM.match(module):
            continue
        if frame.found_by == "scan" or len(chosen) >= _CALLERS:
            break
        seen.add(frame.address)
        chosen.append((frame, index > 0))
    return chosen


def _is_said(text: str) -> bool:
    """It is a sentence, or a format of one: not a name, a path or a function's signature."""
    plain = _CONVERSION.sub(" ", text).strip()
    letters = sum(char.isalpha() or char == " " for char in plain)
    if len(plain) < 6 or letters < 0.6 * len(plain) or _SIGNATURE.fullmatch(text.strip()):
        return False
    return _WORDS.search(plain) is not None or (plain != text.strip() and len(plain) >= 8 and " " in text.strip())


def _of_stack(memory: Memory, stack: Stack | None) -> list[bytes]:
    """What is above the stack pointer, and below it, where calls that are over have left it."""
    if stack is None or stack.pointer is None:
        return []
    live = memory.some(stack.pointer, min(_LIVE_STACK, max((stack.high or stack.pointer) - stack.pointer, 0)))
    size = _LEFT_STACK
    while size >= 4096:  # the main thread's mapping may not reach so far down yet
        left = memory.some(stack.pointer - size, size)
        if len(left) == size:
            return [left, live]
        size //= 2
    return [live]


def _put_together(passed: Sequence[str], searched: _Searched) -> tuple[str, bool]:
    """The message of which these constants are the pieces, and whether all of it, its values too, is known."""
    if len(passed) > 1 and all(_expression(piece) is not None for piece in passed):
        between = rb"%s{0,300}?" % _TEXT
        joined = re.compile(between.join(_expression(piece) or b"" for piece in passed))
        if found := searched.longest(joined, but=""):
            return found.strip(), True
    text, whole = "", True
    for piece in passed:
        said, is_formatted = _formatted(piece, searched)
        whole = whole and is_formatted
        text += said if text.endswith("\n") or not text else "\u2026" + said
    whole = whole and (len(passed) == 1 or all(piece.endswith("\n") for piece in passed[:-1]))
    # A blank at the end: a value was to follow.
    return text.strip() + (" \u2026" if text.endswith(" ") else ""), whole


def _formatted(piece: str, searched: _Searched) -> tuple[str, bool]:
    """The text that was made from a format; with ``…`` for its values where that is not found."""
    if _CONVERSION.search(piece) is None:
        return piece, False
    expression = _expression(piece)
    found = searched.longest(re.compile(expression), but=piece) if expression is not None else None
    if found is not None:
        return found, True
    return _CONVERSION.sub(lambda match: "%" if match["percent"] else "\u2026", piece), False


def _expression(piece: str) -> bytes | None:
    """What the formatted text looks like; None where the format has too few words of its own."""
    parts: list[bytes] = []
    literals: list[str] = []
    end = 0
    quote: Callable[[str], bytes] = lambda text: re.escape(text.encode())  # noqa: E731 - one word for what is done twice
    for match in _CONVERSION.finditer(piece):
        literal = piece[end : match.start()]
        literals.append(literal)
        parts += [quote(literal), b"%" if match["percent"] else rb"[\x20-\x7e\t\x80-\xff]{0,400}?"]
        end = match.end()
    last = piece[end:]
    literals.append(last)
    if max(len(one.strip()) for one in literals) < 5:
        return None
    if not last:
        parts[-1] = parts[-1].removesuffix(b"?")  # up to the first byte that is no text
    return b"".join(parts) + quote(last)
