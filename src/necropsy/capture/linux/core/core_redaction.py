"""The strings that the kernel puts above the first frame: arguments and environment, which a core would show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from necropsy import redact
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.secret_bytes import SecretBytes, heard, literals
from necropsy.formats.literal_search import Finder, passing_finder
from necropsy.secrets.names import is_harmless

_ARG_START = 47
"""Fields 48 to 51 of ``/proc/PID/stat`` (proc(5)): where arguments and environment begin and end."""
_LARGEST = 4 << 20
_PART = 8
"""So many bytes of a secret are taken for a part of it, wherever they lie."""
_SHORTEST = 6
"""A shorter secret is looked for nowhere else: too much would be taken for it."""
_MOST_PARTS = 4096


@dataclass(frozen=True)
class Hidden:
    """What no core should show."""

    places: Sequence[tuple[int, bytes]] = ()
    """``(address, replacement)``, of the same length as it was."""
    parts: Finder = field(default_factory=lambda: passing_finder(()))
    """Finds parts of what looks like a secret: the program copies it, and vector registers that held some of it are
    saved on the stack, of the C library's own searches too, which read behind the end of what they search."""
    known: int = 0
    """How many of what ``parts`` finds are parts; the others only stand in or before secrets."""
    texts: SecretBytes = field(default_factory=SecretBytes)

    def over(self, address: int, data: bytes) -> bytes:
        """``data``, which lies at ``address``, without it."""
        if not self.places or address >= self._end or address + len(data) <= self._begin:
            return data
        return _with(address, data, self.places)

    @cached_property
    def _begin(self) -> int:
        return min(at for at, _ in self.places)

    @cached_property
    def _end(self) -> int:
        return max(at + len(text) for at, text in self.places)

    def within(self, data: bytes) -> bytes:
        """``data`` without parts of secrets."""
        hits = self.parts(data)
        if not hits:
            return data
        spans = [(low, high) for index, low, high in hits if index < self.known]
        spans += self.texts.places(data, sorted(low for index, low, _ in hits if index >= self.known))
        changed = bytearray(data)
        for low, high in spans:
            changed[low:high] = b"*" * (high - low)
        return bytes(changed)


@dataclass(frozen=True)
class OwnStrings:
    """Arguments and environment as they stand in a process's memory, with their addresses; unmasked."""

    arguments: Sequence[tuple[int, bytes]] = ()
    environment: Sequence[tuple[int, bytes]] = ()


def own_strings(pid: int, memory: Memory) -> OwnStrings:
    """The strings of process ``pid``; empty where the kernel does not say where they are."""
    bounds = _bounds(pid)
    if bounds is None:
        return OwnStrings()
    return OwnStrings(tuple(_strings(memory, *bounds[:2])), tuple(_strings(memory, *bounds[2:])))


def hidden(strings: OwnStrings) -> Hidden:
    """Replacements in the process's own strings.

    Of the environment only the values of variables known to be harmless stay, of the arguments what does not look like
    a secret.
    """
    arguments, secrets = _arguments(strings.arguments)
    variables, more = _environment(strings.environment)
    # A path is none (PWD, the file of a key), and parts of it stand in every list of libraries.
    chosen = [secret for secret in (*secrets, *more, *heard()) if not secret.startswith(b"/")]
    parts = {secret[at : at + _PART] for secret in chosen for at in range(max(1, len(secret) - _PART + 1))}
    known = [part for part in sorted(parts) if len(part) >= _SHORTEST][:_MOST_PARTS]
    return Hidden((*arguments, *variables), passing_finder((*known, *literals())), len(known))


def command_line(pid: int) -> list[str]:
    """The words of the command line, unmasked; empty where it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []


def _with(address: int, data: bytes, secrets: Sequence[tuple[int, bytes]]) -> bytes:
    end = address + len(data)
    if not any(at < end and at + len(text) > address for at, text in secrets):
        return data
    changed = bytearray(data)
    for at, text in secrets:
        low, high = max(at, address), min(at + len(text), end)
        if low < high:
            changed[low - address : high - address] = text[low - at : high - at]
    return bytes(changed)


def _bounds(pid: int) -> tuple[int, int, int, int] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may hold anything.
    fields = text[text.rfind(b")") + 2 :].split()
    values = [int(one) for one in fields[_ARG_START - 2 : _ARG_START + 2]]
    return (values[0], values[1], values[2], values[3]) if len(values) == 4 and all(values) else None


def _strings(memory: Memory, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    data = memory.some(low, min(max(high - low, 0), _LARGEST))
    at = low
    for one in data.split(b"\0"):
        yield at, one
        at += len(one) + 1


def _environment(strings: Sequence[tuple[int, bytes]]) -> tuple[list[tuple[int, bytes]], list[bytes]]:
    """Replaced values and their places, and those among them that look like secrets."""
    places, secrets = [], []
    for at, one in strings:
        name, _, value = one.partition(b"=")
        said = name.decode("utf-8", "replace")
        if value and not is_harmless(said):
            places.append((at + len(name) + 1, b"*" * len(value)))
            text = value.decode("utf-8", "surrogateescape")
            if (masked := redact.variables({said: text})[said]) != text:
                secrets.append(_masked_part(text, masked))
    return places, secrets


def _arguments(words: Sequence[tuple[int, bytes]]) -> tuple[list[tuple[int, bytes]], list[bytes]]:
    """Replaced words and their places, and what of them is secret."""
    places, secrets = [], []
    texts = [word.decode("utf-8", "surrogateescape") for _, word in words]
    for (at, word), before, after in zip(words, texts, redact.argv(texts), strict=True):
        if before != after:
            places.append((at, b"*" * len(word)))
            secrets.append(_masked_part(before, after))
    return places, secrets


def _masked_part(before: str, after: str) -> bytes:
    """What was masked of a text, without what is the same at its front and, behind a single secret, at its end."""
    low = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    end = after.rpartition(redact.MASK)[2]
    high = len(before) - (len(end) if end and before.endswith(end) else 0)
    return before[low:high].encode("utf-8", "surrogateescape")
