"""A tracer of a few lines: it runs a command until it is about to die, and hands the stopped process over.

The tests of the reader use it instead of the supervisor, so that a failure says which of the two is wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from necropsy.capture.linux.supervise.crash_context import CrashContext, FirstChance

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.restype = ctypes.c_long
_LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)

_CONT, _GETREGS, _GETSIGINFO, _SEIZE, _INTERRUPT = 7, 12, 0x4202, 0x4206, 0x4207
_OPTIONS = 0x8 | 0x10 | 0x40 | 0x100000  # CLONE, EXEC, EXIT, EXITKILL: a failed test must leave nothing behind
_EVENT_STOP, _EVENT_EXIT, _EVENT_CLONE = 128, 6, 3
_FATAL = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGSYS,
    signal.SIGTERM,
    signal.SIGQUIT,
}

SHARED = ("-g", "-O0", "-fPIC", "-shared", "-fno-omit-frame-pointer")


def compiler(name: str = "gcc") -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def build(folder: Path, source: str, *flags: str, name: str = "crasher", cxx: bool = False) -> Path:
    """Compile ``source`` and return the file made."""
    file = folder / f"{name}.{'cc' if cxx else 'c'}"
    file.write_text(source)
    out = folder / (f"lib{name}.so" if "-shared" in flags else name)
    command = [compiler("g++" if cxx else "gcc"), "-w", *flags, "-o", str(out), str(file), "-lpthread", "-ldl", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return out


def _ptrace(request: int, tid: int, address: int = 0, data: object = None) -> int:
    result: int = _LIBC.ptrace(request, tid, address, data)
    if result == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _peek(request: int, tid: int, size: int) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    _ptrace(request, tid, 0, ctypes.cast(buffer, ctypes.c_void_p))
    return buffer.raw


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1], 16)
    return 0


def _wait(tid: int) -> tuple[int, int]:
    while True:
        try:
            return os.waitpid(tid, 0x40000000)  # __WALL: threads too
        except InterruptedError:  # noqa: PERF203 - a wait is retried, nothing else
            continue


@contextlib.contextmanager
def dying(
    command: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    stack: int | None = None,
    quiet: bool = True,
    limit_s: float = 120.0,
    **death: Any,
) -> Iterator[CrashContext]:
    """Run ``command`` until its fatal signal; yield the ``CrashContext`` with every thread stopped; kill it afterwards."""
    go_read, go_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go_write)
            os.read(go_read, 1)
            if stack is not None:
                import resource

                resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.getrlimit(resource.RLIMIT_STACK)[1]))
            if quiet:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(null, 2)
            os.execvpe(os.fspath(command[0]), [os.fspath(part) for part in command], dict(env or os.environ))
        finally:
            os._exit(127)
    os.close(go_read)
    try:
        _ptrace(_SEIZE, pid, 0, ctypes.c_void_p(_OPTIONS))
        os.write(go_write, b"x")
        os.close(go_write)
        yield _run(pid, time.monotonic() + limit_s, death)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        reap(pid)


def reap(pid: int, limit_s: float = 20.0) -> None:
    """Let every thread of the killed process go, so that none stays a zombie."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    os.waitpid(int(tid), 0x40000000 | os.WNOHANG)
                with contextlib.suppress(OSError):
                    _ptrace(_CONT, int(tid))
        try:
            done, status = os.waitpid(pid, 0x40000000 | os.WNOHANG)
        except ChildProcessError:
            return
        if done and not os.WIFSTOPPED(status):
            return
        time.sleep(0.001)
    raise AssertionError(f"process {pid} does not go away")


def _run(pid: int, deadline: float, extra: dict[str, Any]) -> CrashContext:
    threads = {pid}
    stopped: set[int] = set()
    first: FirstChance | None = None
    while time.monotonic() < deadline:
        tid, status = 0, 0
        for candidate in tuple(threads):
            try:
                tid, status = os.waitpid(candidate, 0x40000000 | os.WNOHANG)
            except ChildProcessError:
                threads.discard(candidate)
                continue
            if tid:
                break
        if not tid:
            time.sleep(0.0005)
            continue
        if not os.WIFSTOPPED(status):
            threads.discard(tid)
            if tid == pid:
                raise AssertionError(f"the command did not die of a signal: status {status:#x}")
            continue
        event, signo = status >> 16, os.WSTOPSIG(status)
        if event == _EVENT_CLONE:
            message = ctypes.c_ulong()
            _ptrace(0x4201, tid, 0, ctypes.cast(ctypes.byref(message), ctypes.c_void_p))
            threads.add(message.value)
            _ptrace(_CONT, tid)
        elif event:
            _ptrace(_CONT, tid)
        elif signo in _FATAL:
            info, registers = _peek(_GETSIGINFO, tid, 128), _peek(_GETREGS, tid, 216)
            caught = _status(pid, "SigCgt") >> (signo - 1) & 1
            ignored = _status(pid, "SigIgn") >> (signo - 1) & 1
            if ignored and struct.unpack_from("i", info, 8)[0] <= 0:
                _ptrace(_CONT, tid, 0, ctypes.c_void_p(signo))
            elif caught:
                first = FirstChance(tid, info, registers)
                _ptrace(_CONT, tid, 0, ctypes.c_void_p(signo))
            else:
                stopped.add(tid)
                _freeze(pid, threads, stopped)
                return CrashContext(
                    pid=pid,
                    tid=tid,
                    signo=signo,
                    siginfo=info,
                    threads=tuple(sorted(stopped)),
                    first_chance=first,
                    **extra,
                )
        else:
            _ptrace(_CONT, tid, 0, ctypes.c_void_p(signo))
    raise AssertionError("the command did not die in time")


def _freeze(pid: int, threads: set[int], stopped: set[int]) -> None:
    for tid in (int(one) for one in os.listdir(f"/proc/{pid}/task")):
        threads.add(tid)
        if tid in stopped:
            continue
        try:
            _ptrace(_INTERRUPT, tid)
        except OSError as error:
            if error.errno == errno.ESRCH:
                continue
            raise
        _, status = _wait(tid)
        if os.WIFSTOPPED(status):
            stopped.add(tid)
