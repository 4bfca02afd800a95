"""The loop in C (``csrc/``), called through ctypes: the GIL is released while it serves."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import struct
from collections.abc import Collection, Mapping

from necropsy.capture.linux.stderr.bpf_probe import BpfProbe
from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import c_library
from necropsy.capture.linux.supervise.crash_context import FirstChance
from necropsy.capture.linux.supervise.event_loop import (
    Baseline,
    Event,
    Executed,
    Finished,
    Journal,
    Kind,
    Loop,
    Started,
)
from necropsy.capture.linux.supervise.ptrace import REGISTERS_SIZE, SIGINFO_SIZE
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.traced_processes import words_of

_STARTED, _BECAME = 1, 3
_CHANCE = struct.Struct(f"<iiQ{SIGINFO_SIZE}s{REGISTERS_SIZE}s")
_SIGNAL = struct.Struct(f"<ii{SIGINFO_SIZE}s")
_MOST_CHANCES = 1024
_MOST_SIGNALS = 64
_MOST_RINGS = 64
_NANOSECONDS = 1e-9


class _Event(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("tid", ctypes.c_int32),
        ("pid", ctypes.c_int32),
        ("value", ctypes.c_int32),
    )


class _Baseline(ctypes.Structure):
    """``struct baseline`` in ``csrc/unchanged.h``."""

    _fields_ = (
        ("interval", ctypes.c_uint64),
        ("least_resident", ctypes.c_uint64),
        ("most_resident", ctypes.c_uint64),
        ("descriptors", ctypes.c_uint64),
        ("pid", ctypes.c_int32),
        ("looks", ctypes.c_int32),
        ("least_threads", ctypes.c_int32),
        ("most_threads", ctypes.c_int32),
        ("rings", ctypes.c_uint64),
        ("room", ctypes.c_uint64),
        ("ring", ctypes.c_uint64 * _MOST_RINGS),
    )


class CLoop:
    """As ``loop.Loop``. There can be one in a process."""

    def __init__(
        self,
        root: int,
        *,
        front: int,
        facts: Facts,
        journal: Journal,
        probe: BpfProbe | None,
        always: bool,
        failures: bool,
    ) -> None:
        """Take over the seized command ``root`` (0: see ``adopt``). Raises MemoryError without room for its tables."""
        loaded = c_library.load()
        if loaded is None:
            raise MemoryError("the library is not there")
        self._library = loaded
        self._library.necropsy_journal.restype = ctypes.c_void_p
        self._library.necropsy_text.restype = ctypes.c_void_p
        self._library.necropsy_next.argtypes = (ctypes.c_void_p, ctypes.c_long)
        self._library.necropsy_next.restype = None
        self._library.necropsy_base.restype = ctypes.c_uint64
        self._library.necropsy_clock(ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p))
        addresses = facts.addresses()  # they keep the memory alive
        self._kept = addresses
        if self._library.necropsy_open(
            root,
            front,
            int(always) | int(failures) << 1,
            -1 if probe is None else probe.members,
            0 if probe is None else probe.run,
            ctypes.byref(addresses.beats),
            ctypes.byref(addresses.deliveries),
            ctypes.byref(addresses.timed_out),
        ):
            raise MemoryError("there is no address space for its tables")
        self._told = journal
        self._records = self._library.necropsy_journal()
        self._text = self._library.necropsy_text()
        self._event = _Event()
        self._at = ctypes.byref(self._event)

    def next(self, wait_s: float | None) -> Event:
        """As ``Loop.next``."""
        # Rounded up: too early, there would be nothing to do but wait again.
        self._library.necropsy_next(self._at, -1 if wait_s is None else max(math.ceil(wait_s * 1000), 0))
        self._drain()
        event = self._event
        return Event(Kind(event.kind), event.tid, event.pid, event.value)

    def wait_while(self, seen: Baseline) -> None:
        """Extend the next wait while nothing has changed."""
        if len(seen.rings) > _MOST_RINGS:
            return
        rings = [ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in seen.rings]
        told = _Baseline(
            interval=round(seen.interval_s / _NANOSECONDS),
            least_resident=seen.resident.start // mmap.PAGESIZE,
            most_resident=seen.resident.stop // mmap.PAGESIZE,
            descriptors=seen.descriptors,
            pid=seen.pid,
            looks=seen.looks,
            least_threads=seen.threads.start,
            most_threads=seen.threads.stop - 1,
            rings=len(rings),
            room=min(map(len, seen.rings), default=0) - mmap.PAGESIZE,
            ring=(ctypes.c_uint64 * _MOST_RINGS)(*rings),
        )
        self._library.necropsy_baseline(ctypes.byref(told))

    def _drain(self) -> None:
        count = self._library.necropsy_drain()
        if count:
            self._tell(ctypes.string_at(self._records, count * c_library.RECORD.size))

    def _tell(self, records: bytes) -> None:
        told = self._told
        for record in c_library.RECORD.iter_unpack(records):
            kind, tid, pid, parent, value, rss, size, stack, most, text, path, words, at, base = record
            if kind == _STARTED:
                told.started(Started(tid, pid, parent, at * _NANOSECONDS))
            elif kind == _BECAME:
                data = ctypes.string_at(self._text + text, path + words)
                told.executed(Executed(pid, os.fsdecode(data[:path]), words_of(data[path:])))
            else:
                peaks = (rss * 1024 or None, size * 1024 or None, (stack * 1024, most * 1024) if stack else None)
                told.finished(Finished(tid, pid, value, at * _NANOSECONDS, *peaks, base))

    def adopt(self, tid: int) -> None:
        """As ``Loop.adopt``."""
        self._library.necropsy_adopt(tid)
        self._drain()

    def resume(self, tid: int, signo: int = 0) -> None:
        """As ``Loop.resume``."""
        self._library.necropsy_resume(tid, signo)

    def listen(self, tid: int) -> None:
        """As ``Loop.listen``."""
        self._library.necropsy_listen(tid)

    def let_exit(self, tid: int) -> None:
        """As ``Loop.let_exit``."""
        self._library.necropsy_let_exit(tid)

    def hold(self, tid: int, *, stop: int | None, again: int = 0, interrupt: bool = True) -> bool:
        """As ``Loop.hold``."""
        return bool(self._library.necropsy_hold(tid, -1 if stop is None else stop, again, int(interrupt)))

    def release(self, pid: int, first: int, signo: int = 0) -> None:
        """As ``Loop.release``."""
        self._library.necropsy_release(pid, first, signo)

    def ordinary(self, pid: int) -> None:
        """As ``Loop.ordinary``."""
        self._library.necropsy_ordinary(pid)

    def forget(self, pid: int) -> None:
        """As ``Loop.forget``."""
        self._library.necropsy_forget(pid)

    def told(self, pid: int) -> None:
        """As ``Loop.told``."""
        self._library.necropsy_told(pid)

    def requests(self, signals: Collection[int]) -> None:
        """As ``Loop.requests``."""
        self._library.necropsy_requests(ctypes.c_ulong(sum(1 << (signo - 1) for signo in signals)))

    def quiet(self, pid: int, seconds: float) -> None:
        """As ``Loop.quiet``."""
        self._library.necropsy_quiet(pid, ctypes.c_ulong(max(round(seconds * 1000), 0)))

    def held(self, pid: int) -> dict[int, int]:
        """As ``Loop.held``."""
        most = self._library.necropsy_held(pid, None, 0)
        pairs = (ctypes.c_int32 * (2 * most))()
        count = min(self._library.necropsy_held(pid, pairs, most), most)
        return {pairs[2 * at]: pairs[2 * at + 1] for at in range(count)}

    def chances(self, pid: int) -> Mapping[int, tuple[FirstChance, ...]]:
        """As ``Loop.chances``."""
        buffer = ctypes.create_string_buffer(_CHANCE.size * _MOST_CHANCES)
        count = self._library.necropsy_chances(pid, buffer, _MOST_CHANCES)
        found = _CHANCE.iter_unpack(buffer.raw[: count * _CHANCE.size])
        chances: dict[int, tuple[FirstChance, ...]] = {}
        for tid, _, at, info, registers in found:
            chances[tid] = (*chances.get(tid, ()), FirstChance(tid, info, registers, at * _NANOSECONDS))
        return chances

    def base(self, tid: int) -> int:
        """Where the thread's control block is (its thread pointer at first); 0 if unknown. Only with ``always``."""
        return int(self._library.necropsy_base(tid))

    def signals(self, pid: int) -> Mapping[int, bytes]:
        """As ``Loop.signals``."""
        buffer = ctypes.create_string_buffer(_SIGNAL.size * _MOST_SIGNALS)
        count = self._library.necropsy_signals(pid, buffer, _MOST_SIGNALS)
        return {number: info for number, _, info in _SIGNAL.iter_unpack(buffer.raw[: count * _SIGNAL.size])}


def open_loop(
    root: int, *, front: int, facts: Facts, journal: Journal, log: Log, always: bool = False
) -> tuple[Loop, str | None]:
    """A loop for the command ``root``, which this thread has seized, and why it is not the fast one, if it is not.

    ``root`` is 0 without a command to wait for: ``Loop.adopt`` then names the traced processes, which end on their own.
    ``log``: the C loop has its probe hear new processes; the other one leaves that to the journal, which it keeps
    before a new process runs. Where the log cannot be read, exit codes other than 0 of all processes are returned, not
    only the command's. ``always``: healthy ends are returned too.
    """
    why, failures = c_library.why_missing(), log.is_wanted
    if why is None:
        try:
            loop = CLoop(
                root, front=front, facts=facts, journal=journal, probe=log.probe, always=always, failures=failures
            )
        except MemoryError as error:
            why = f"the C loop could not be started: {error}"
        else:
            return loop, None
    from necropsy.capture.linux.supervise.python_loop import PythonLoop  # not loaded where the other one is used

    return PythonLoop(root, front=front, facts=facts, journal=journal, always=always, failures=failures), why
