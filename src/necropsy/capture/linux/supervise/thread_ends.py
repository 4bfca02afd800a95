"""Stops the threads of a process where they begin to end, while what was on their stacks is still there.

glibc gives a thread's pages back before the thread ends (``advise_stack_range``), so that its end is too late. A
breakpoint in the processor (``hardware_breakpoint``) stops each thread of glibc's before that. It costs the program
something at each switch between threads, most in a virtual machine, so it is taken out where nothing is to be kept.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.linux.inspect import modules
from necropsy.capture.linux.inspect.link_map import auxiliary
from necropsy.capture.linux.supervise import hardware_breakpoint

_END = "__call_tls_dtors"
"""glibc calls it first when a thread ends (2.18 and later), with signals still allowed; hardly anything else does."""
_AT_ENTRY = 9


@dataclass
class ThreadEnds:
    """The breakpoints of one process since its last exec."""

    entry: int | None = None
    """Where it begins to run: its libraries are mapped then."""
    end: int | None = None
    """Where its threads begin to end."""
    _handles: list[int] = field(default_factory=list)

    @property
    def are_waited_for(self) -> bool:
        """The threads that end now are stopped, or those that will be created once the process runs."""
        return bool(self._handles)

    def wait_for_entry(self, pid: int) -> None:
        """The process is stopped at its exec. Raises OSError, ValueError where there can be no breakpoint."""
        entry = auxiliary(Path(f"/proc/{pid}/auxv").read_bytes()).get(_AT_ENTRY)
        if entry is not None and hardware_breakpoint.is_supported():
            self.entry = entry
            self._handles.append(hardware_breakpoint.opened(pid, entry))

    def at_entry(self, pid: int) -> None:
        """The process is stopped there. Raises OSError, ValueError."""
        self.close()
        self.end = modules.address_of(pid, _END, "/libc")
        self.wait(pid)

    def wait(self, pid: int) -> None:
        """From now on all threads of the process are stopped at their ends, new ones too. Raises OSError."""
        if self.end is None or self._handles:
            return
        for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - often; Path takes longer
            with contextlib.suppress(OSError):
                self._handles.append(hardware_breakpoint.opened(int(name), self.end, with_new_threads=True))

    def close(self) -> None:
        """Stop none any more. Who is about to stop still does."""
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()
