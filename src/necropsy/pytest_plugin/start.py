"""Where ``pytest --necropsy`` begins: what contradicts it, and the fork."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

VARIABLE = "NECROPSY_PYTEST_SESSION"
"""The process in which the tests run: pytest called there is part of a test."""


def start(config: pytest.Config) -> None:
    """Fork: this function returns in the session. Raises pytest.UsageError where an option contradicts another one."""
    known = config.known_args_namespace
    if os.environ.get(VARIABLE) == str(os.getpid()):
        return
    worker = _xdist_worker()
    if worker is not None:
        if "necropsy" in worker:
            from necropsy.pytest_plugin import xdist_worker

            xdist_worker.join(config, worker["necropsy"])
        return
    if getattr(known, "forked", False):
        raise pytest.UsageError("--necropsy and --forked contradict each other: both contain a test that crashes")
    if getattr(known, "looponfail", False):
        raise pytest.UsageError("--necropsy and --looponfail contradict each other")
    if getattr(known, "help", False) or getattr(known, "version", False):
        return
    if not hasattr(os, "fork") or sys.platform == "win32":
        why = "--necropsy needs fork(), which this system does not have: the tests run without it"
        warnings.warn(pytest.PytestWarning(why), stacklevel=1)
        return
    from necropsy.pytest_plugin import keeper, session

    folder = known.necropsy_report
    settings = keeper.Settings(alone=known.necropsy_alone, folder=str(Path(folder).absolute()) if folder else None)
    _start_watcher()
    try:
        given = keeper.Keeper(config, settings).keep()
    except OSError as error:
        why = f"--necropsy could not begin ({error.strerror or error}): the tests run without it"
        warnings.warn(pytest.PytestWarning(why), stacklevel=1)
        return
    os.environ[VARIABLE] = str(os.getpid())
    session.join(config, given)


def _xdist_worker() -> dict[str, Any] | None:
    """What the controller of pytest-xdist has given this worker; None where this process is none.

    By what execnet executes: the environment variables may be those of a worker around us.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the way to the callers
    while frame is not None:
        if frame.f_globals.get("__name__") == "__channelexec__":
            given = frame.f_globals.get("workerinput")
            return given if isinstance(given, dict) else {}
        frame = frame.f_back
    return None


def _start_watcher() -> None:
    """So that it gets ready while pytest does; where it cannot be started, registering says why."""
    try:
        from necropsy import watch

        if not os.environ.get("NECROPSY_WATCHER"):
            watch.start()
    except Exception:  # noqa: BLE001, S110 - see above
        pass
