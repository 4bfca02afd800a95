"""Which of the two loops serves a run: the one in C, or where that was not built the one in Python."""

from __future__ import annotations

from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import c_library
from necropsy.capture.linux.supervise.c_loop import CLoop
from necropsy.capture.linux.supervise.event_loop import Journal, Loop
from necropsy.capture.linux.supervise.shared_memory import Facts


def open_loop(
    root: int, *, front: int, facts: Facts, journal: Journal, log: Log, always: bool = False
) -> tuple[Loop, str | None]:
    """A loop for the command ``root``, which this thread has seized, and why it is not the fast one, if it is not.

    ``log``: the C loop has its probe hear new processes; the other one leaves that to the journal, which it keeps
    before a new process runs. Where the log cannot be read, ends of all processes by an exit code that is not 0 are
    returned, and not only the command's. ``always``: healthy ends are returned too.
    """
    why, failures = c_library.why_missing(), log.is_wanted
    if why is None:
        try:
            loop = CLoop(
                root, front=front, facts=facts, journal=journal, probe=log.probe, always=always, failures=failures
            )
        except MemoryError as error:
            why = f"the C loop could not be started: {error}"
        else:
            return loop, None
    from necropsy.capture.linux.supervise.python_loop import PythonLoop  # not loaded where the other one is used

    return PythonLoop(root, front=front, facts=facts, journal=journal, always=always, failures=failures), why
