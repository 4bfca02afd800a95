"""Tells one death of a worker from another, without a diagnosis: from the signal, the log, and where the code stood."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from necropsy.crashed import signal_name
from necropsy.formats.statuses import name_of_status
from necropsy.formats.windows_exits import FAST_FAIL, HEAP_CORRUPTION, STACK_OVERFLOW, fault_of, is_status

_CHECK = re.compile(r"\bF(?:\d{4}|\s)[^\]\n]*?(?P<file>[\w+.-]+:\d+)\] *(?P<said>Check failed.*|.*)")
_EXCEPTION = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']+)'")
_ASSERTION = re.compile(r"(?P<file>[\w+.-]+:\d+): .*Assertion `(?P<said>.*)' failed")
_GLIBC = re.compile(
    r"^(?:\w+\(\): |corrupted |double free|malloc|free|munmap_chunk|realloc|\*\*\* )[^\n]*$", re.MULTILINE
)
_GUARD = re.compile(r"^necropsy guard: (?P<said>[^\n]*)$", re.MULTILINE)
_SANITIZER = re.compile(
    # Clang's UBSan ends with a summary that says less than its report.
    r"(?:Address|UndefinedBehavior|Thread)Sanitizer: (?P<said>(?!undefined-behavior\b)[\w-]+)"
    r"|runtime error: (?P<what>.+)"
)
_CAUGHT = re.compile(r"^exception: [^\n]*\n\Z", re.MULTILINE)
"""The last line of a worker that ends because of what ctypes has caught (``target/caught_crashes.py``)."""
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")
_ABORTED = 3
"""What Windows' abort() ends with where error reporting is off."""
NO_MEMORY = ("std::bad_alloc", "std::bad_array_new_length")
"""C++'s exceptions of an allocation that failed."""
_MEMORY = (
    *NO_MEMORY,
    *(f"AddressSanitizer: {kind}" for kind in ("allocation-size-too-big", "calloc-overflow", "out-of-memory")),
)


@dataclass(frozen=True)
class Death:
    """How a worker died. ``signature`` is the same for deaths that are probably the same."""

    signature: str
    signal: str | None
    said: str | None = None
    place: str | None = None
    """``my_op.so+0x1a2b``: the code that ran."""
    caught: int | None = None
    """The Windows status of a crash that ctypes turned into an ``OSError``."""

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
        return self.signature.startswith(("glibc ", "guard ", "heap "))

    @property
    def is_reliable(self) -> bool:
        """It comes at a limit of the code or the stack, not where a wild address happens to be unmapped."""
        return self.of_the_stack or (self.signal not in {"SIGSEGV", "SIGBUS"} and not self.of_the_heap)


SLOW = Death("slow", None)
"""A call that did not end in its time (``fuzz --slow``)."""


def death(answer: Mapping[str, Any], log: str) -> Death:
    """The death, from what the fork server saw and from the end of the log."""
    number, place, status = answer.get("signal"), answer.get("place"), answer.get("status")
    if status is not None:
        return _of_status(status, place, log)
    name = signal_name(number) if number else None
    if name is None:
        return Death(f"exit {answer.get('code')}", None, said=f"it ended with exit code {answer.get('code')}")
    if answer.get("stack"):
        # Where a recursion meets the end of the stack is a matter of chance.
        return Death(f"{name} stack", name, "the stack was full", place)
    if number == signal.SIGABRT:
        if told := _of_abort(name, place, log):
            return told
        if found := _last(_GUARD, log):
            return Death(f"guard {_NUMBER.sub('N', found['said'])} {place}", name, found["said"][:200], place)
        if found := _last(_GLIBC, log):
            return Death(f"glibc {_NUMBER.sub('N', found[0])}", name, found[0][:200], place)
    if found := _last(_SANITIZER, log):
        return Death(f"sanitizer {found['said'] or 'undefined'} {place}", name, found[0][:200], place)
    return Death(f"{name} {place}", name, None, place)


def _of_abort(name: str, place: str | None, log: str) -> Death | None:
    """By what the program said before it gave up."""
    for pattern, kind in ((_CHECK, "check"), (_ASSERTION, "assertion")):
        if found := _last(pattern, log):
            return Death(f"{kind} {found['file']}", name, found["said"].strip()[:200], place)
    if found := _last(_EXCEPTION, log):
        return Death(f"exception {found['type']} {place}", name, found["type"], place)
    return None


def _of_status(status: int, place: str | None, log: str) -> Death:
    """The death of a Windows process, by all 32 bits of its exit code."""
    if status in {_ABORTED, FAST_FAIL} and (told := _of_abort("SIGABRT", place, log)):
        return told
    if status != _ABORTED and not is_status(status):
        return Death(f"exit {status}", None, said=f"it ended with exit code {status}")
    fault, name = fault_of(status), name_of_status(status)
    said = f"0x{status:08X} {name}" if name else f"it ended with exit code {status}"
    caught = status if _last(_CAUGHT, log) else None
    if status == STACK_OVERFLOW:
        return Death("SIGSEGV stack", "SIGSEGV", said, place, caught)
    kind = "heap" if status == HEAP_CORRUPTION else "status"
    signaled = fault.signal if fault is not None else "SIGABRT" if status in {_ABORTED, FAST_FAIL} else None
    return Death(f"{kind} 0x{status:08X} {place}", signaled, said, place, caught)


def _last(pattern: re.Pattern[str], log: str) -> re.Match[str] | None:
    return next(iter(list(pattern.finditer(log))[-1:]), None)
