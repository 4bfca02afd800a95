"""What of ptrace and BPF this process may use: tried on a child of its own, which does nothing else."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from necropsy.capture.linux.stderr import bpf_probe
from necropsy.capture.linux.supervise import ptrace


def why_untraceable() -> str | None:
    """Why this process cannot trace a child; None if it can, or if it is traced, as a child then is too."""
    if _is_traced():
        return None
    try:
        reader, writer = os.pipe()
        child = os.fork()
    except OSError:
        return None
    if child == 0:
        _wait_for(reader, writer)
    try:
        ptrace.seize(child, ptrace.EXITKILL)
    except OSError as error:
        return os.strerror(error.errno or errno.EPERM)
    finally:
        os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    return None


def _wait_for(reader: int, writer: int) -> NoReturn:
    try:
        os.close(writer)
        os.read(reader, 1)
    finally:
        os._exit(0)


def _is_traced() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "\nTracerPid:\t0\n" not in status


def is_filtered() -> bool:
    """A seccomp filter holds for this process (proc(5))."""
    try:
        return "\nSeccomp:\t2\n" in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def why_no_probe() -> str | None:
    """Why stderr on a terminal or a pipe cannot be read along by the kernel's probe; None if it can."""
    if ptrace.kernel_version() < (5, 13):
        return "this kernel is older than 5.13"
    if not bpf_probe.is_allowed():
        return "it takes CAP_BPF and CAP_PERFMON, on x86-64"
    try:
        opened = bpf_probe.BpfProbe.open()
    except OSError as error:
        return error.strerror or str(error)
    opened.close()
    return None
