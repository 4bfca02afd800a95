"""A session after a death: finished tests are replayed, the dead test fails, and the rest is run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from necropsy.pytest_plugin import failures, journal, reports
from necropsy.pytest_plugin.keeper import Session
from necropsy.pytest_plugin.progress import TestRecord
from necropsy.pytest_plugin.terminal import Mute


class Resumption:
    """Replays the tests that ran before; in the first session there are none."""

    def __init__(self, config: pytest.Config, given: Session) -> None:
        self._config, self._session, self._progress = config, given, given.progress
        self._mute: Mute | None = None

    # ------------------------------------------------------------ what is printed once

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """What was printed already is not printed again."""
        if self._session.shown in {"collect", "run", "finish"}:
            self._mute = Mute(self._config)
            self._mute.begin()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """The duration that is printed at the end is that of all sessions."""
        self._flush()
        if self._session.first:
            return
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        for owner, before, since in (
            (reporter, "_sessionstarttime", "_session_start"),
            (_junit(self._config), "suite_start_time", "suite_start"),
        ):
            if hasattr(owner, before):
                setattr(owner, before, self._session.started)
            elif hasattr(owner, since):
                setattr(owner, since, self._session.clock)

    def _speak(self) -> None:
        if self._mute is not None:
            self._mute.end()
            self._mute = None

    @staticmethod
    def _flush() -> None:
        """What pytest has printed must not die with this process."""
        if sys.stdout is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()

    # ------------------------------------------------------------ collection

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> pytest.CollectReport | None:
        """Leave out what a session died of."""
        if self._session.shown == "collect":
            self._speak()
        death = self._progress.dead_collectors.get(collector.nodeid)
        return failures.collect_report(collector.nodeid, death) if death is not None else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """A conftest.py that a session died of is an error; the tests that it is for are not run."""
        if self._session.shown != "run":
            self._speak()
        failures.leave_out(session, items, self._progress.dead_conftests)

    # ------------------------------------------------------------ tests

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Replay it if it was run before."""
        records = self._progress.finished.get(item.nodeid)
        if records:
            self._replay(item, records.popleft())
            return True
        dead = self._session.dead
        if dead is not None and dead.nodeid == item.nodeid:
            self._session.dead = None
            return self._bury(item, dead)
        self._speak()
        self._flush()
        self._session.journal.hold(journal.TEST, item.nodeid.encode("utf-8", "surrogatepass"))
        return None

    def _replay(self, item: pytest.Item, record: TestRecord) -> None:
        hook = item.ihook
        self._session.replaying = True
        try:
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            self._replay_entries(hook, record)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        finally:
            self._session.replaying = False

    def _bury(self, item: pytest.Item, record: TestRecord) -> bool | None:
        """Report the phase that the process died in, after those that were over; None where it is to be run again."""
        hook, writer = item.ihook, self._session.journal
        writer.text(journal.BURIED, item.nodeid)
        self._session.replaying = True
        try:
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            earlier = self._replay_entries(hook, record)
        finally:
            self._session.replaying = False
        for entry in record.entries:
            writer.hold(*entry)
        self._speak()
        if len(record.deaths) <= failures.reruns_wanted(item):
            hook.pytest_runtest_logreport(report=failures.rerun_report(item, record, earlier))
            return None
        for report in failures.test_reports(item, record.deaths[-1], earlier):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _replay_entries(self, hook: Any, record: TestRecord) -> list[tuple[str, str]]:
        """Replay them. Returns the captured output, as the last report has it."""
        parts: list[tuple[str, str]] = []
        keywords: Mapping[str, Any] = {}
        for kind, payload in record.entries:
            if kind == journal.REPORT:
                report = reports.restored(payload, keywords)
                parts, keywords = list(report.sections), report.keywords
                hook.pytest_runtest_logreport(report=report)
            elif (fields := reports.restored_warning(payload)) is not None:
                self._config.hook.pytest_warning_recorded.call_historic(kwargs=fields)
        return parts

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """In GitHub Actions, each death is an annotation at its line."""
        for line in self._progress.annotations:
            terminalreporter.write_line(line)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        """A dead test that is not collected any more is still reported."""
        yield
        dead, self._session.dead = self._session.dead, None
        self._speak()
        if dead is not None and not self._config.option.collectonly:
            for report in failures.lost_reports(dead.nodeid, dead.deaths[-1]):
                self._config.hook.pytest_runtest_logreport(report=report)


def _junit(config: pytest.Config) -> Any:
    """What writes the JUnit file, if it is asked for."""
    try:
        from _pytest.junitxml import xml_key

        return config.stash.get(xml_key, None)
    except (ImportError, AttributeError):
        return None
