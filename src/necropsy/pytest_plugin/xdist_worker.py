"""A worker of pytest-xdist: it writes its journal to a file that the controller reads when the worker has died."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from necropsy.pytest_plugin import failures, journal, session
from necropsy.pytest_plugin.captured_output import CapturedOutput, FaultFile
from necropsy.pytest_plugin.journal import Journal
from necropsy.pytest_plugin.progress import Death


def join(config: pytest.Config, given: dict[str, Any]) -> None:
    """``given``: by the controller, see ``Controller.pytest_configure_node``."""
    try:
        writer = Journal.at(Path(given["folder"]) / str(os.getpid()))
    except OSError:  # on another machine
        return
    writer.own()
    conftests, collectors = pickle.loads(given["dead"])  # noqa: S301 - from the controller
    output = CapturedOutput(config)
    output.copy()
    writer.text(journal.OUTPUT, " ".join(map(str, output.handles())))
    unwatched = session.watched()
    if unwatched:
        writer.text(journal.UNWATCHED, unwatched)
    session.note_conftests(config.pluginmanager, writer, conftests)
    session.note_exits(writer)
    plugins = config.pluginmanager
    plugins.register(session.Writer(writer, FaultFile(), None), "necropsy-writer")
    plugins.register(Survivor(writer, conftests, collectors), "necropsy-survivor")


class Survivor:
    """Leaves out what other workers died of."""

    def __init__(self, writer: Journal, conftests: dict[str, Death], collectors: dict[str, Death]) -> None:
        self._journal, self._conftests, self._collectors = writer, conftests, collectors

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> pytest.CollectReport | None:
        """A module that another worker died of is an error here."""
        death = self._collectors.get(collector.nodeid)
        return failures.collect_report(collector.nodeid, death, as_text=True) if death is not None else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """The same for a conftest.py, and for the tests below it."""
        failures.leave_out(session, items, self._conftests, as_text=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """A test begins."""
        self._journal.text(journal.TEST, item.nodeid)
