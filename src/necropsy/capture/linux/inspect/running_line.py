"""The line of Python that a process is at, and the arrays that the function there holds, read while it runs.

Nothing is stopped, so that a reading may mix what was there before with what came after. A line counts where two
readings in a row agree on it, and so does each array.
"""

from __future__ import annotations

import contextlib

from necropsy.capture.linux.inspect import memory_map, modules
from necropsy.capture.linux.inspect.interpreter import LinuxFrameReader
from necropsy.capture.linux.inspect.library_versions import python_version
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.supervise.traced_processes import state_of
from necropsy.capture.process.cpython_values import Values
from necropsy.capture.process.held_arrays import MOST, Running
from necropsy.capture.process.python_stacks import MOST_FRAMES, PythonStackError
from necropsy.capture.process.user_values import arrays, own_frame, standing_of
from necropsy.model import Frame, HeldArray, PythonPlace

_READINGS = 6
_MOST_THREADS = 64
_WAITING = frozenset({"connection.py", "popen_fork.py", "queue.py", "selectors.py", "subprocess.py", "threading.py"})
"""Files of the standard library in which a thread waits for another one, or for another process."""


class RunningPython:
    """The interpreter of a living process."""

    def __init__(self, pid: int) -> None:
        """Find it. Raises OSError where the process is gone, PythonStackError where it runs no CPython that we read."""
        self._pid = pid
        self._memory = ProcessMemory(pid)
        try:
            mapped = memory_map.MemoryMap(
                one for one in memory_map.read(pid) if one.path is not None and "python" in one.path
            )
            files = modules.find(pid, mapped, self._memory)
            self._frames = LinuxFrameReader(self._memory, files)
            self._runtime, self._layout = self._frames.located()
            self._minor = int((python_version(self._memory, files) or "").split(".")[1])
        except BaseException:
            self._memory.close()
            raise

    def close(self) -> None:
        """It is not read any more."""
        self._memory.close()

    def line(self) -> PythonPlace | None:
        """The line that it is at: of the program's own code, else of the package that runs. None if it is not clear."""
        seen = self.seen(with_arrays=False)
        return seen.place if seen is not None else None

    def seen(self, *, with_arrays: bool) -> Running | None:
        """The same; ``with_arrays``: and the largest arrays that the variables of the function there hold."""
        before: Running | None = None
        for _ in range(_READINGS):
            now = self._read(with_arrays=with_arrays)
            if now is not None and before is not None and now.place == before.place:
                return Running(now.place, tuple(one for one in now.arrays if one in before.arrays)[:MOST])
            before = now
        return None

    def _read(self, *, with_arrays: bool) -> Running | None:
        with contextlib.suppress(PythonStackError, ArithmeticError, ValueError, LookupError, OSError):
            self._frames.forget()  # a code object may lie where another one was
            state, one = self._of_busiest()
            if one is not None and one.line is not None:
                place = PythonPlace(function=one.function, file=one.source, line=one.line)
                return Running(place, self._arrays(state, one) if with_arrays else ())
        return None

    def _arrays(self, state: int, frame: Frame) -> tuple[HeldArray, ...]:
        with contextlib.suppress(ArithmeticError, ValueError, LookupError, OSError):
            if frame.index < MOST_FRAMES:
                standing = standing_of(frame, self._frames.standing_in(state, frame.index + 1))
                known = Values(self._memory, self._layout, self._minor)
                return arrays(self._memory, known, standing) if standing is not None else ()
        return ()

    def _of_busiest(self) -> tuple[int, Frame | None]:
        """Of the thread that runs: the main one before others, and one that does not wait for another one."""
        states = list(self._frames.threads(self._runtime))[::-1]  # the main thread's comes first
        if len(states) == 1:
            return states[0], self._of(states[0], waiting=True)
        found: list[tuple[int, Frame]] = []
        for state in states[:_MOST_THREADS]:
            one = self._of(state, waiting=False)
            if one is not None and self._runs(state):
                return state, one
            found += [(state, one)] if one is not None else []
        return found[0] if found else (0, None)

    def _runs(self, state: int) -> bool:
        tid = self._frames.native_id(state)
        return tid is not None and state_of(tid) in {"R", "D"}

    def _of(self, state: int, *, waiting: bool) -> Frame | None:
        """A thread's innermost frame of the program's own code, else of any; ``waiting``: also if it waits."""
        frames: list[Frame] = []
        for one in self._frames.frames_of(state):
            if not waiting and not frames and _waits(one):
                return None
            frames.append(one)
            if (own := own_frame((one,))) is not None and not (own.source or "<").startswith("<"):
                return own
        return own_frame(frames) or (frames[0] if frames else None)


def _waits(innermost: Frame) -> bool:
    return (innermost.source or "").rpartition("/")[2] in _WAITING
