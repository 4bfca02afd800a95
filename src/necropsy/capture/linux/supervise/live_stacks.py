"""Copies the stack of a thread that is deep in calls: it is stopped for as long as copying takes, a few milliseconds.

What is copied is unwound when the process is over (``dead_frames.functions``). A process is stopped some 16 times at
most, one thread at a time, and never in a system call other than for a lock (``brief_stop``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy.capture.linux.inspect import registers
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.inspect.python_threads import PythonThreads
from necropsy.capture.linux.inspect.stack_marks import StackCopy, StackMark, StackReader
from necropsy.capture.linux.supervise.brief_stop import stopped

_STEP = 64 << 10
"""Bytes that a stack has to grow by before it is copied, again or at all."""
_MOST, _PAUSE_S = 12, 0.5
"""Stops of one process, and the time between two of them."""
_TRIES, _AGAIN_S = 100, 0.1
"""The same of tries that find a thread in a system call, or waiting for a processor."""
_MOST_COPIED = 8 << 20
_PYTHON_S = 0.01
"""Of CPU time, for reading the Python frames, while the thread is stopped."""
_PROBES, _PROBE_S = 4, 0.2
"""Stops of one process to see where a thread's stack pointer is, and the time between two such looks."""
_POINTER_FROM_END = 3
"""``/proc/PID/syscall``: a number, arguments if it is a call, the stack pointer and the program counter."""
_DEEP = 0.5
"""The share of its mark that a thread has to use still."""


@dataclass
class LiveStacks:
    """Those of one process."""

    reader: StackReader
    python: PythonThreads
    left: int = _MOST
    tries: int = _TRIES
    after: float = 0.0
    probes: int = _PROBES
    _probe_after: float = 0.0
    _turn: int = 0

    def look(self, mark: StackMark) -> None:
        """Copy the thread's stack, if its mark has moved and the calls that moved it may still run. Raises OSError."""
        if mark.lowest is None or mark.lowest > mark.copied_at - _STEP:
            return
        now = time.monotonic()
        if not self.left or not self.tries or now < max(self.after, mark.copied_after):
            return
        self.python.find()
        copy: StackCopy | None = None
        with ProcessMemory(self.reader.pid) as memory, stopped(mark.tid) as stands:
            if stands:
                copy = self._copied(mark, memory)
        if stands:
            mark.copied_at = mark.lowest
            self.left, self.after = self.left - 1, now + _PAUSE_S
        else:
            self.tries -= 1
            mark.copied_after = now + _AGAIN_S
        if copy is not None:
            with contextlib.suppress(OSError):  # it is gone; what was mapped before is known
                copy.maps = self.reader.maps(fresh=True)
            mark.live = copy

    def probe(self, marks: Sequence[StackMark]) -> None:
        """See whether one of the threads, each in its turn, runs on memory that is not its stack. Raises OSError."""
        now = time.monotonic()
        if now < self._probe_after or not marks:
            return
        self._probe_after = now + _PROBE_S
        self._turn += 1
        mark = marks[self._turn % len(marks)]
        call = Path(f"/proc/{self.reader.pid}/task/{mark.tid}/syscall").read_text().split()
        if len(call) >= _POINTER_FROM_END and call[0] != "running":
            if pointer := int(call[-2], 16):  # 0 of a thread that has ended
                mark.note_pointer(pointer)
        elif self.probes and call == ["running"]:
            self.probes -= 1
            with stopped(mark.tid) as stands:
                if stands:
                    mark.note_pointer(registers.read(mark.tid).sp)

    def _copied(self, mark: StackMark, memory: ProcessMemory) -> StackCopy | None:
        values = registers.read(mark.tid)
        mark.note_pointer(values.sp)
        low, lowest = values.sp, mark.lowest if mark.lowest is not None else mark.high
        if not mark.low <= low < mark.high or mark.high - low < _DEEP * (mark.high - lowest):
            return None
        data = memory.some(low, min(mark.high - low, _MOST_COPIED))
        python = self.python.frames(mark.tid, values.thread_pointer, _PYTHON_S)
        return StackCopy(self.reader.pid, low, data, self.reader.maps(), registers=values, python=python)
