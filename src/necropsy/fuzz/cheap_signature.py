"""Tells one death of a worker from another, without a diagnosis: from the signal, the log, and where the code stood."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from necropsy.crashed import signal_name

_CHECK = re.compile(r"\bF(?:\d{4}|\s)[^\]\n]*?(?P<file>[\w+.-]+:\d+)\] *(?P<said>Check failed.*|.*)")
_EXCEPTION = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']+)'")
_ASSERTION = re.compile(r"(?P<file>[\w+.-]+:\d+): .*Assertion `(?P<said>.*)' failed")
_GLIBC = re.compile(
    r"^(?:\w+\(\): |corrupted |double free|malloc|free|munmap_chunk|realloc|\*\*\* )[^\n]*$", re.MULTILINE
)
_GUARD = re.compile(r"^necropsy guard: (?P<said>[^\n]*)$", re.MULTILINE)
_SANITIZER = re.compile(r"(?:Address|UndefinedBehavior|Thread)Sanitizer: (?P<said>[\w-]+)|runtime error: (?P<what>.+)")
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")
_MEMORY = ("std::bad_alloc", "std::bad_array_new_length")


@dataclass(frozen=True)
class Death:
    """How a worker died. ``signature`` is the same for deaths that are probably the same."""

    signature: str
    signal: str | None
    said: str | None = None
    place: str | None = None
    """``my_op.so+0x1a2b``: the code that ran."""

    @property
    def is_for_want_of_memory(self) -> bool:
        """There was no memory under the worker's limit, which need not be the op's fault."""
        return self.said in _MEMORY

    @property
    def of_the_stack(self) -> bool:
        """The stack was full."""
        return self.signature.endswith(" stack")

    @property
    def of_the_heap(self) -> bool:
        """The C library or the guard found damage that was done earlier."""
        return self.signature.startswith(("glibc ", "guard "))

    @property
    def is_reliable(self) -> bool:
        """It comes at a limit of the code or the stack, not where a wild address happens to be unmapped."""
        return self.of_the_stack or (self.signal not in {"SIGSEGV", "SIGBUS"} and not self.of_the_heap)


def death(answer: Mapping[str, Any], log: str) -> Death:
    """The death, from what the fork server saw and from the end of the log."""
    number, place = answer.get("signal"), answer.get("place")
    name = signal_name(number) if number else None
    if name is None:
        return Death(f"exit {answer.get('code')}", None, said=f"it ended with exit code {answer.get('code')}")
    if answer.get("stack"):
        # Where a recursion meets the end of the stack is a matter of chance.
        return Death(f"{name} stack", name, "the stack was full", place)
    if number == signal.SIGABRT:
        for pattern, kind in ((_CHECK, "check"), (_ASSERTION, "assertion")):
            if found := _last(pattern, log):
                return Death(f"{kind} {found['file']}", name, found["said"].strip()[:200], place)
        if found := _last(_EXCEPTION, log):
            return Death(f"exception {found['type']} {place}", name, found["type"], place)
        if found := _last(_GUARD, log):
            return Death(f"guard {_NUMBER.sub('N', found['said'])} {place}", name, found["said"][:200], place)
        if found := _last(_GLIBC, log):
            return Death(f"glibc {_NUMBER.sub('N', found[0])}", name, found[0][:200], place)
    if found := _last(_SANITIZER, log):
        return Death(f"sanitizer {found['said'] or 'undefined'} {place}", name, found[0][:200], place)
    return Death(f"{name} {place}", name, None, place)


def _last(pattern: re.Pattern[str], log: str) -> re.Match[str] | None:
    return next(iter(list(pattern.finditer(log))[-1:]), None)
