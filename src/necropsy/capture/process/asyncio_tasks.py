"""The tasks of asyncio in memory: the one that a loop runs, and those that wait for it.

CPython 3.8 to 3.13 (``Modules/_asynciomodule.c``, ``internal/pycore_genobject.h``). A task's coroutine and name are
found by their types, as their offsets differ between versions; anything unexpected ends the chain. Before 3.11 only the
outermost coroutine of a waiting task is known, and before 3.10 gather() ends the chain.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

from necropsy.capture.process.cpython_frames import FrameReader, Standing
from necropsy.capture.process.cpython_values import Values
from necropsy.capture.process.memory import Memory
from necropsy.model import Coroutine, Task

_TASKS = frozenset({"_asyncio.Task", "Task"})
_COROUTINES = frozenset({"coroutine", "generator"})
_LOOP, _CALLBACK = 16, 24
"""Of a future."""
_FIRST, _LARGEST = 40, 256
"""Of a task: where its own fields may begin, and its size in bytes."""
_SELF_OF_METHOD = 24
_WAKEUP = "TaskWakeupMethWrapper"
_CLOSURE = 72
_ASYNC = 0x80 | 0x100 | 0x200
"""Flags of code: a coroutine, one made of a generator, an asynchronous generator."""
_MOST_TASKS, _MOST_AWAITS = 8, 32
_FRAME_OF_OLD = 16
_FRAMES = (72, 80)
"""Of a coroutine, from 3.11: its frame."""
_TOP = 64
"""Of a frame, from 3.11: how many slots from the variables on are in use, 4 bytes."""
_HIGHEST_TOP = 4096


class TaskReader:
    """Reads the tasks of one interpreter."""

    def __init__(self, memory: Memory, values: Values, frames: FrameReader) -> None:
        self._memory, self._values, self._frames = memory, values, frames

    def chain(self, task: int, standing: Sequence[Standing]) -> tuple[Task, ...]:
        """The running task at this address, and those that wait for it; ``standing``: its thread's innermost frames."""
        found: list[Task] = []
        seen: set[int] = set()
        at: int | None = task
        while at and at not in seen and len(found) < _MOST_TASKS:
            seen.add(at)
            one = self._task(at, standing if not found else ())
            if one is None:
                break
            found.append(one)
            at = self._waits_for(at)
        return tuple(found)

    def _task(self, address: int, standing: Sequence[Standing]) -> Task | None:
        if self._values.type_name(address) not in _TASKS:
            return None
        data = self._memory.some(address + _FIRST, _LARGEST)
        words = [one for (one,) in struct.iter_unpack("<Q", data[: len(data) & ~7])]
        for coroutine, name in itertools.pairwise(words):
            if not coroutine or self._values.type_name(coroutine) not in _COROUTINES:
                continue
            kind = self._values.type_name(name)
            if kind not in {"str", "int"}:
                continue
            # From 3.12 a task has a number until somebody asks for its name.
            number = self._values.int_of(name) if kind == "int" else None
            text = f"Task-{number}" if number is not None else self._values.text(name)
            return Task(name=text, awaits=tuple(self._awaits(coroutine, standing)))
        return None

    def _awaits(self, coroutine: int, standing: Sequence[Standing]) -> Iterator[Coroutine]:
        """The coroutines of a task, innermost first, from its own."""
        found: list[Standing] = []
        at: int | None = coroutine
        while at and len(found) < _MOST_AWAITS:
            frame = self._frame_of(at)
            if frame is None:
                break
            place = next((index for index, one in enumerate(standing) if one.address == frame.address), None)
            if place is not None:
                found += [one for one in reversed(standing[: place + 1]) if self._is_async(one)]
                break
            found.append(frame)
            at = self._awaited_by(frame) if not standing else None
        return (Coroutine(function=one.function, source=one.source, line=one.line) for one in reversed(found))

    def _is_async(self, frame: Standing) -> bool:
        return bool((self._memory.u32(frame.code + frame.layout.flags) or 0) & _ASYNC)

    def _frame_of(self, coroutine: int) -> Standing | None:
        for at in _FRAMES:
            frame = self._frames.frame_at(coroutine + at) if self._has_code(coroutine + at) else None
            if frame is not None:
                return frame
        old = self._memory.u64(coroutine + _FRAME_OF_OLD)
        return self._frames.frame_at(old) if old and self._values.type_name(old) == "frame" else None

    def _has_code(self, frame: int) -> bool:
        code = self._memory.u64(frame + self._frames.layout.code)
        return bool(code) and not self._frames.layout.counts and self._values.type_name(code or 0) == "code"

    def _awaited_by(self, frame: Standing) -> int | None:
        """The coroutine that a waiting frame waits for, which is on top of its stack."""
        top = self._memory.u32(frame.address + _TOP)
        if frame.layout.counts or not top or top > _HIGHEST_TOP:
            return None
        found = self._memory.u64(frame.address + frame.layout.variables + 8 * (top - 1))
        return found if found and self._values.type_name(found) in _COROUTINES else None

    # ------------------------------------------------------------ who waits

    def _waits_for(self, future: int, depth: int = 0) -> int | None:
        """The task that is woken when the future, mostly a task, is done."""
        callback = self._memory.u64(future + _CALLBACK)
        kind = self._values.type_name(callback) if callback else None
        if not callback or depth > _MOST_TASKS:
            return None
        if kind == _WAKEUP:
            return self._memory.u64(callback + 16)
        if kind == "builtin_function_or_method":
            return self._memory.u64(callback + _SELF_OF_METHOD)
        if kind == "method":  # of a TaskGroup
            group = self._memory.u64(callback + _SELF_OF_METHOD) or 0
            return self._values.attributes(group, ("_parent_task",)).get("_parent_task")
        if kind == "function":  # of gather(), whose own future another task waits for
            cells = self._values.tuple_of(self._memory.u64(callback + _CLOSURE) or 0) or ()
            held = (self._memory.u64(one + 16) or 0 for one in cells)
            outer = next((one for one in held if self._values.type_name(one) == "_GatheringFuture"), None)
            return self._waits_for(outer, depth + 1) if outer else None
        return None
