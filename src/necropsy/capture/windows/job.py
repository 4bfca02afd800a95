"""A job object, by which a command and all that it starts can be ended at once.

It is for runs with a time limit that are not debugged: a debugger knows every child itself. Nothing is ended when the
job's handle is closed, so that a supervisor that dies does not take the program with it; and a process may leave the
job, as without it. The workers of ``contain`` are the other case: each ends with its caller, alone.
"""

from __future__ import annotations

import ctypes
import struct

from necropsy.capture.windows import winapi

_EXTENDED_LIMITS = 9
"""``JobObjectExtendedLimitInformation``."""
_SIZE, _FLAGS, _MEMORY = 144, 16, 112
"""``JOBOBJECT_EXTENDED_LIMIT_INFORMATION`` of x64, with where ``LimitFlags`` and ``ProcessMemoryLimit`` lie in it."""
_PROCESS_MEMORY, _BREAKAWAY_OK, _BREAKS_AWAY, _ENDS_AT_CLOSE = 0x100, 0x800, 0x1000, 0x2000


class JobObject:
    """A command and its descendants."""

    def __init__(self, process: winapi.Handle, *, ends_with_us: bool = False, memory: int | None = None) -> None:
        """Add a process that was started suspended. Raises OSError where the system refuses.

        ``ends_with_us``: it is ended when this process ends or closes the job; its children are not in the job.
        ``memory``: bytes that it may commit.
        """
        self._handle = winapi.call("CreateJobObjectW", None, None)
        limits = ctypes.create_string_buffer(_SIZE)
        flags = _BREAKS_AWAY | _ENDS_AT_CLOSE if ends_with_us else _BREAKAWAY_OK
        if memory is not None:
            flags |= _PROCESS_MEMORY
            struct.pack_into("<Q", limits, _MEMORY, memory)
        struct.pack_into("<I", limits, _FLAGS, flags)
        winapi.call("SetInformationJobObject", self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), _SIZE)
        if not self._handle or not winapi.call("AssignProcessToJobObject", self._handle, process):
            raise winapi.failure()

    def end(self, code: int) -> None:
        """End all of them, with this exit code."""
        winapi.call("TerminateJobObject", self._handle, code)

    def close(self) -> None:
        """Give up the handle."""
        winapi.close(self._handle)
