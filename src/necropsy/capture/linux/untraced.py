"""A death that could not be watched, because this system refuses ptrace: the kernel's core if it left one, else little.

A ladder: what the core shows; without one the exit status and the log, in which faulthandler names the Python line if
it is on (``PYTHONFAULTHANDLER=1``). It is not switched on here: a program under necropsy does what it would have done.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from necropsy.capture.linux.processes import status_of
from necropsy.errors import NecropsyError
from necropsy.model import Crash, Exit, Gap, Message

_PARTS = ("fault", "threads", "registers", "modules")
_PATTERN = Path("/proc/sys/kernel/core_pattern")
_PIPED_S = 3.0
"""How long systemd-coredump or apport may take to put a core down after the process is gone."""


def refusal(pid: int, error: OSError) -> str:
    """Why ``pid`` cannot be traced: another does it, or the system does not allow it."""
    tracer = status_of(pid).get("TracerPid", "0")
    if tracer != "0":
        name = status_of(int(tracer)).get("Name") or "a process out of sight"
        return f"{name} (process {tracer}) traces it by ptrace already, and a process has one tracer at most"
    return f"this system does not allow ptrace ({os.strerror(error.errno or errno.EPERM)})"


def unread(refused: str) -> tuple[Gap, ...]:
    """What is missing where there is neither ptrace nor a core. ``refused``: why it could not be traced."""
    why = (
        f"{refused}, so only the exit status and the log are known; "
        "a core (`ulimit -c unlimited`) would be read, and PYTHONFAULTHANDLER=1 has Python name its line"
    )
    return tuple(Gap(part=part, why=why) for part in _PARTS)


def crash(pid: int, status: int, refused: str, *, since: float, folder: Path, budget_s: float) -> Crash | None:
    """What the core of ``pid`` shows that was left since then (seconds since the epoch), if there is one.

    ``status``: the wait status of the process; ``folder``: where it ran.
    """
    if not os.WIFSIGNALED(status) or not os.WCOREDUMP(status):
        return None
    # It takes drgn and capstone: what is needed after such deaths only is imported then.
    from necropsy.capture import core

    deadline = time.monotonic() + (_PIPED_S if _is_piped() else 0)
    path = core.find(pid, since, folder)
    while path is None and time.monotonic() < deadline:
        time.sleep(0.05)
        path = core.find(pid, since, folder)
    if path is None:
        return None
    try:
        found = core.read(path, budget_s=budget_s)
    except NecropsyError as error:
        return Crash(pid=pid, gaps=(Gap(part="process", why=f"the core {path}: {error}"),))
    why = f"{refused}: read from the core {path}"
    return msgspec.structs.replace(found, gaps=(Gap(part="process", why=why), *found.gaps))


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
    """The kernel gives cores to a program."""
    try:
        return _PATTERN.read_text().startswith("|")
    except OSError:
        return False
