"""One necropsy under another: a process has one tracer at most, so the inner one steps aside for the outer one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from necropsy.capture.linux.supervise.command import Inherited, execute, refused

TRACER = "necropsy-trace"
"""What a tracer of ours calls itself, see ``watch.name_process``."""


def is_watched() -> bool:
    """Is this process traced by another necropsy? Anybody can take its name: then we merely do not look."""
    try:
        status = Path("/proc/self/status").read_text()
        tracer = next(line.split()[1] for line in status.splitlines() if line.startswith("TracerPid:"))
        return tracer != "0" and Path(f"/proc/{tracer}/comm").read_text().rstrip("\n") == TRACER
    except (OSError, StopIteration, IndexError):
        return False


def step_aside(command: Sequence[str]) -> NoReturn:
    """Become the command: the other necropsy sees what becomes of it.

    Raises:
        CommandNotFoundError: no such command.
        NotExecutableError: the kernel does not run that file.
        NecropsyError: there was no memory or descriptor for it.

    """
    words = [os.fsencode(word) for word in command]
    inherited = Inherited.now()
    inherited.restore()
    raise refused(words[0], execute(words, inherited.environment))
