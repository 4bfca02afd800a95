"""The last words that a process left in its memory: the text of a failed CHECK on the stack, or where it points to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.capture.process import memory_messages
from necropsy.capture.windows import memory_map
from necropsy.capture.windows.target import ProcessSnapshot
from necropsy.formats import log
from necropsy.formats.minidump_records import file_name
from necropsy.formats.windows_exits import FAST_FAIL
from necropsy.model import Message, Stack

_ENDS = frozenset({FAST_FAIL, 0x80000003, 0xC0000420, 0xC000001D, 0xC0000602, 0x40000015})
"""By these a program ends itself: fast-fail, breakpoint, failed assertion, ``ud2``, RaiseFailFastException, abort."""
_CHECKS = frozenset({"check-failed", "non-ok-status"})
_FATAL = re.compile(r"(?:F ?\d{4} [\d:.]{8,}|: F )")
"""The mark of a fatal line: a CHECK that somebody caught or quotes has none."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class _Piece:
    high: int
    writable: bool


class _Written:
    """The available memory that a program may have written, without images and read-only memory."""

    def __init__(self, stopped: ProcessSnapshot) -> None:
        self._stopped = stopped

    def at(self, address: int) -> _Piece | None:
        stopped = self._stopped
        if stopped.regions is not None:
            one = memory_map.mapping_at(stopped, address)
            return None if one is None else _Piece(one.high, "w" in one.permissions)
        if stopped.module_at(address) is not None or not stopped.memory.some(address, 1):
            return None
        return _Piece(address + _BLOCK, writable=True)


def of_unloaded(stopped: ProcessSnapshot, address: int) -> Message | None:
    """Code ran, or was to run, where a library had been that was unloaded before; None where none had."""
    if stopped.module_at(address) is not None:
        return None
    gone = next((one for one in reversed(stopped.unloaded) if one.base <= address < one.base + one.size), None)
    if gone is None or not gone.path:
        return None
    name = file_name(gone.path)
    text = f"{address:#x} lay in {name}, which had been unloaded"
    return Message(
        kind="unloaded-library",
        text=text,
        where="list of unloaded modules",
        fields={"library": name, "address": hex(address), "offset": hex(address - gone.base)},
    )


def ended_itself(code: int) -> bool:
    """The exception is one that a program raises to end itself."""
    return code in _ENDS


def of_checks(stopped: ProcessSnapshot, stack: Stack, innermost: Sequence[str | None], tid: int) -> tuple[Message, ...]:
    """The fatal CHECK that failed on this thread; without names of functions, its line must say that it is fatal."""
    text = memory_messages.check_text(stopped.memory, _Written(stopped), stack)
    if text is None or not (_FATAL.search(text) or memory_messages.reports_a_check(innermost)):
        return ()
    found = log.scan(text, where=f"memory of thread {tid}")
    return tuple(message for message in found if message.kind in _CHECKS)
