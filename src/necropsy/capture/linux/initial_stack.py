"""The strings that the kernel puts above the first frame: arguments and environment, which a core would show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from necropsy import mask
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.variables import is_harmless

_ARG_START = 47
"""Fields 48 to 51 of ``/proc/PID/stat`` (proc(5)): where arguments and environment begin and end."""
_LARGEST = 4 << 20


def hidden(pid: int, memory: Memory) -> list[tuple[int, bytes]]:
    """``(address, replacement)`` of what no core should show, of the same length as it was.

    Of the environment only the values of variables known to be harmless stay, of the arguments what does not look like
    a secret.
    """
    bounds = _bounds(pid)
    if bounds is None:
        return []
    arg_start, arg_end, env_start, env_end = bounds
    return [*_arguments(memory, arg_start, arg_end), *_environment(memory, env_start, env_end)]


def arguments(pid: int) -> str:
    """The command line as one masked text; empty where it cannot be read."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return ""
    return " ".join(mask.argv(words))


def with_hidden(address: int, data: bytes, secrets: Sequence[tuple[int, bytes]]) -> bytes:
    """``data``, which lies at ``address``, with the replacements that fall into it."""
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


def _environment(memory: Memory, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    for at, one in _strings(memory, low, high):
        name, _, value = one.partition(b"=")
        if value and not is_harmless(name.decode("utf-8", "replace")):
            yield at + len(name) + 1, b"*" * len(value)


def _arguments(memory: Memory, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    words = list(_strings(memory, low, high))
    texts = [word.decode("utf-8", "surrogateescape") for _, word in words]
    for (at, word), before, after in zip(words, texts, mask.argv(texts), strict=True):
        if before != after:
            yield at, b"*" * len(word)
