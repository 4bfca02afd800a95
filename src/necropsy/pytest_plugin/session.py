"""The session: pytest as always, which also writes down what it does."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from necropsy.pytest_plugin import journal, reports, resume
from necropsy.pytest_plugin.alone import Alone
from necropsy.pytest_plugin.captured_output import FaultFile
from necropsy.pytest_plugin.journal import Journal
from necropsy.pytest_plugin.keeper import Session
from necropsy.pytest_plugin.progress import MOMENT, Death


def join(config: pytest.Config, given: Session) -> None:
    """In the process that the keeper has forked: have it watched, and take part in it."""
    given.unwatched = watched() if given.only is None else ""
    if given.unwatched:
        given.journal.text(journal.UNWATCHED, given.unwatched)
    else:
        given.journal.text(journal.WATCHED, os.environ.get("NECROPSY_WATCHER", ""))
    plugins = config.pluginmanager
    note_conftests(plugins, given.journal, given.progress.dead_conftests)
    if given.only is not None:
        plugins.register(Alone(config, given.only), "necropsy-alone")
        return
    note_exits(given.journal)
    resumption = resume.Resumption(config, given)
    plugins.register(Writer(given.journal, given.faults, lambda: not given.replaying), "necropsy-writer")
    plugins.register(resumption, "necropsy-resumption")
    if plugins.has_plugin("xdist"):
        from necropsy.pytest_plugin.xdist_controller import Controller

        plugins.register(Controller(config, given), "necropsy-controller")


def watched() -> str:
    """Have this process watched; why that is not possible, else nothing."""
    try:
        from necropsy import watch

        answer = watch.register(show=False, keep=True)
    except Exception as error:  # noqa: BLE001 - the tests run without it
        return f"{type(error).__name__}: {error}"
    return "" if answer.ok else answer.why


def note_conftests(plugins: Any, writer: Journal, dead: dict[str, Death]) -> None:
    """Write down which conftest.py is being imported; one that the process died of becomes an empty one."""
    load: Callable[..., Any] | None = getattr(plugins, "_importconftest", None)
    if load is None:
        return

    def noted(conftestpath: Any, *args: Any, **more: Any) -> Any:
        if str(conftestpath) in dead:
            from types import ModuleType

            return ModuleType("conftest")
        writer.text(journal.CONFTEST, str(conftestpath))
        try:
            return load(conftestpath, *args, **more)
        finally:
            writer.write(journal.CONFTEST_DONE)

    plugins._importconftest = noted  # noqa: SLF001 - no hook is called before the import


def note_exits(writer: Journal) -> None:
    """``os._exit`` leaves nothing that could be read: where it was called is written down."""
    leave = os._exit

    def noted(status: int) -> Any:
        if writer.is_ours:
            with contextlib.suppress(Exception):
                frames = traceback.extract_stack()[:-1]
                while frames and len(frames) > 1 and any("/_pytest/" in one.filename for one in frames[1:]):
                    frames.pop(0)
                shown = [f"{one.filename}:{one.lineno}: in {one.name}\n    {one.line}" for one in frames[1:] or frames]
                writer.text(journal.LEAVES, "\n".join(shown))
        leave(status)

    os._exit = noted


class Writer:
    """Writes the journal. It comes before other plugins, and leaves everything to them."""

    def __init__(self, writer: Journal, faults: FaultFile, is_new: Callable[[], bool] | None) -> None:
        """``is_new``: whether what is reported is to be kept for the next session; None where there is none."""
        self._journal, self._faults, self._is_new = writer, faults, is_new or (lambda: False)
        self._is_worker, self._kept = is_new is None, reports.Keeping()

    # ------------------------------------------------------------ stages

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        """The conftest.py files of the arguments are loaded."""
        self._journal.text(journal.STAGE, "configure")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """The header is printed; faulthandler is on."""
        self._faults.redirect()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Collection begins."""
        self._journal.text(journal.STAGE, "collect")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """The tests begin."""
        self._journal.text(journal.STAGE, "run")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """The tests are over."""
        self._journal.text(journal.STAGE, "finish")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """All is done: from here on the exit code is pytest's own."""
        self._journal.text(journal.STAGE, "end")

    # ------------------------------------------------------------ collection

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """What is being collected."""
        self._journal.text(journal.COLLECTOR, collector.nodeid)
        yield
        self._journal.write(journal.COLLECTOR_DONE)

    # ------------------------------------------------------------ tests

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """The setup begins."""
        self._phase("setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        """The call begins."""
        self._phase("call")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """The teardown begins."""
        self._phase("teardown")

    def _phase(self, name: str) -> None:
        self._journal.write(journal.PHASE, MOMENT.pack(time.time()) + name.encode())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report for the next session."""
        if self._is_new():
            self._journal.hold(journal.REPORT, self._kept(report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        """Keep the warnings of tests; those of the collection come again."""
        if when == "runtest" and self._is_new():
            data = reports.kept_warning(warning_message, nodeid, location)
            if data is not None:
                self._journal.hold(journal.WARNING, data)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """The test is over."""
        if self._is_worker or self._is_new():
            self._journal.hold(journal.TEST_DONE)
