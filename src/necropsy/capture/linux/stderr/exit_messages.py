"""The words of a process that is about to end by an exit code which is not 0, where stderr was not read."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from necropsy.capture.linux.inspect import memory_map, resident_pages
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.ptrace import HERE
from necropsy.capture.linux.unwind import exit_callers
from necropsy.capture.process import exit_message_memory
from necropsy.capture.run_options import Said

ALONE_S, BESIDE_OTHERS_S = 0.3, 0.04
"""How long may be searched: where no other process waits for it, and where others do."""
_MOST_LOAD = 8.0
_LARGEST = 256 << 20


def left_in(pid: int, tid: int, code: int, *, alone: bool) -> Said | None:
    """What thread ``tid`` and its process leave behind, which is stopped at its end. Raises nothing."""
    until = time.monotonic() + (ALONE_S if alone else BESIDE_OTHERS_S) * _load()
    text = None
    with contextlib.suppress(OSError, ValueError, struct.error):
        text = _of_runtime(pid, tid, code, until) if _has_written(pid) else None
    said = None
    if time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError, struct.error):
            said = exit_callers.said_by(pid, tid, until)
    if text is not None or said is None:
        return Said("left", text, callers=said.callers if said is not None else ()) if text is not None else None
    return said if _has_written(pid) else replace(said, text="")


def _load() -> float:
    """How many programs share a core, up to ``_MOST_LOAD``: all take that much longer, and so does this search."""
    with contextlib.suppress(OSError):
        return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), _MOST_LOAD)
    return 1.0


def _of_runtime(pid: int, tid: int, code: int, until: float) -> str | None:
    with ProcessMemory(pid) as memory:
        text = exit_message_memory.go_panic(memory, _thread_pointer(tid)) if code == 2 else None
        forms = exit_message_memory.FORMS if _is_by_first_thread(pid, tid) else exit_message_memory.FORMS_OF_THREADS
        return text or exit_message_memory.words(
            memory, _touched(pid, spans(memory_map.read(pid))), code, lambda: time.monotonic() < until, forms
        )


def _has_written(pid: int) -> bool:
    """It has written anything at all; also true where the kernel does not count."""
    try:
        rows = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return True
    return "wchar: 0" not in rows


def _thread_pointer(tid: int) -> int:
    registers = ptrace.getregset(tid)
    return HERE.word(registers, HERE.thread_pointer) if len(registers) == ptrace.REGISTERS_SIZE else 0


def _is_by_first_thread(pid: int, tid: int) -> bool:
    """Its first thread ended it; also true where that is not known."""
    registers = ptrace.getregset(tid)
    if len(registers) != ptrace.REGISTERS_SIZE:
        return True
    return (HERE.in_call(registers) == HERE.calls["exit_group"]) == (tid == pid)


def _touched(pid: int, found: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Of these addresses those that hold anything: to read an untouched page would count as the program's use of it."""
    for low, high in found:
        try:
            yield from resident_pages.ranges(pid, low, high)
        except (OSError, resident_pages.TooLargeError):  # noqa: PERF203 - each span on its own
            yield low, high


def spans(mapped: memory_map.MemoryMap) -> Iterator[tuple[int, int]]:
    """What can be written and comes from no file: the heap, the stacks, then the rest, the smaller ones first."""
    own = [
        one for one in mapped if one.writable and one.readable and not one.is_file and one.high - one.low <= _LARGEST
    ]
    own.sort(key=lambda one: (one.path not in {"[heap]", "[stack]"}, one.high - one.low))
    yield from ((one.low, one.high) for one in own)
