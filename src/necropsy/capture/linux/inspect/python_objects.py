"""Reads Python objects of a dead process for its threads: thread names, asyncio tasks, and values of variables."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

import msgspec

from necropsy.capture.linux.inspect.interpreter import LinuxFrameReader
from necropsy.capture.linux.inspect.library_versions import python_version
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.inspect.source_lines import Sources
from necropsy.capture.process import cpython_locks
from necropsy.capture.process.asyncio_tasks import TaskReader
from necropsy.capture.process.call_arguments import MOST_FRAMES
from necropsy.capture.process.cpython_frames import Standing
from necropsy.capture.process.cpython_values import Values
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.capture.process.user_values import own_frame, standing_of, values
from necropsy.model import Address, Crash, Frame, Thread

LONGEST_S = 0.5
_NAMES_OF_MODULE = 16
_LONGEST_NAME = 100
_DEEPEST_LOOP = 256
_LOOP = re.compile(r"/asyncio/base_events\.py$")


def _is_loop(frame: Frame) -> bool:
    return (frame.function or "").endswith("_run_once") and _LOOP.search(frame.source or "") is not None


class ObjectsOfThreads:
    """Reads the objects of one process's interpreter."""

    def __init__(
        self, memory: Memory, files: MappedFiles, pointers: Mapping[int, int], sources: Sources | None
    ) -> None:
        """``pointers``: thread pointer -> thread id. Raises PythonStackError without a readable interpreter."""
        self._memory, self._pointers, self._sources = memory, pointers, sources
        self._frames = LinuxFrameReader(memory, files)
        self._runtime, self._layout = self._frames.located()
        version = (python_version(memory, files) or "").split(".")
        if len(version) < 2 or not version[1].isdecimal():
            raise PythonStackError("the version of the interpreter is not known")
        self._values = Values(memory, self._layout, int(version[1]))
        self._active: int | None = None

    def _module(self, name: str) -> int | None:
        """The dictionary of a module that was imported."""
        interpreter = self._memory.u64(self._runtime + self._layout.interpreters)
        offset = self._layout.sys_dict
        names = self._memory.u64(interpreter + offset) if interpreter and offset is not None else None
        modules = self._values.items(names, ("modules",)).get("modules") if names else None
        module = self._values.items(modules, (name,)).get(name) if modules else None
        return self._memory.u64(module + _NAMES_OF_MODULE) if module else None

    def _variable(self, module: str, name: str) -> int | None:
        names = self._module(module)
        return self._values.items(names, (name,)).get(name) if names else None

    def names(self) -> dict[int, str]:
        """The name of each thread that ``threading`` knows, by its id; not of the main thread."""
        active = self._active = self._active or self._variable("threading", "_active")
        if active is None or self._values.type_name(active) != "dict":
            return {}
        found: dict[int, str] = {}
        for key, thread in self._values.entries(active):
            ident = self._values.int_of(key)
            tid = self._pointers.get(int(ident)) if ident is not None else None
            if tid is None or self._values.type_name(thread) == "_MainThread":
                continue
            name = self._values.attributes(thread, ("_name",)).get("_name")
            text = self._values.text(name) if name else None
            if text:
                found[tid] = text[:_LONGEST_NAME]
        return found

    def stack_of(self, tid: int, limit_s: float) -> tuple[Frame, ...]:
        """The Python frames of a thread, innermost first, those read in time. Raises PythonStackError."""
        return self._frames.stack_of(tid, self._pointers, limit_s)

    def with_tasks(self, thread: Thread) -> Thread:
        """The thread, with the tasks of the asyncio loop that it runs."""
        runs = next((one for one in thread.python or () if _is_loop(one)), None)
        if runs is None or thread.tid is None or runs.index >= _DEEPEST_LOOP:
            return thread
        standing = self._frames.standing(thread.tid, self._pointers, runs.index + 1)
        frame = standing_of(runs, standing)
        loop = self._memory.u64(frame.address + frame.layout.variables) if frame is not None else None
        current = self._variable("asyncio.tasks", "_current_tasks") if loop else None
        if current is None or self._values.type_name(current) != "dict":
            return thread
        task = next((task for of, task in self._values.entries(current) if of == loop), None)
        tasks = TaskReader(self._memory, self._values, self._frames).chain(task, standing) if task else ()
        return msgspec.structs.replace(thread, tasks=tasks)

    def with_values(self, thread: Thread) -> Thread:
        """The thread, with the variables of the innermost frame of the user's own code."""
        own = own_frame(thread.python or ())
        if own is None or thread.tid is None or own.index >= MOST_FRAMES:
            return thread
        standing = standing_of(own, self._frames.standing(thread.tid, self._pointers, own.index + 1))
        found = values(self._memory, self._values, standing, own.code) if standing is not None else None
        part = self._part(own, standing) if standing is not None else None
        if not found and part is None:
            return thread
        told = msgspec.structs.replace(own, values=found or None, columns=part)
        python = tuple(told if one is own else one for one in thread.python or ())
        return msgspec.structs.replace(thread, python=python)

    def with_lock(self, thread: Thread) -> Thread:
        """The thread, with the lock of Python's that it waits for, and who holds that if the lock itself says so."""
        waits, stack = thread.waits, thread.stack
        if waits is None or waits.ended or waits.address is None or stack is None or stack.pointer is None:
            return thread
        if (awaited := self._joined(thread)) is not None:
            on = f"the end of thread {awaited}"
            told = msgspec.structs.replace(waits, on=on, lock="Thread.join", owner=awaited, owner_by="join")
            return msgspec.structs.replace(thread, waits=told)
        found = cpython_locks.on_stack(self._memory, self._values, stack.pointer, waits.address)
        if found is None:
            return thread
        owner = self._pointers.get(found.owner or 0)
        told = msgspec.structs.replace(
            waits,
            on=f"the {found.kind.removeprefix('threading.').replace('.', ' ')} at {found.address:#x}",
            lock=found.kind,
            lock_object=Address(found.address),
            count=found.count,
            owner=owner,
            owner_by="lock" if owner is not None else None,
        )
        return msgspec.structs.replace(thread, waits=told)

    def _joined(self, thread: Thread) -> int | None:
        """The thread for whose end it waits."""
        if thread.tid is None or not thread.python:
            return None
        standing = self._frames.standing(thread.tid, self._pointers, 1)
        ident = cpython_locks.joined(self._memory, self._values, next(iter(standing), None))
        return self._pointers.get(ident) if ident is not None else None

    def holders(self, threads: Sequence[Thread], until: float) -> dict[int, int]:
        """Which thread holds a plain lock, by the lock's address: it runs the body of a ``with`` statement on it."""
        found: dict[int, set[int]] = {}
        for thread in threads:
            if not thread.python or thread.tid is None or time.monotonic() > until:
                continue
            standing = self._frames.standing(thread.tid, self._pointers, MOST_FRAMES)
            for lock in cpython_locks.held_by_with(self._memory, self._values, standing):
                found.setdefault(lock, set()).add(thread.tid)
        return {lock: next(iter(tids)) for lock, tids in found.items() if len(tids) == 1}

    def _part(self, own: Frame, standing: Standing) -> tuple[int, int] | None:
        """Which part of its source line ran; None for a line that replaces one of generated code."""
        if self._sources is None or own.code is None or standing.source != own.source or standing.line != own.line:
            return None
        columns = self._frames.columns(standing)
        if columns is None or own.source is None or own.line is None:
            return None
        return self._sources.part(own.source, own.line, *columns)


def added(
    crash: Crash, memory: Memory, files: MappedFiles, pointers: Mapping[int, int], sources: Sources | None
) -> Crash:
    """The crash with thread names, tasks and values. Raises PythonStackError where they cannot be read."""
    threads = crash.threads or ()
    if not any(thread.python for thread in threads):
        return crash
    objects = ObjectsOfThreads(memory, files, pointers, sources)
    until = time.monotonic() + LONGEST_S
    # Where the thread that died runs no Python, the main thread mostly waits for it.
    first = crash.crashed_thread
    if first is None or not first.python:
        first = next((one for one in threads if one.tid == crash.pid), None)
    names = objects.names() if len([one for one in threads if one.python]) > 1 else {}
    told = []
    for thread in threads:
        if thread is first and time.monotonic() < until:
            thread = objects.with_values(thread)  # noqa: PLW2901 - the same thread, told better
        if thread.python and time.monotonic() < until:
            thread = objects.with_lock(objects.with_tasks(thread))  # noqa: PLW2901 - the same thread, told better
        name = names.get(thread.tid or 0)
        told.append(msgspec.structs.replace(thread, python_name=name) if name is not None else thread)
    return msgspec.structs.replace(crash, threads=_with_holders(objects, told, until))


def _with_holders(objects: ObjectsOfThreads, threads: Sequence[Thread], until: float) -> tuple[Thread, ...]:
    """The threads; those that wait for plain locks with the owners that the frames of all threads show."""
    if not any(one.waits is not None and one.waits.lock == "threading.Lock" for one in threads):
        return tuple(threads)
    holders = objects.holders(threads, until)
    return tuple(_with_holder(one, holders) for one in threads)


def _with_holder(thread: Thread, holders: Mapping[int, int]) -> Thread:
    waits = thread.waits
    if waits is None or waits.lock != "threading.Lock" or (holder := holders.get(waits.lock_object or 0)) is None:
        return thread
    told = msgspec.structs.replace(waits, owner=holder, owner_by="with")
    return msgspec.structs.replace(thread, waits=told)
