"""``--necropsy-alone``: a test that died is run once more, alone, to see whether what ran before had to do with it."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from necropsy.pytest_plugin import children
from necropsy.pytest_plugin.progress import Death
from necropsy.pytest_plugin.terminal import Mute

UNABLE = "It could not be run alone: no process could be created."

_SURVIVED, _NOT_FOUND = 86, 87
_MOST = 5
"""Names of tests that are shown."""
_LEAST_S = 60.0
"""So long, and ten times as long as it took to die, a test may run alone."""


class Alone:
    """Runs one test, prints nothing, and leaves before anything is written at the end of the session."""

    def __init__(self, config: pytest.Config, nodeid: str) -> None:
        self._config, self._nodeid = config, nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self) -> None:
        """No workers of pytest-xdist."""
        option = self._config.option
        if hasattr(option, "numprocesses"):
            option.numprocesses, option.dist, option.distload, option.tx = 0, "no", False, []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Nothing of it is shown."""
        Mute(self._config).begin()
        faulthandler.disable()
        if self._config.option.capture == "no":
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> NoReturn:
        """Run it."""
        item = next((one for one in session.items if self._is_meant(one)), None)
        if item is None:
            leave(_NOT_FOUND)
        session.items[:] = [item]
        hook: Any = self._config.hook
        hook.pytest_runtest_protocol(item=item, nextitem=None)
        leave(_SURVIVED)

    def _is_meant(self, item: pytest.Item) -> bool:
        """With ``--dist loadgroup``, a worker adds the names of its groups to the node id of a test."""
        if item.nodeid == self._nodeid:
            return True
        return self._nodeid.startswith(f"{item.nodeid}@") and item.get_closest_marker("xdist_group") is not None


leave = os._exit
"""The function itself: a session notes who calls it."""


def limit(death: Death) -> float:
    """How many seconds the test may run alone that died so."""
    return _LEAST_S + 10 * death.seconds


def verdict(status: int | None, before: Sequence[str]) -> str:
    """What it says of the test that it ended so. ``before``: what had run in the process in which it died first."""
    if status is None:
        return "Run again, alone: it did not end in time."
    code = os.waitstatus_to_exitcode(status)
    if code == _NOT_FOUND:
        return "Run again, alone: it was not collected."
    if code != _SURVIVED:
        how = f"it is killed by {children.name_of(-code)}" if code < 0 else f"it ends with exit code {code}"
        return f"Run again, alone: it crashes alone ({how})."
    if not before:
        return "Run again, alone: it is flaky. It passes now, and no test had run before it in its process."
    shown = ", ".join(before[-_MOST:])
    more = f"{len(before) - _MOST} others, " if len(before) > _MOST else ""
    tests = "1 test" if len(before) == 1 else f"{len(before)} tests"
    return f"Run again, alone: it passes alone ({tests} ran before it in its process: {more}{shown})."
