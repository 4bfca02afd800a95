"""``--necropsy-profile``: a test that leaves less than a share of a stack fails.

A mark never goes back, so that only what a test adds to it is the test's: a test that had gone as deep before hides it,
and threads that ended during the test are not seen.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator
from typing import Any

import pytest

from necropsy.capture.linux.inspect.own_stacks import OwnStacks
from necropsy.model import StackUse
from necropsy.reports.terminal import clean, size


def start(config: pytest.Config, per_cent: float) -> None:
    """From now on, tests of this process are measured."""
    if sys.platform != "linux":
        why = "--necropsy-profile works on Linux only: the stacks are not measured"
        warnings.warn(pytest.PytestWarning(why), stacklevel=1)
        return
    config.pluginmanager.register(StackLeft(per_cent / 100), "necropsy-profile")


class StackLeft:
    """Fails tests that passed, and left less than ``share`` of the stack of a thread."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._stacks = OwnStacks()
        self._warned = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """What is touched by now is not this test's."""
        self._stacks.begin()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """The setup and the call of a test are measured, not its teardown."""
        outcome = yield
        if call.when != "call":
            return
        report: pytest.TestReport = outcome.get_result()
        near = [one for one in self._stacks.uses() if self._is_near(one)]
        self._warn()
        if near and report.outcome == "passed":
            report.outcome = "failed"
            report.longrepr = "\n".join(self._text(one) for one in near)
        elif near:
            report.sections.append(("necropsy", "\n".join(self._text(one) for one in near)))

    def _is_near(self, one: StackUse) -> bool:
        if one.peak is None or not one.size:
            return False
        return one.size - one.peak < self._share * one.size

    def _text(self, one: StackUse) -> str:
        whole, peak = one.size or 0, one.peak or 0
        left = max(whole - peak, 0)
        before = f" Before the test, it had used {size(one.inherited)}." if one.inherited is not None else ""
        name = clean(one.python_name or one.name or f"thread {one.tid}")
        return (
            f"necropsy: {name} used {size(peak)} of its stack of {size(whole)} "
            f"during this test: {size(left)} ({left / whole:.1%}) left, less than {self._share:.0%}.{before}"
        )

    def _warn(self) -> None:
        if self._stacks.gaps and not self._warned:
            self._warned = True
            gap = self._stacks.gaps[0]
            warnings.warn(pytest.PytestWarning(f"--necropsy-profile: {gap.part}: {gap.why}"), stacklevel=1)
