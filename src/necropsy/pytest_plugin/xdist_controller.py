"""The controller of pytest-xdist: xdist replaces workers that die; this adds why they died."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from necropsy.pytest_plugin import alone, children, failures, journal, xdist_scheduling
from necropsy.pytest_plugin.alone_server import AloneServer
from necropsy.pytest_plugin.keeper import Session
from necropsy.pytest_plugin.progress import Death, Progress
from necropsy.temporary_folders import TemporaryFolder

_RESTARTS_EACH = 4
"""As many times as xdist by itself, a worker is replaced that died without having run or found anything new."""
_MOST = 1 << 20
_END_S = 10.0


class Controller:
    """Hooks of pytest-xdist."""

    def __init__(self, config: pytest.Config, given: Session) -> None:
        self._config, self._session = config, given
        self._folder = TemporaryFolder("necropsy-workers-")
        self._deaths: dict[Any, Death] = {}
        self._output: dict[int, tuple[int, int]] = {}
        self._seen: dict[str, pytest.TestReport] = {}
        self._places: dict[str, tuple[str, int | None, str]] = {}
        self._teardowns: dict[int, pytest.TestReport] = {}
        self._useless = 0
        self._limit: int | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        """Every death costs a restart: only those that bring nothing new are limited, unless the user set a limit."""
        option = config.option
        workers = getattr(option, "numprocesses", None)
        if getattr(option, "maxworkerrestart", None) is None and workers:
            option.maxworkerrestart = str(_MOST)
            self._limit = int(workers) * _RESTARTS_EACH

    def pytest_unconfigure(self) -> None:
        """Nothing is left behind."""
        self._folder.close()

    # ------------------------------------------------------------ workers

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Before a worker starts: where it writes its journal, and what others died of."""
        progress = self._session.progress
        node.workerinput["necropsy"] = {
            "folder": str(self._folder.path),
            "dead": pickle.dumps((progress.dead_conftests, progress.dead_collectors)),
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """It has been started: hold the files that it captures its output in."""
        pid = _pid_of(node)
        progress = self._journal_of(pid)
        with contextlib.suppress(OSError, ValueError):
            out, err = (int(number) for number in progress.output.split())
            self._output[pid] = (
                os.open(f"/proc/{pid}/fd/{out}", os.O_RDONLY | os.O_CLOEXEC),
                os.open(f"/proc/{pid}/fd/{err}", os.O_RDONLY | os.O_CLOEXEC),
            )

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """It has ended; with ``error``, before its time."""
        pid = _pid_of(node)
        files = self._output.pop(pid, ())
        if error and error != "keyboard-interrupt":
            self._deaths[node] = self._died(node, pid, files)
        for file in files:
            os.close(file)

    def _died(self, node: Any, pid: int, files: tuple[int, ...]) -> Death:
        progress = self._journal_of(pid)
        signal, code = _end_of(node)
        out, err = (os.pread(file, 1 << 22, 0).decode("utf-8", "replace") for file in files) if files else ("", "")
        death = Death("session", "", pid, signal=signal, code=code, out=out, err=err, worker=node.gateway.id)
        death.left, death.unwatched = progress.left, self._session.unwatched
        death.before = progress.order
        death.locate(progress)
        death.hear(self._session.clerk.ask(pid, watched=not death.unwatched and bool(pid)))
        if "annotation" in death.told:
            self._session.progress.annotations.append(death.told["annotation"])
        if not self._is_news(death):
            self._useless += 1
        if self._limit is not None and self._useless > self._limit:
            session: Any = self._config.pluginmanager.get_plugin("dsession")
            session._max_worker_restart = 0  # noqa: SLF001 - xdist prints that the maximum is reached, and ends
        return death

    def _is_news(self, death: Death) -> bool:
        """A test, or a module that no worker died of before."""
        progress = self._session.progress
        known = {"conftest": progress.dead_conftests, "collect": progress.dead_collectors}.get(death.place)
        if known is None:
            return death.place != "session"
        is_news = death.name not in known
        known.setdefault(death.name, death)
        # Several workers collect at the same time: that the others die of it too is not counted.
        return is_news or known[death.name].worker != death.worker

    def _journal_of(self, pid: int) -> Progress:
        progress = Progress()
        with contextlib.suppress(OSError):
            progress.add(journal.read_file(self._folder.path / str(pid)))
        return progress

    # ------------------------------------------------------------ tests

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Where a test is: xdist does not know it of one that died."""
        self._places[nodeid] = location

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """After the report of a dead test: its teardown, for which other plugins wait."""
        teardown = self._teardowns.pop(id(report), None)
        if teardown is None:
            if report.when == "teardown":
                self._seen.pop(report.nodeid, None)
                self._places.pop(report.nodeid, None)
            else:
                self._seen[report.nodeid] = report
            return
        hook = self._config.hook
        hook.pytest_runtest_logreport(report=teardown)
        hook.pytest_runtest_logfinish(nodeid=teardown.nodeid, location=teardown.location)

    @pytest.hookimpl(optionalhook=True, hookwrapper=True, tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> Iterator[None]:
        """Say of the report on a dead test what is known; other plugins may then have the test run again."""
        death = self._deaths.pop(report.node, None)
        teardown = self._describe(crashitem, report, death) if death is not None else None
        yield
        if report.outcome == "rerun":  # by pytest-rerunfailures: the teardown follows the last run
            return
        if teardown is not None:
            self._teardowns[id(report)] = teardown
        session: Any = self._config.pluginmanager.get_plugin("dsession")
        if death is not None and "_handlefailures" not in type(session).handle_crashitem.__code__.co_names:
            session._handlefailures(report)  # noqa: SLF001 - for -x and --maxfail

    def _describe(self, crashitem: str, report: Any, death: Death) -> pytest.TestReport | None:
        """Put all that is known into the report. Returns the report on the teardown that is to follow, if any."""
        if death.place not in {"setup", "call", "teardown"} or death.name != crashitem:
            death.place = "setup"  # before it had begun
        if self._session.alone_server is not None:
            death.alone = self._alone(self._session.alone_server, crashitem, death)
        before = self._seen.pop(crashitem, None)
        made = failures.lost_reports(
            crashitem,
            death,
            earlier=list(before.sections) if before is not None else [],
            location=self._places.pop(crashitem, None),
            keywords=before.keywords if before is not None else {},
        )
        for one in made:
            one.__dict__["node"] = report.node
        report.__dict__.update(made[0].__dict__)
        return made[1] if len(made) > 1 else None

    @staticmethod
    def _alone(server: AloneServer, nodeid: str, death: Death) -> str:
        try:
            status = server.run(nodeid, alone.limit(death))
        except OSError:
            return alone.UNABLE
        return alone.verdict(status, death.before)

    @pytest.hookimpl(optionalhook=True, hookwrapper=True)
    def pytest_xdist_make_scheduler(self) -> Iterator[None]:
        """Who gets which test."""
        outcome: Any = yield
        scheduler = outcome.get_result()
        if scheduler is not None:
            outcome.force_result(xdist_scheduling.corrected(scheduler))


def _pid_of(node: Any) -> int:
    """The worker's process; 0 on another machine."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    return int(getattr(process, "pid", 0) or 0)


def _end_of(node: Any) -> tuple[str | None, int | None]:
    """By which signal the worker has ended, or with which exit code."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if process is None:
        return None, None
    try:
        code = int(process.wait(_END_S))
    except Exception:  # noqa: BLE001 - its output has ended, and it has not
        return None, None
    return (children.name_of(-code), None) if code < 0 else (None, code)
