"""Start of a Python interpreter's finalization: an uncaught exception has just been printed.

A breakpoint on ``Py_FinalizeEx`` stops it there (``hardware_breakpoint``), with the exception still in ``sys``. An
interpreter that is a library is not mapped yet at exec: a first breakpoint then waits at the program's entry point,
where the dynamic linker has mapped it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.linux.inspect import modules
from necropsy.capture.linux.inspect.link_map import auxiliary
from necropsy.capture.linux.supervise import hardware_breakpoint, ptrace

_FUNCTION = "Py_FinalizeEx"
_AT_ENTRY = 9
_MOST = 64
"""Processes that are waited for at a time."""


@dataclass
class Finalizations:
    """Where processes that run Python are waited for."""

    _handles: dict[int, int] = field(default_factory=dict)
    """Of each process, the breakpoint."""
    _beginnings: dict[int, int] = field(default_factory=dict)
    """Of processes that have not begun: the address at which they do."""

    def expect(self, pid: int) -> None:
        """The process has executed Python. Where it cannot be waited for, nothing happens; raises nothing."""
        self._forget(pid)
        for gone in [one for one in self._handles if not Path(f"/proc/{one}").exists()]:
            self._forget(gone)
        if len(self._handles) >= _MOST or not hardware_breakpoint.is_supported():
            return
        with contextlib.suppress(OSError, ValueError):
            address = modules.address_of(pid, _FUNCTION, "python")
            if address is None:
                address = auxiliary(Path(f"/proc/{pid}/auxv").read_bytes()).get(_AT_ENTRY)
                if address is None:
                    return
                self._beginnings[pid] = address
            self._handles[pid] = hardware_breakpoint.opened(pid, address)

    def waits_at(self, pid: int, address: int) -> bool:
        """The process will be stopped at this address, where it begins."""
        return self._beginnings.get(pid) == address

    def waits_for(self, pid: int) -> bool:
        """The process will be stopped when its interpreter begins to end."""
        return pid in self._handles

    def has_begun(self, pid: int, tid: int) -> bool:
        """Thread ``tid`` is stopped at a breakpoint: its interpreter is about to end. Raises nothing."""
        address = None
        with contextlib.suppress(OSError):
            address = hardware_breakpoint.address_of(ptrace.getsiginfo(tid))
        first = self._beginnings.get(pid)
        self._forget(pid)
        if address is None or address != first:
            return address is not None
        with contextlib.suppress(OSError, ValueError):
            found = modules.address_of(pid, _FUNCTION, "python")
            if found is not None:
                self._handles[pid] = hardware_breakpoint.opened(pid, found)
        return False

    def _forget(self, pid: int) -> None:
        self._beginnings.pop(pid, None)
        handle = self._handles.pop(pid, None)
        if handle is not None:
            os.close(handle)
