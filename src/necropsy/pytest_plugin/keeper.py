"""The keeper: the process that the user started. It forks the session, and another one when that dies."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

from necropsy.pytest_plugin import alone, children, terminal
from necropsy.pytest_plugin.alone_server import AloneServer
from necropsy.pytest_plugin.captured_output import CapturedOutput, FaultFile
from necropsy.pytest_plugin.clerk import Clerk
from necropsy.pytest_plugin.journal import Journal
from necropsy.pytest_plugin.progress import Death, Progress, TestRecord


@dataclass
class Settings:
    """What the user asked for."""

    alone: bool = False
    folder: str | None = None


@dataclass
class Session:
    """What a session has from the keeper."""

    journal: Journal
    progress: Progress
    clerk: Clerk
    faults: FaultFile
    output: CapturedOutput
    started: float
    """When the first session began, by ``time.time``."""
    clock: Any
    """The same as pytest 8.4 and later keep it."""
    first: bool
    """No other session ran before."""
    dead: TestRecord | None = None
    """The test that the last session died of."""
    alone_server: AloneServer | None = None
    """Runs tests alone for the controller of pytest-xdist."""
    only: str | None = None
    """The node id of the one test to run, to see whether it dies alone."""
    shown: str = ""
    """The stage that the sessions before had come to: what they have printed is not printed again."""
    unwatched: str = ""
    """Why this process is not watched."""
    replaying: bool = False
    """What is reported at this moment is in the journal already."""


class Keeper:
    """Forks sessions until one ends by itself."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.settings = settings
        self.journal, self.progress, self.clerk = Journal(), Progress(), Clerk()
        self.children, self.faults = children.Children(), FaultFile()
        self.output = CapturedOutput(config)
        self.started, self.clock = time.time(), _clock()
        self.alone_server: AloneServer | None = None
        self._config = config
        self._offset = 0
        self._shown = ""
        self._buried: str | None = None
        """The test that the last session was to report as dead."""

    def keep(self) -> Session:
        """Fork. Returns in each session; this process ends as the last one of them ends.

        Raises OSError where not even one process could be created.
        """
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with contextlib.suppress(Exception):
                stream.flush()  # type: ignore[union-attr] # None where there is no stream
        clerk = self.children.fork()
        if not clerk:
            self.clerk.serve(self.settings.folder)
        self.clerk.started()
        if self.settings.alone and self._config.pluginmanager.has_plugin("xdist"):
            server = AloneServer()
            if not self.children.fork():
                return self._session(None, only=server.serve(self.output))
            server.started()
            self.alone_server = server
        dead: TestRecord | None = None
        while True:
            try:
                pid = self.children.fork()
            except OSError:
                if not self._shown:
                    raise
                self._end(1)
            if not pid:
                return self._session(dead)
            dead = self._over(pid, self.children.wait(pid) or 0)
            if self.settings.alone and dead is not None:
                found = self._alone(dead)
                if isinstance(found, Session):
                    return found
                dead.deaths[-1].alone = found
            self._next(dead)

    def _session(self, dead: TestRecord | None, only: str | None = None) -> Session:
        if only is None:
            self.journal.own()
        self.output.copy()
        return Session(
            journal=self.journal,
            progress=self.progress,
            clerk=self.clerk,
            faults=self.faults,
            output=self.output,
            started=self.started,
            clock=self.clock,
            first=not self._shown,
            dead=dead,
            alone_server=self.alone_server,
            only=only,
            shown=self._shown,
        )

    # ------------------------------------------------------------ ends

    def _over(self, pid: int, status: int) -> TestRecord | None:
        """What the next session is to know of the end of this one; where there is no next one, this process ends."""
        records, self._offset = self.journal.read(self._offset)
        progress = self.progress
        progress.add(records)
        code = os.waitstatus_to_exitcode(status)
        if self.children.asked_by is not None and code == -self.children.asked_by:
            self._end_by(self.children.asked_by)
        if code >= 0 and (progress.stage == "end" or not (progress.test or progress.open)):
            self._end(code)
        death = self._death(pid, code)
        test = self._blamed(death)
        if test is None and not self._is_kept_from_dying(death):
            self._tell(death)
            self._end(code if code >= 0 else 128 - code)
        return test

    def _next(self, dead: TestRecord | None) -> None:
        """Make ready for the next session."""
        self._buried = dead.nodeid if dead is not None else None
        self._shown = max(self._shown, self.progress.stage or "configure", key=_STAGES.index)
        self.progress.begin()

    def _death(self, pid: int, code: int) -> Death:
        progress = self.progress
        out, err = self.output.take()
        death = Death(
            place="session",
            name="",
            pid=pid,
            signal=children.name_of(-code) if code < 0 else None,
            code=code if code >= 0 else None,
            out=out,
            err=err,
            left=progress.left,
            fault_text=self.faults.take(),
            unwatched=progress.unwatched,
        )
        if progress.test is None or not progress.test.is_buried:
            death.locate(progress)  # else a plugin cannot take the report on the death
        if progress.watcher:
            os.environ["NECROPSY_WATCHER"] = progress.watcher
        death.hear(self.clerk.ask(pid, watched=not death.unwatched))
        if "annotation" in death.told:
            progress.annotations.append(death.told["annotation"])
        return death

    def _blamed(self, death: Death) -> TestRecord | None:
        """The test that is to fail."""
        progress = self.progress
        if death.place not in {"setup", "call", "teardown"}:
            return None
        test = progress.test
        if test is None and progress.last is not None:  # after its last report
            test = progress.finished[progress.last.nodeid].pop()
        if test is not None:
            test.deaths = self.progress.deaths.setdefault(test.nodeid, [])
            test.deaths.append(death)
        return test

    def _is_kept_from_dying(self, death: Death) -> bool:
        """The next session leaves out what this one died of; false where that has been tried, or is not possible."""
        known = {"conftest": self.progress.dead_conftests, "collect": self.progress.dead_collectors}.get(death.place)
        if known is None or death.name in known or not death.name:
            return False
        known[death.name] = death
        return True

    def _alone(self, test: TestRecord) -> str | Session:
        """What comes of running the dead test once more, in a process of its own; there, the session."""
        before = [one for one in self.progress.order if one != self._buried]
        try:
            pid = self.children.fork()
        except OSError:
            return alone.UNABLE
        if not pid:
            return self._session(None, only=test.nodeid)
        status = self.children.wait(pid, alone.limit(test.deaths[-1]))
        self.output.take()
        self.faults.take()
        return alone.verdict(status, before)

    def _tell(self, death: Death) -> None:
        """A death that no test and no module is to blame for."""
        self.output.release()
        terminal.tell(self._config, death, self.progress.stage)

    def _end_by(self, signo: int) -> NoReturn:
        """End as the session did: by the signal that it was sent."""
        import signal

        signal.signal(signo, signal.SIG_DFL)
        self.children.give_back()
        os.kill(os.getpid(), signo)
        self._end(128 + signo)

    def _end(self, code: int) -> NoReturn:
        self.clerk.close()
        os._exit(code & 0xFF)


def _clock() -> Any:
    try:
        from _pytest.timing import Instant
    except ImportError:
        return None
    return Instant()


_STAGES = ("", "configure", "collect", "run", "finish", "end")
