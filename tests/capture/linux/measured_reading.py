"""Read the death of a command in a process of its own and say what that took: ``measured_reading.py OPTIONS COMMAND...``.

OPTIONS is JSON: ``budget_s``, ``core`` (a path), ``full_memory``, ``twice``, ``s_per_mib`` (a clock that goes on only by
what is read, so that time is up at the same place on any machine). The answer is JSON: ``peak``, bytes of memory
above what the process had before, ``read``, bytes that were read of the command's memory, and what was found. With
``twice`` it is read again frame by frame, and ``same`` says whether all threads came out the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import harness

from necropsy.capture.linux.inspect import crash_builder, process_memory
from necropsy.capture.linux.supervise import crash_capture
from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.capture.process import cfi_unwinder, recursion_skip
from necropsy.model import Crash

_CLONE = 3


def _memory(field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) << 10


def _run(pid: int, deadline: float, extra: dict[str, Any]) -> CrashContext:
    """As ``harness._run``, in one wait for all threads: there may be thousands."""
    while True:
        tid, status = harness._wait(-1)
        if not os.WIFSTOPPED(status):
            assert tid != pid, f"the command did not die of a signal: status {status:#x}"
            continue
        signo = os.WSTOPSIG(status)
        if status >> 16 or signo not in harness._FATAL:
            harness._ptrace(harness._CONT, tid, 0, ctypes.c_void_p(0 if status >> 16 else signo))
            continue
        info = harness._peek(harness._GETSIGINFO, tid, 128)
        threads = {int(one) for one in os.listdir(f"/proc/{pid}/task")}
        for other in threads - {tid}:
            harness._ptrace(harness._INTERRUPT, other)
        stopped = {tid}
        while stopped != threads:
            stopped.add(harness._wait(-1)[0])
        return CrashContext(pid=pid, tid=tid, signo=signo, siginfo=info, threads=tuple(sorted(threads)), **extra)


def _counting(some: Callable[..., bytes], counted: list[int]) -> Callable[..., bytes]:
    def read(self: object, address: int, size: int) -> bytes:
        data = some(self, address, size)
        counted.append(len(data))
        return data

    return read


def _clock(s_per_mib: float | None, counted: list[int]) -> contextlib.AbstractContextManager[object]:
    if s_per_mib is None:
        return contextlib.nullcontext()
    s_per_byte = s_per_mib / (1 << 20)

    def monotonic() -> float:
        return sum(counted) * s_per_byte

    return mock.patch.object(time, "monotonic", monotonic)


def _frame_by_frame(death: CrashContext) -> Crash:
    """What is found where nothing is taken together."""
    one_by_one = mock.patch.object(cfi_unwinder.CfiUnwinder, "_fast", return_value=None)
    no_windows = mock.patch.object(recursion_skip.StackPeriod, "unit", return_value=None)
    with one_by_one, no_windows:
        return crash_builder.capture(death)


def _told(crash: Crash) -> dict[str, Any]:
    thread = crash.crashed_thread
    assert thread is not None
    frames = thread.frames or ()
    return {
        "threads": len(crash.threads or ()),
        "total": thread.frames_total,
        "estimate": thread.frames_estimate,
        "complete": thread.complete,
        "kept": len(frames),
        "first": frames[0].function if frames else None,
        "functions": [frame.function for frame in frames[-4:]],
        "folds": [[one.period, one.times, one.bytes_per_period, list(one.functions)] for one in thread.folds],
        "gaps": [f"{gap.part}: {gap.why}" for gap in crash.gaps if gap.part != "messages"],
    }


def main() -> None:
    options, command = json.loads(sys.argv[1]), sys.argv[2:]
    harness._run = _run
    crash_capture.preload()
    counted: list[int] = []
    process_memory.ProcessMemory.some = _counting(process_memory.ProcessMemory.some, counted)  # type: ignore[method-assign]  # it counts
    extra: dict[str, Any] = {
        "budget_s": options.get("budget_s", 3600.0),
        "full_memory": options.get("full_memory", False),
    }
    if "core" in options:
        extra["core"] = Path(options["core"]).open("wb")  # noqa: SIM115 - until this process ends
    with harness.dying(command, **extra) as death:
        Path("/proc/self/clear_refs").write_text("5")
        before, started = _memory("VmRSS"), time.monotonic()
        with _clock(options.get("s_per_mib"), counted):
            crash = crash_builder.capture(death)
        took = time.monotonic() - started
        said = {"peak": _memory("VmHWM") - before, "read": sum(counted), "took_s": took, **_told(crash)}
        if options.get("twice"):
            said["same"] = _frame_by_frame(death).threads == crash.threads
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
