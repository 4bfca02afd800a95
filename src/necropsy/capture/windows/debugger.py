"""The debug loop: follows the command and its children, changes nothing, and reads one that is about to die.

Exceptions are handed on to the program's own handlers, its own breakpoints too. No exception of ours may leave the
loop, because a debugger that hangs blocks the program. Should this process die, the system detaches the program, which
runs on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import msgspec

from necropsy.capture.run_options import Cores, RunOptions
from necropsy.capture.windows import debug_events as events
from necropsy.capture.windows import live_target, winapi
from necropsy.capture.windows.crash_reader import Reader
from necropsy.capture.windows.debuggee import Debuggee
from necropsy.capture.windows.live_target import LiveMemory, LiveProcess
from necropsy.capture.windows.log_source import Stderr
from necropsy.capture.windows.process_parameters import ProcessParameters
from necropsy.capture.windows.profile_recorder import ProfileRecorder
from necropsy.formats.minidump_records import UnloadedModule
from necropsy.formats.windows_exits import STACK_OVERFLOW
from necropsy.model import Crash, Exit, Gap, Process

TIMED_OUT = 124
BREAKPOINTS = frozenset({0x80000003, 0x4000001F})
"""STATUS_BREAKPOINT, and STATUS_WX86_BREAKPOINT of a 32-bit process: the loader raises each once, for the debugger."""
_NAMES_A_THREAD = 0x406D1388
"""Since Visual C++ 6 a program tells its debugger the name of a thread so; others see it as handled by the program."""
MOST_DEATHS = 256
_NO_FAILURE = frozenset({0, 0xC000013A})
"""The code of success, and STATUS_CONTROL_C_EXIT: somebody pressed Ctrl-C."""
_NEAR_LIMIT = 64 << 10
_MOST_STACKS = 1000
_QUIET_S = 0.05
_MOST_NEWBORN = 4096
_MOST_STANDING = 8
"""Processes of which it is read where they stand when the time is up."""


class Debugger:
    """Follows one command that was started under it. The same thread must start the command and call ``follow``."""

    def __init__(self, command: tuple[str, ...], log: Stderr, options: RunOptions) -> None:
        self.command = command
        self.processes: list[Debuggee] = []
        """Every process of the run, the command's own first."""
        self.crashes: list[Crash] = []
        self.gaps: list[Gap] = []
        self.cores = Cores(options.core)
        self._always = options.always and options.profile_s is None
        self._profile = ProfileRecorder(options.profile_s) if options.profile_s is not None else None
        self.gaps += self._profile.gaps if self._profile is not None else ()
        self._reader = Reader(log, options, self.cores)
        self._loading: Iterator[object] | None = options.loading()
        self.timed_out = False
        self._alive: dict[int, Debuggee] = {}
        self._until = time.monotonic() + options.timeout_s if options.timeout_s is not None else None

    def follow(self, pid: int) -> int:
        """Handle all events until the command has ended; its exit code. Raises OSError where the system gives none."""
        while True:
            event = events.wait(self._patience())
            self._record()
            if event is None:
                if self._until is not None and time.monotonic() >= self._until:
                    self._stop_all()
                else:
                    self._load()
                continue
            handled = False
            try:
                handled = self._handle(event)
            except Exception as error:  # noqa: BLE001 - the program must go on, whatever is wrong with us
                self._gap("process", f"debugging: {type(error).__name__}: {error}")
            finally:
                events.answer(event, handled=handled)
            if isinstance(event, events.ProcessEnded) and event.pid == pid:
                self.let_go()
                return event.code

    def nouns(self) -> tuple[Process, ...]:
        """The processes in the model.

        A launcher (of a virtual environment, of a console script) only waits for the program that it starts, which may
        be one too, and ends as that ends: where that one died, it is the command.
        """
        chain = self._chain()
        roles: dict[int, str] = {}
        if len(chain) > 1 and chain[-1].crash is not None:
            roles = {id(one): "launcher" for one in chain[:-1]} | {id(chain[-1]): "command"}
        return tuple(
            msgspec.structs.replace(self._noun(one), role=roles.get(id(one), one.role)) for one in self.processes
        )

    def _noun(self, process: Debuggee) -> Process:
        if self._profile is None:
            return process.as_noun()
        children = [one for one in self.processes if one.parent == process.pid]
        return self._profile.described(process, process.as_noun(), children)

    def _chain(self) -> list[Debuggee]:
        """From the started process to the first that died, or else to the last that ended like all before it."""
        chain = self.processes[:1]
        while chain and chain[-1].crash is None:
            children = [one for one in self.processes if one.parent == chain[-1].pid]
            if len(children) != 1 or children[0].code != chain[-1].code or children[0] in chain:
                break
            chain.append(children[0])
        return chain

    def _patience(self) -> float | None:
        """How long to wait for the next event, in seconds."""
        waits = [] if self._until is None else [max(0.0, self._until - time.monotonic())]
        waits += [self._profile.wait_s] if self._profile is not None else []
        left = min(waits, default=None)
        return min(_QUIET_S, left or _QUIET_S) if self._loading is not None else left

    def _record(self) -> None:
        if self._profile is not None:
            try:
                self._profile.look(list(self._alive.values()))
            except Exception as error:  # noqa: BLE001 - the program must go on, whatever is wrong with us
                self._gap("profile", f"{type(error).__name__}: {error}")

    def _load(self) -> None:
        """Load one more piece of what a report will need, while the command is quiet."""
        try:
            done = self._loading is None or next(self._loading, self) is self
        except Exception:  # noqa: BLE001 - the report lists what is missing
            done = True
        if done:
            self._loading = None

    def _gap(self, part: str, why: str) -> None:
        gap = Gap(part=part, why=why)
        if gap not in self.gaps:
            self.gaps.append(gap)

    # ------------------------------------------------------------ events

    def _handle(self, event: events.DebugEvent) -> bool:
        """Handle the event; whether the exception in it is dealt with."""
        if isinstance(event, events.ProcessBegan):
            self._began(event)
            return True
        process = self._alive.get(event.pid)
        if process is None:
            if isinstance(event, events.DllLoaded):
                winapi.close(event.file)
            return False
        if isinstance(event, events.RaisedEvent):
            return self._raised(process, event)
        if isinstance(event, events.DebugString):
            self._said(process, event)
            # As if nobody had heard it: the program's own handlers see it, and so does DebugView.
            return False
        if isinstance(event, events.ThreadBegan):
            process.threads[event.tid] = LiveProcess(event.handle, event.teb, event.start)
        elif isinstance(event, events.ThreadEnded):
            self._measure(process, event.tid)
            if self._profile is not None:
                self._profile.thread_ends(process, event.tid, event.code)
            process.threads.pop(event.tid, None)
        elif isinstance(event, events.DllLoaded):
            self._mapped(process, event.base, event.file)
        elif isinstance(event, events.DllUnloaded):
            path = process.modules.pop(event.base, None)
            process.loads.unmapped(event.base)
            if path is not None:
                process.unloaded.append(UnloadedModule(path, event.base, 0, 0))
        elif isinstance(event, events.ProcessEnded):
            self._ended(process, event)
        elif isinstance(event, events.SystemFailed):
            self._gap("process", f"the system's debugging failed: error {event.error}, kind {event.kind}")
        return True

    def _began(self, event: events.ProcessBegan) -> None:
        is_root = not self.processes
        process = Debuggee(event.pid, event.handle, event.tid, role="command" if is_root else None)
        self.processes.append(process)
        self._alive[event.pid] = process
        process.threads[event.tid] = LiveProcess(event.thread, event.teb, event.start)
        self._mapped(process, event.base, event.file)
        birth = winapi.birth(event.handle)
        if birth is not None:
            process.parent, process.peb = birth.parent, birth.peb
        process.command = self.command if is_root else None
        if self.timed_out:
            # It was being started when all others were ended.
            self._stop(process)

    @staticmethod
    def _mapped(process: Debuggee, base: int, file: winapi.Handle) -> None:
        """Note an image, whose file is ours to close."""
        try:
            path = winapi.final_path(file) or f"<{base:#x}>"
        finally:
            winapi.close(file)
        process.modules[base] = path
        process.loads.mapped(base, path)

    def _said(self, process: Debuggee, event: events.DebugString) -> None:
        size = event.size * (2 if event.wide else 1)
        data = LiveMemory(process.handle).some(event.address, size)
        text = data.decode("utf-16-le" if event.wide else "mbcs", "replace").rstrip("\0")
        # What is said in wide letters and heard by nobody is said again in narrow ones.
        if not event.wide and text == process.last_said:
            return
        process.say(text)

    def _raised(self, process: Debuggee, event: events.RaisedEvent) -> bool:
        if event.first_chance:
            if event.code in BREAKPOINTS and event.code not in process.loader_breaks:
                process.loader_breaks.add(event.code)
                self._look(process)
                return True
            if event.code == _NAMES_A_THREAD:
                _name(process, event)
            elif event.code == STACK_OVERFLOW and process.overflow is None:
                process.overflow, process.overflow_tid = self._reader.read(process, event), event.tid
            return False
        if event.code == STACK_OVERFLOW and process.overflow is not None and process.overflow_tid == event.tid:
            process.crash = process.overflow
        elif len(self.crashes) < MOST_DEATHS:
            process.crash = self._reader.read(process, event)
        return False

    def _look(self, process: Debuggee) -> None:
        """Read a child's command line, now that its loader is ready."""
        if process.command is None and process.peb:
            process.command = ProcessParameters(LiveMemory(process.handle), process.peb).command

    def _measure(self, process: Debuggee, tid: int) -> None:
        """Measure the stack use of a thread that ends, if requested."""
        thread = process.threads.get(tid)
        if self._always and thread is not None and len(process.stacks or ()) < _MOST_STACKS:
            found = live_target.stack_use(tid, thread, process.handle)
            process.stacks = (*(process.stacks or ()), found)

    # ------------------------------------------------------------ ends

    def _ended(self, process: Debuggee, event: events.ProcessEnded) -> None:
        for tid in process.threads:
            self._measure(process, tid)
        if self._profile is not None:
            self._profile.ended(process, event.code)
        process.end(event.code)
        crash = process.crash
        if crash is None and process.overflow is not None and self._died_of_overflow(process, event.code):
            crash = process.crash = process.overflow
        if crash is None and not process.timed_out:
            crash = process.crash = self._reader.at_end(process, event)
            if crash is None and event.code not in _NO_FAILURE and self._may_be_the_command(process):
                process.plain = self._reader.plain(process, event)
        if crash is not None and process.timed_out:
            crash = msgspec.structs.replace(crash, exit=Exit(kind="timeout"))
        if crash is not None:
            self.crashes.append(crash)
        del self._alive[process.pid]
        if process is not self.processes[0]:
            _forget(process)
        else:
            self._settle()

    def _may_be_the_command(self, process: Debuggee) -> bool:
        """It was started first, or is the only child of a process that may be the command's launcher."""
        while process is not self.processes[0]:
            parent = next((one for one in self.processes if one.pid == process.parent), None)
            if parent is None or sum(one.parent == process.parent for one in self.processes) > 1:
                return False
            process = parent
        return True

    def _settle(self) -> None:
        """The command has ended: if nothing died, but it or what it launched ended badly by itself, note that."""
        for one in reversed(self._chain()):
            if one.crash is None and one.plain is not None:
                one.crash = one.plain
                self.crashes.append(one.plain)
                return

    @staticmethod
    def _died_of_overflow(process: Debuggee, code: int) -> bool:
        """Windows shows it by the code. wine ends the thread, and where it is the only one, the process with 0."""
        if code == STACK_OVERFLOW:
            return True
        if not winapi.is_wine() or code != 0:
            return False
        if process.overflow_tid not in process.threads:
            return True
        thread = process.overflow.crashed_thread if process.overflow is not None else None
        stack = thread.stack if thread is not None else None
        if stack is None or stack.low is None or stack.pointer is None:
            return False
        return stack.pointer - stack.low < _NEAR_LIMIT

    def _stop_all(self) -> None:
        """The time is up: read all processes, then end them; their last events come at once."""
        self._until = None
        self.timed_out = True
        standing = list(self._alive.values())
        for process in standing[:_MOST_STANDING]:
            for thread in process.threads.values():
                winapi.call("SuspendThread", thread.handle)
            with contextlib.suppress(Exception):  # to stop them comes first
                process.crash = self._reader.read(process, None)
        for process in standing:
            self._stop(process)

    @staticmethod
    def _stop(process: Debuggee) -> None:
        process.timed_out = True
        winapi.call("TerminateProcess", process.handle, TIMED_OUT)

    def let_go(self, *others: int) -> None:
        """Debug no more: what still runs runs on without us. ``others``: processes that may not be known yet."""
        for pid in {*self._alive, *others}:
            winapi.call("DebugActiveProcessStop", pid)
        # A child that was born just now is debugged too, and stands still until its first event is answered.
        with contextlib.suppress(Exception):  # the command has its end, whatever is wrong with us
            for _ in range(_MOST_NEWBORN):
                event = events.wait(0)
                if event is None:
                    return
                if isinstance(event, (events.ProcessBegan, events.DllLoaded)):
                    winapi.close(event.file)
                events.answer(event, handled=False)
                winapi.call("DebugActiveProcessStop", event.pid)


def _name(process: Debuggee, event: events.RaisedEvent) -> None:
    """``THREADNAME_INFO``: type 0x1000, the name, the thread or -1 for itself."""
    if len(event.parameters) < 3 or event.parameters[0] & 0xFFFFFFFF != 0x1000:
        return
    named = event.parameters[2] & 0xFFFFFFFF
    thread = process.threads.get(event.tid if named == 0xFFFFFFFF else named)
    if thread is not None:
        thread.name = LiveMemory(process.handle).c_string(event.parameters[1], 256)


def _forget(process: Debuggee) -> None:
    """A run may have thousands of children: of one that has ended only the model's record is kept."""
    process.threads.clear()
    process.unloaded.clear()
    process.loads.clear()
    process.overflow = None
    first = next(iter(process.modules.items()), None)
    process.modules = dict([first]) if first is not None else {}
