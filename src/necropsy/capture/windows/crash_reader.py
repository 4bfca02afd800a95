"""From a process that stands still to its ``Crash``. Nothing here raises: the process must die its own death."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

import msgspec

from necropsy.capture.run_options import Cores, RunOptions
from necropsy.capture.windows import (
    crash_builder,
    dbghelp,
    dll_load_failures,
    live_target,
    minidump_writer,
    missing_dll,
    winapi,
)
from necropsy.capture.windows.debug_events import ProcessEnded, RaisedEvent
from necropsy.capture.windows.debuggee import Debuggee, exit_of, now
from necropsy.capture.windows.dll_load_failures import ReadLoad
from necropsy.capture.windows.live_target import LiveMemory, LiveRegions
from necropsy.capture.windows.log_source import Stderr
from necropsy.capture.windows.process_parameters import ProcessParameters
from necropsy.capture.windows.target import ProcessSnapshot
from necropsy.formats import log
from necropsy.formats.minidump_records import ExceptionRecord, UnloadedModule
from necropsy.formats.windows_exits import end_of, fault_of
from necropsy.model import Crash, Gap, Message

TOLD_DEBUGGER = "OutputDebugString"


@dataclass(frozen=True)
class Reader:
    """Reads the dead of one run."""

    log: Stderr
    options: RunOptions
    cores: Cores
    images: dict[str, ReadLoad | None] = field(default_factory=dict)
    """What was read of libraries, by their paths."""

    def read(self, process: Debuggee, event: RaisedEvent | None) -> Crash:
        """What it shows: at the exception ``event``, or where it stands."""
        at = now()
        try:
            with contextlib.ExitStack() as stack:
                stopped = self.stopped(process, event, at)
                try:
                    symbols = stack.enter_context(dbghelp.Symbols(process.handle, stopped.modules))
                    stopped = replace(stopped, symbols=symbols.at)
                except OSError as error:
                    gap = Gap(part="symbols", why=f"dbghelp does not start, so no PDB was read: {error}")
                    stopped = replace(stopped, gaps=(*stopped.gaps, gap))
                crash = crash_builder.crash_of(stopped)
        except Exception as error:  # noqa: BLE001 - a defect in reading must cost the report, not the process
            crash = _minimal(process, event, at, Gap(part="process", why=f"{type(error).__name__}: {error}"))
        return crash if event is None else self._keep(process, event, crash)

    def _keep(self, process: Debuggee, event: RaisedEvent, crash: Crash) -> Crash:
        """Write the minidump; where that fails, the crash says so."""
        try:
            core = self.cores.new()
            if core is not None:
                minidump_writer.write(process, event, core.file, whole=self.cores.full_memory)
                self.cores.keep(process.pid, crash.at, core)
        except Exception as error:  # noqa: BLE001 - as above
            gap = Gap(part="core", why=f"no minidump was written: {error}")
            return msgspec.structs.replace(crash, gaps=(*crash.gaps, gap))
        return crash

    def stopped(self, process: Debuggee, event: RaisedEvent | None, at: str) -> ProcessSnapshot:
        """The process as ``crash_builder`` takes it."""
        memory = LiveMemory(process.handle)
        is_wow64 = winapi.is_wow64(process.handle)
        crashed = event.tid if event is not None else process.main_tid
        threads = live_target.threads(process.threads, crashed, is_wow64=is_wow64)
        exception = None
        if event is not None:
            context = next((one.context for one in threads if one.tid == event.tid), b"")
            exception = ExceptionRecord(
                event.code, event.flags, event.address, event.parameters, event.tid, context, event.record
            )
        tail, gaps = self.log.tail()
        if tail is None and process.said:
            tail = process.said
            gaps = (Gap(part="log_tail", why=f"{gaps[0].why}; shown is what it told the debugger ({TOLD_DEBUGGER})"),)
        failed, unread = self._failed_loads(process) if event is not None else ((), ())
        parameters = ProcessParameters(memory, process.peb) if process.peb else None
        return ProcessSnapshot(
            pid=process.pid,
            exception=exception,
            threads=threads,
            modules=live_target.modules(process.modules, memory),
            memory=memory,
            system=live_target.system(is_wow64=is_wow64),
            regions=LiveRegions(process.handle),
            unloaded=self._unloaded(process),
            main_tid=process.main_tid,
            at=at,
            messages=(*_messages(process, tail), *failed),
            log_tail=tail,
            variables=parameters.variables if parameters is not None else None,
            command=process.command,
            here=True,
            gaps=(*gaps, *unread),
            budget_s=self.options.budget_s,
        )

    def at_end(self, process: Debuggee, event: ProcessEnded) -> Crash | None:
        """The death that comes without an exception: the loader gave up. None where the process merely ended."""
        if event.code not in missing_dll.GIVES_UP:
            return None
        tail, gaps = self.log.tail()
        try:
            missing = missing_dll.missing(process)
        except Exception as error:  # noqa: BLE001 - as above
            missing, gaps = (), (*gaps, Gap(part="modules", why=f"{type(error).__name__}: {error}"))
        return Crash(
            pid=process.pid,
            at=now(),
            exit=exit_of(event.code),
            log_tail=tail,
            messages=(*_messages(process, tail), *missing),
            gaps=gaps,
        )

    def plain(self, process: Debuggee, event: ProcessEnded) -> Crash | None:
        """It ended by itself, badly. None where no load had failed: then its code and its log are all that there is."""
        failed, unread = self._failed_loads(process)
        if not failed:
            return None
        tail, gaps = self.log.tail()
        return Crash(
            pid=process.pid,
            at=now(),
            exit=exit_of(event.code),
            log_tail=tail,
            messages=(*_messages(process, tail), *failed),
            gaps=(*gaps, *unread),
        )

    def _unloaded(self, process: Debuggee) -> tuple[UnloadedModule, ...]:
        """What was unloaded, with the sizes, which only the files have by now."""
        for path in {one.path for one in process.unloaded} - self.images.keys():
            with dll_load_failures.opened(path) as image:
                self.images[path] = ReadLoad.of(image) if image is not None else None
        read = [(one, self.images.get(one.path)) for one in process.unloaded]
        return tuple(replace(one, size=image.size) if image is not None else one for one, image in read)

    def _failed_loads(self, process: Debuggee) -> tuple[tuple[Message, ...], tuple[Gap, ...]]:
        """The libraries that it failed to load, and what of that could not be read."""
        try:
            failed, complete = missing_dll.failed(process, self.images)
        except Exception as error:  # noqa: BLE001 - as above
            return (), (Gap(part="modules", why=f"loads that failed: {type(error).__name__}: {error}"),)
        why = "there was no time to look at all libraries for loads that failed"
        return failed, () if complete else (Gap(part="modules", why=why),)


def _minimal(process: Debuggee, event: RaisedEvent | None, at: str, gap: Gap) -> Crash:
    if event is None:
        return Crash(pid=process.pid, at=at, gaps=(gap,))
    subcode = event.parameters[0] if event.parameters else None
    end = end_of(event.code, f"exception code 0x{event.code:08X}", subcode)
    return Crash(pid=process.pid, at=at, exit=end, fault=fault_of(event.code, event.parameters), gaps=(gap,))


def _messages(process: Debuggee, tail: str | None) -> tuple[Message, ...]:
    said = process.said
    found = log.scan(tail) if tail is not None and tail != said else ()
    kinds = {one.kind for one in found}
    return (*found, *(one for one in log.scan(said, where=TOLD_DEBUGGER) if one.kind not in kinds))
