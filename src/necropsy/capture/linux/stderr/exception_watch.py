"""Looks at interpreters when the kernel signals that an exception may be printed.

For the ordinary user, whom the kernel does not show what is written (``bpf_probe``). Python prints an uncaught
exception before it takes the interpreter down, and meanwhile the exception can still be read. inotify(7) signals that
moment: stderr is written to (a pipe or a terminal that the user may read), and the program's own file is opened again,
for the lines of the traceback. The thread is stopped for the milliseconds that reading takes, if there is anything to
read. Where the look comes too late nothing is known, and nothing is reported; ``Finalizations`` comes in time where the
processor has breakpoints.

The watch is a descriptor of this process, and gone with it. A program that writes without end is looked at ``_MOST``
times at once, then ``_A_SECOND`` times a second. Between two looks the kernel does not watch stderr: where it does, a
write takes more than twice the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import os
import stat
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from necropsy.capture.linux.inspect import modules
from necropsy.capture.linux.inspect.link_map import auxiliary
from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import hardware_breakpoint, ptrace
from necropsy.capture.linux.supervise.event_loop import WAKES
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.capture.run_options import Said
from necropsy.formats.processors import BY_NAME

if TYPE_CHECKING:  # loaded when it rings for the first time
    from necropsy.capture.linux.inspect.interpreter import InterpreterState

_MOST, _A_SECOND = 50.0, 10.0
_LENT, _LENT_SHARE = 0.3, 0.05
"""So long the ends of the command's children may be held up together: seconds, and a share of the time that passed."""
_MOST_PROCESSES = 8
"""Processes that are looked at when it rings."""
_LONGEST_WAIT_S = 60.0
_IN_MODIFY, _IN_OPEN, _IN_IGNORED, _IN_ONESHOT = 0x2, 0x20, 0x8000, 0x80000000
_F_SETSIG, _F_SETOWN_EX, _F_OWNER_TID = 10, 15, 0
_EVENT = struct.Struct("<iIII")
_SLICE_NS = 100_000
_FINALIZES = "Py_FinalizeEx"
_AT_ENTRY = 9
_MOST_AWAITED = 64
"""Processes whose interpreters are waited for at a time."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Finalizations:
    """Waits for interpreters that begin to end: an uncaught exception has just been printed, and is in ``sys`` still.

    A breakpoint on ``Py_FinalizeEx`` stops them there. An interpreter that is a library is not mapped yet at exec: a
    first breakpoint then waits at the program's entry point, where the dynamic linker has mapped it.
    """

    _handles: dict[int, int] = field(default_factory=dict)
    """Of each process, the breakpoint."""
    _beginnings: dict[int, int] = field(default_factory=dict)
    """Of processes that have not begun: the address at which they do."""

    def expect(self, pid: int) -> None:
        """The process has executed Python. Where it cannot be waited for, nothing happens; raises nothing."""
        self._forget(pid)
        for gone in [one for one in self._handles if not Path(f"/proc/{one}").exists()]:
            self._forget(gone)
        if len(self._handles) >= _MOST_AWAITED or not hardware_breakpoint.is_supported():
            return
        with contextlib.suppress(OSError, ValueError):
            address = modules.address_of(pid, _FINALIZES, "python")
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
            found = modules.address_of(pid, _FINALIZES, "python")
            if found is not None:
                self._handles[pid] = hardware_breakpoint.opened(pid, found)
        return False

    def _forget(self, pid: int) -> None:
        self._beginnings.pop(pid, None)
        handle = self._handles.pop(pid, None)
        if handle is not None:
            os.close(handle)


@dataclass
class _Known:
    """What is known of a living process: its interpreter since its last exec."""

    executions: int
    interpreter: InterpreterState

    def forget(self) -> None:
        self.interpreter.close()


@dataclass
class ExceptionWatch:
    """Rings by the signal ``WAKES`` to the thread that opened it."""

    handle: int = -1
    _known: dict[int, _Known] = field(default_factory=dict)
    _others: dict[int, int] = field(default_factory=dict)
    """Processes that run something else: how many programs they had executed."""
    _ends: Finalizations = field(default_factory=Finalizations)
    _begun: float = field(default_factory=time.monotonic)
    _lent: float = 0.0
    """Seconds for which ends of the command's children were held up."""
    _left: float = _MOST
    _at: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, log: Log) -> ExceptionWatch:
        """One that rings where the log would be read if it could be; else a mute one."""
        return cls(_opened() if log.is_wanted else -1)

    @property
    def wait_s(self) -> float | None:
        """How long to wait before ``look`` is called, if it does not ring; None where it cannot."""
        if self.handle < 0:
            return None
        return _LONGEST_WAIT_S if self._left >= 1 else (1 - self._left) / _A_SECOND

    def follow(self, process: Traced) -> None:
        """It has executed something: ring for the file that it runs, if that is Python's."""
        if self.handle >= 0 and _is_named_python(process):
            # It takes longer than Python takes to print an exception: now, while the interpreter starts.
            for name in ("inspect.interpreter", "supervise.brief_stop"):
                with contextlib.suppress(ImportError):
                    importlib.import_module(f"necropsy.capture.linux.{name}")
            self._ends.expect(process.pid)
            path = _program_of(process)
            if path is not None:
                _LIBC.inotify_add_watch(self.handle, path, _IN_OPEN)

    def noticed(self, process: Traced, tid: int) -> int:
        """It is stopped where its interpreter begins to end, or where that can be told: what it shows then. ``tid``."""
        if self._ends.has_begun(process.pid, tid):
            with contextlib.suppress(OSError):
                self._look_at(process, at_once=True)
        return tid

    def waits_at(self, pid: int, address: int) -> bool:
        """``noticed`` is to be called where the process is stopped at a breakpoint at this address."""
        return self._ends.waits_at(pid, address)

    def look(self, living: Iterable[Traced]) -> None:
        """If it has rung: look at those that may have written. An event that was not taken silences it until then."""
        if self.handle < 0:
            return
        now = time.monotonic()
        self._left, self._at = min(self._left + (now - self._at) * _A_SECOND, _MOST), now
        if self._left < 1:
            return
        try:
            masks = list(_masks(os.read(self.handle, 4096)))
        except OSError:  # it has not rung
            return
        if any(mask & (_IN_MODIFY | _IN_IGNORED) for mask in masks):
            _watch_stderr(self.handle)
        if not any(mask & (_IN_MODIFY | _IN_OPEN) for mask in masks):
            return
        self._left -= 1
        at_once = self._left > _MOST / 2 or any(mask & _IN_OPEN for mask in masks)
        alive = {one.pid: one for one in living}
        for pid in self._known.keys() - alive.keys():
            self._known.pop(pid).forget()
        # Those that are known to run Python, the last that started before the others; then all others.
        latest = [*alive.values()][::-1]
        chosen = sorted(latest, key=lambda one: one.pid not in self._known and not _is_named_python(one))
        for process in chosen[:_MOST_PROCESSES]:
            with contextlib.suppress(OSError):  # it is gone, or may not be read
                self._look_at(process, at_once=at_once)

    def last_look(self, process: Traced, tid: int, code: int, *, alone: bool) -> None:
        """It is stopped at its end: what its interpreter shows still, or what else it has left in its memory."""
        is_child = process.role != "command"
        if code and _is_named_python(process):
            from necropsy.capture.linux.inspect import refused_ops

            process.libraries = refused_ops.mapped(process.pid)
        if not code or (is_child and self.handle < 0) or (process.said is not None and process.said.kind == "uncaught"):
            return
        begun = time.monotonic()
        if is_child and self._lent > _LENT + (begun - self._begun) * _LENT_SHARE:
            return
        self._read_at_end(process, tid, code, alone=alone)
        if is_child:
            self._lent += time.monotonic() - begun

    def _read_at_end(self, process: Traced, tid: int, code: int, *, alone: bool) -> None:
        from necropsy.capture.linux.stderr import exit_messages

        known = self._known.get(process.pid)
        if known is not None and known.executions == process.executions:
            # What it was doing before is over, unless it does it still.
            process.said = known.interpreter.said(process.said) or _without_frames(process.said)
        if process.said is None or not process.said.text:
            left = exit_messages.left_in(process.pid, tid, code, alone=alone)
            if left is not None:
                process.said = replace(left, frames=process.said.frames if process.said is not None else ())

    def _look_at(self, process: Traced, *, at_once: bool) -> None:
        known = self._known.get(process.pid)
        if known is not None and known.executions != process.executions:
            self._known.pop(process.pid).forget()
            known = None
        if known is None and (self._others.get(process.pid) == process.executions or not _may_be_python(process)):
            self._others[process.pid] = process.executions
            return
        if known is not None and not at_once and not known.interpreter.has_raised():
            process.said = known.interpreter.said(process.said)
            return
        # One that waits in a system call other than for a lock prints nothing.
        from necropsy.capture.linux.supervise.brief_stop import stopped  # few processes come so far

        with stopped(process.pid):
            if known is None:
                from necropsy.capture.linux.inspect.interpreter import InterpreterState

                interpreter = InterpreterState.find(process.pid)
                if interpreter is None:
                    return
                known = self._known[process.pid] = _Known(process.executions, interpreter)
            process.said = known.interpreter.said(process.said)


def _masks(events: bytes) -> Iterator[int]:
    at = 0
    while at + _EVENT.size <= len(events):
        _, mask, _, length = _EVENT.unpack_from(events, at)
        yield mask
        at += _EVENT.size + length


def _without_frames(said: Said | None) -> Said | None:
    return replace(said, frames=()) if said is not None else None


def _opened() -> int:
    handle = int(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if handle < 0:
        return -1
    try:
        fcntl.fcntl(handle, _F_SETOWN_EX, struct.pack("ii", _F_OWNER_TID, threading.get_native_id()))
        fcntl.fcntl(handle, _F_SETSIG, int(WAKES))
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_ASYNC)
        _be_quick()
        _watch_stderr(handle)
    except OSError:
        os.close(handle)
        return -1
    return handle


def _watch_stderr(handle: int) -> None:
    """Signal the next write only.

    The kernel reports the write first, and the watch's end (``_IN_IGNORED``) a little later: a call between the two has
    no effect, so it is repeated after the second. Raises OSError without stderr.
    """
    if stat.S_ISFIFO(os.fstat(2).st_mode) or os.isatty(2):  # a device such as /dev/null rings for everybody
        _LIBC.inotify_add_watch(handle, b"/proc/self/fd/2", ctypes.c_uint32(_IN_MODIFY | _IN_ONESHOT))


def _be_quick() -> None:
    """Ask for short turns at the processor, which come sooner: Linux 6.12 and later (sched_setattr(2))."""
    processor = BY_NAME.get(os.uname().machine)
    if processor is not None:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        wanted = struct.pack("<IIQiIQQQ", 48, 0, 0, nice, 0, _SLICE_NS, 0, 0)
        _LIBC.syscall(ctypes.c_long(processor.calls["sched_setattr"]), ctypes.c_long(0), wanted, ctypes.c_long(0))


def _program_of(process: Traced) -> bytes | None:
    """The file that the interpreter was given to run, as its command line names it."""
    words = iter((process.command or ())[1:])
    for word in words:
        if word in {"-W", "-X"}:
            next(words, None)
        elif word == "-m":
            module = next(words, "").replace(".", "/")
            folder = f"/proc/{process.pid}/cwd"
            files = (Path(folder, f"{module}.py"), Path(folder, module, "__main__.py"))
            return next((os.fsencode(one) for one in files if one.is_file()), None)
        elif word in {"-", "-c"}:
            return None
        elif not word.startswith("-"):
            return os.fsencode(word if word.startswith("/") else f"/proc/{process.pid}/cwd/{word}")
    return None


def _is_named_python(process: Traced) -> bool:
    return "python" in (process.executable or "").rpartition("/")[2]


def _may_be_python(process: Traced) -> bool:
    if _is_named_python(process):
        return True
    try:
        with open(f"/proc/{process.pid}/maps", "rb") as mapped:  # noqa: PTH123 - it rings often
            return b"python" in mapped.read()
    except OSError:
        return False
