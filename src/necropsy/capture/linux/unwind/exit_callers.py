"""Who called exit(3): the stack of a thread that is stopped in exit_group(2), and the last message of the caller.

Read in the tracer and within a short time, so without a debugger's library. Programs that run others' code (an
interpreter, a shell, a virtual machine) are left out: it is always their own loop that calls exit.
"""

from __future__ import annotations

import re
import time

from necropsy.capture.linux.inspect import memory_map, registers
from necropsy.capture.linux.inspect.modules import Budget, find
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.stderr import stdio_buffers
from necropsy.capture.linux.unwind import stack_bounds
from necropsy.capture.linux.unwind.unwinder import Unwinder
from necropsy.capture.process import unread_stderr
from necropsy.capture.process.code_constants import Code
from necropsy.capture.run_options import Said
from necropsy.model import Frame, LastWords

_MOST_BYTES = 64 << 20
"""Of files that are read for their symbols."""
_RUNS_OTHERS = re.compile(
    r"/(?:lib(?:python|jvm|node|perl|ruby|R|mono|coreclr|php|julia)\b[^/]*|(?:python|perl|ruby|node|java|php|lua|Rscript|julia"
    r"|dotnet|bash|dash|sh|zsh|fish|ksh|busybox|make|env|timeout|xargs|sudo)[\d.]*)$"
)
_SYSTEM = re.compile(r"(?:lib(?:c|stdc\+\+|gcc_s|pthread|c\+\+|c\+\+abi)|ld(?:-linux[\w-]*|-musl[\w-]*)?)[.\-]")
_EXITS = frozenset({"exit", "_exit", "_Exit", "quick_exit", "__run_exit_handlers", "__GI_exit", "__GI__exit"})
_BEGINS = frozenset({"_start", "__libc_start_main"})


def said_by(pid: int, tid: int, until: float) -> Said | None:
    """What the functions that ended the process said, and who they are; None where exit(3) was not called.

    Raises OSError where the process is gone or unreadable, and ValueError for unexpected memory.
    """
    mapped = memory_map.read(pid)
    if any(one.path is not None and one.executable and _RUNS_OTHERS.search(one.path) for one in mapped):
        return None
    now = registers.read(tid)
    with ProcessMemory(pid) as memory:
        files = find(pid, mapped, memory, budget=Budget(_MOST_BYTES, max(until - time.monotonic(), 0.0)))
        stack = stack_bounds.of_thread(mapped, memory, now, is_main=tid == pid, limit=stack_bounds.soft_limit(pid))
        frames = _of_exit(Unwinder(mapped, memory, files).unwind(now, stack, until).kept())
        if not frames:
            return None
        words: LastWords | None = None
        if time.monotonic() < until:
            buffers = [one.buffer for one in stdio_buffers.streams(memory, files)]
            try:
                words = unread_stderr.last_words(Code(memory, mapped, files.function), frames, stack, buffers)
            except ImportError:  # capstone is not installed
                words = None
    return Said("left", words.text if words is not None else "", callers=frames, where=words.where if words else None)


def _of_exit(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames, if they lead through exit(3) or its kind to a named caller outside the system's libraries.

    A ``main`` that returned is no longer on the stack: then its caller is all that is left of it.
    """
    outside = next((at for at, one in enumerate(frames) if not _SYSTEM.match(_file(one))), None)
    if outside is None or not any(one.function in _EXITS for one in frames[:outside]):
        return ()
    caller = frames[outside]
    trusted = all(one.found_by != "scan" for one in frames[: outside + 1])
    return frames if trusted and caller.function is not None and caller.function not in _BEGINS else ()


def _file(frame: Frame) -> str:
    return (frame.module or "").rsplit("/", 1)[-1]
