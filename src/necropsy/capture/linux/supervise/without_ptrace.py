"""A death that was not watched: the system refuses ptrace, or the process had to be let go.

Sources, in order: the kernel's core if it left one; else the exit status and the log, in which faulthandler names the
Python line if it is on (``PYTHONFAULTHANDLER=1``). It is not switched on here: necropsy does not change the program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from necropsy.capture.linux.supervise import descriptors, ptrace
from necropsy.capture.linux.supervise.traced_processes import Traced, is_dead, status_of
from necropsy.errors import NecropsyError
from necropsy.model import Crash, Exit, Gap, Message

_PARTS = ("fault", "threads", "registers", "modules")
_PATTERN = Path("/proc/sys/kernel/core_pattern")
_LOOK_S = 0.05
_PIPED_S = 3.0
"""How long systemd-coredump or apport may take to put a core down after the process is gone."""


def refusal(pid: int, error: OSError, call: str = "ptrace") -> str:
    """Why ``pid`` cannot be traced: another does it, or the system does not allow the system call."""
    tracer = status_of(pid).get("TracerPid", "0")
    if tracer != "0":
        name = status_of(int(tracer)).get("Name") or "a process out of sight"
        return f"{name} (process {tracer}) traces it by ptrace already, and a process has one tracer at most"
    return f"this system does not allow {call} ({os.strerror(error.errno or errno.EPERM)})"


def unread(refused: str) -> tuple[Gap, ...]:
    """What is missing where there is neither ptrace nor a core. ``refused``: why it could not be traced."""
    why = (
        f"{refused}, so only the exit status and the log are known; "
        "a core (`ulimit -c unlimited`) would be read, and PYTHONFAULTHANDLER=1 has Python name its line"
    )
    return tuple(Gap(part=part, why=why) for part in _PARTS)


def for_leak_sanitizer(process: Traced) -> Gap:
    """That the process was let go when it was executed."""
    why = (
        f"{process.executable} looks for leaks when it ends (LeakSanitizer), which fails under a tracer: it and its "
        "children were not traced; ASAN_OPTIONS=detect_leaks=0 (or LSAN_OPTIONS) switches the search off"
    )
    return Gap(part="process", why=why)


def let_die(process: Traced, tid: int, signo: int, record: Callable[[Traced, int], None]) -> None:
    """Detach a read process so that it dies of its fault; ``record`` its end, as the kernel tells only its parent."""
    ptrace.detach(tid, signo)
    process.end(signo, time.monotonic())
    process.crash_signo = signo
    record(process, signo)
    process.crash = None


def crash(pid: int, status: int, refused: str, *, since: float, folder: Path, budget_s: float) -> Crash | None:
    """The crash in the core that ``pid`` left since then (epoch), if any; ``folder``: where it ran."""
    if not os.WIFSIGNALED(status) or not os.WCOREDUMP(status):
        return None
    # It takes drgn and capstone: what is needed after such deaths only is imported then.
    from necropsy.capture import open_core

    deadline = time.monotonic() + (_PIPED_S if _is_piped() else 0)
    path = open_core.find(pid, since, folder)
    while path is None and time.monotonic() < deadline:
        time.sleep(0.05)
        path = open_core.find(pid, since, folder)
    if path is None:
        return None
    try:
        found = open_core.read(path, budget_s=budget_s)
    except NecropsyError as error:
        return Crash(pid=pid, gaps=(Gap(part="process", why=f"the core {path}: {error}"),))
    why = f"{refused}: read from the core {path}"
    return msgspec.structs.replace(found, gaps=(Gap(part="process", why=why), *found.gaps))


def wait_beside(pid: int) -> int:
    """Fork a child that ends when the untraced ``pid`` has ended; its pid. Raises OSError where no process is left."""
    child = os.fork()
    if child:
        return child
    try:
        ptrace.die_with_parent()
        descriptors.keep_only(())
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            ended.poll()
    except OSError:  # no pidfd: Linux before 5.3
        while not is_dead(pid):
            time.sleep(_LOOK_S)
    finally:
        os._exit(0)


def with_end(found: Crash, ended: Exit | None, tail: str | None, gaps: Sequence[Gap]) -> Crash:
    """The crash with how the process ended and what it wrote last."""
    from necropsy.formats import log

    said = log.scan(tail) if tail is not None else ()
    kinds = {message.kind for message in said}
    messages: tuple[Message, ...] | None = (*said, *(one for one in found.messages or () if one.kind not in kinds))
    if tail is None and found.messages is None:
        messages = None
    known = tuple(gap for gap in found.gaps if gap.part not in {"log_tail"} | ({"messages"} if messages else set()))
    return msgspec.structs.replace(found, exit=ended, log_tail=tail, messages=messages, gaps=(*known, *gaps))


def _is_piped() -> bool:
    try:
        return _PATTERN.read_text().startswith("|")
    except OSError:
        return False
