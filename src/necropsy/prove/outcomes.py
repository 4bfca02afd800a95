"""How a call of an op ended, read from the log of the process that made it."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import PurePath

from necropsy.formats import sanitizers
from necropsy.model import Frame

_HEAD = re.compile(r"==\d+==\s*(?:ERROR|WARNING): \w+Sanitizer: (?P<rest>.+)")
_RUNTIME = re.compile(r"^(?P<file>.+?):(?P<line>\d+):\d+: runtime error: (?P<what>.+)")
_CHECK = re.compile(r"\bF(?:\d{4}|\s)[^\]]*?(?P<file>[\w+.-]+:\d+)\]\s*(?P<what>.+)")
_LAST_WORDS = re.compile(r"terminate called|Assertion .* failed|\*\*\* .* \*\*\*|what\(\):")
_LONGEST = 160


@dataclass(frozen=True)
class CallDeath:
    """A process that ended: ``kind``: a signal, a sanitizer's word, or ``time`` or ``memory`` for a limit."""

    call: str
    kind: str
    said: str
    frames: tuple[Frame, ...] = ()

    def passes(self, path: str, first: int, last: int) -> bool:
        """Whether a frame of its stack is on these lines of a source."""
        name = PurePath(path).name
        return any(
            one.line is not None
            and one.source is not None
            and first <= one.line <= last
            and PurePath(one.source).name == name
            for one in self.frames
        )

    def is_in(self, function: str) -> bool:
        """Whether a frame of its stack is this function: ``FooOp::Compute`` or ``Helper``."""
        plain = function.rpartition("::")[2]
        for one in self.frames:
            name = re.split(r"[(<]", one.function or "", maxsplit=1)[0]
            if name.rpartition("::")[2] == plain:
                return True
        return False


@dataclass(frozen=True)
class Survived:
    """A call that came back: with a value, or with a proper error."""

    call: str
    is_value: bool
    said: str


def death(call: str, ended: str, code: int, log: str) -> CallDeath:
    """What the log and the exit status say of the end of the process that made ``call``."""
    if ended in {"time", "memory"}:
        words = {"time": "it did not come back within the time limit", "memory": "it took more memory than the limit"}
        return CallDeath(call, ended, words[ended])
    lines = log.splitlines()
    said = _said(lines)
    for at, line in enumerate(lines):
        if match := _HEAD.search(line):
            report = sanitizers.below(lines[at + 1 :])
            part = report.part("access") or report.part("other")
            kind = sanitizers.kind_of(match["rest"])
            frames = tuple(part.frames) if part is not None else ()
            return CallDeath(call, kind, said or f"AddressSanitizer: {_headline(kind, frames)}", frames)
        if match := _RUNTIME.match(line):
            frame = Frame(index=0, kind="native", source=match["file"], line=int(match["line"]))
            return CallDeath(call, "undefined", f"UndefinedBehaviorSanitizer: {match['what'][:_LONGEST]}", (frame,))
    return CallDeath(call, _named(code), said or f"it ended with {_named(code)}")


def _headline(kind: str, frames: tuple[Frame, ...]) -> str:
    own = sanitizers.own([one for one in frames if one.line is not None]) or sanitizers.own(frames)
    if own is None:
        return kind
    where = f" at {PurePath(own.source).name}:{own.line}" if own.source is not None else ""
    return f"{kind} in {own.function}{where}"[:_LONGEST]


def _said(lines: list[str]) -> str | None:
    """A failed CHECK or assertion, or an uncaught exception."""
    for line in lines:
        if match := _CHECK.search(line):
            return f"{match['what'].strip()} ({match['file']})"[:_LONGEST]
        if _LAST_WORDS.search(line):
            return line.strip()[:_LONGEST]
    return None


def _named(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"
