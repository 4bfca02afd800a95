"""A job object, by which a command and all that it starts can be ended at once.

It is made for runs with a time limit that are not debugged: a debugger knows every child itself. Nothing is ended when
the job's handle is closed, so that a supervisor that dies does not take the program with it; and who wants to leave
the job may, as without it.
"""

from __future__ import annotations

import ctypes
import struct

from necropsy.capture.windows import winapi

_EXTENDED_LIMITS = 9
"""``JobObjectExtendedLimitInformation``."""
_SIZE = 144
"""``JOBOBJECT_EXTENDED_LIMIT_INFORMATION`` of x64; ``LimitFlags`` lies 16 bytes into it."""
_BREAKAWAY_OK = 0x800


class JobObject:
    """A command and its descendants."""

    def __init__(self, process: winapi.Handle) -> None:
        """Take a process in that was started suspended.

        Raises:
            OSError: the system refuses.

        """
        self._handle = winapi.call("CreateJobObjectW", None, None)
        limits = ctypes.create_string_buffer(_SIZE)
        struct.pack_into("<I", limits, 16, _BREAKAWAY_OK)
        winapi.call("SetInformationJobObject", self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), _SIZE)
        if not self._handle or not winapi.call("AssignProcessToJobObject", self._handle, process):
            raise winapi.failure()

    def end(self, code: int) -> None:
        """End all of them, with this exit code."""
        winapi.call("TerminateJobObject", self._handle, code)
