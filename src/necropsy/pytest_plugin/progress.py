"""How far a session came, by its journal; what the next one takes over from it."""

from __future__ import annotations

import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from necropsy.pytest_plugin import journal
from necropsy.pytest_plugin.journal import as_text

Record = tuple[bytes, bytes]
Place = Literal["setup", "call", "teardown", "collect", "conftest", "session"]
MOMENT = struct.Struct("<d")
"""Before the name of a phase."""


@dataclass
class TestRecord:
    """What is known of one run of a test."""

    __test__ = False

    nodeid: str
    place: Place = "setup"
    """The phase that it is in."""
    began: float = 0.0
    """When the phase began, in seconds since the epoch."""
    is_buried: bool = False
    """It died before, and is only being reported."""
    entries: list[Record] = field(default_factory=list)
    """Reports and warnings, as they came."""
    deaths: list[Death] = field(default_factory=list)


@dataclass
class Death:
    """The end of one session before its time."""

    place: Place
    name: str
    """The node id of the test or the collector, the path of the conftest.py; empty for the session."""
    pid: int
    signal: str | None = None
    code: int | None = None
    began: float = 0.0
    """When the phase began, in seconds since the epoch."""
    died: float = field(default_factory=time.time)
    out: str = ""
    err: str = ""
    told: dict[str, Any] = field(default_factory=dict)
    """What the report says: see ``description``."""
    left: str = ""
    """Where ``os._exit`` was called."""
    fault_text: str = ""
    """What faulthandler wrote."""
    unwatched: str = ""
    worker: str = ""
    """The name of the worker of pytest-xdist."""
    before: list[str] = field(default_factory=list)
    """The tests that had run before in this worker."""
    alone: str = ""
    """What came of running the test alone."""

    def locate(self, progress: Progress) -> None:
        """What the process was doing."""
        if progress.test is not None:
            self.place, self.name = progress.test.place, progress.test.nodeid
            self.began = progress.test.began
        elif progress.open:
            kind, payload = progress.open[-1]
            self.place, self.name = "conftest" if kind == journal.CONFTEST else "collect", as_text(payload)
        elif progress.stage == "run" and progress.last is not None:
            self.place, self.name = "teardown", progress.last.nodeid

    def hear(self, told: dict[str, Any]) -> None:
        """What the report says."""
        self.told = told
        self.died = told.get("died") or self.died

    @property
    def seconds(self) -> float:
        """How long the phase had lasted."""
        return max(0.0, self.died - self.began) if self.began else 0.0

    @property
    def end(self) -> str:
        """How the process ended, in words."""
        if self.signal is not None:
            return f"was killed by {self.signal}"
        return f"ended with exit code {self.code}" if self.code is not None else "ended"


class Progress:
    """What all sessions so far have written."""

    def __init__(self) -> None:
        self.finished: dict[str, deque[TestRecord]] = {}
        """By node id; several where a test was collected more than once."""
        self.order: list[str] = []
        """The tests that the last session finished, by time."""
        self.dead_collectors: dict[str, Death] = {}
        self.dead_conftests: dict[str, Death] = {}
        self.deaths: dict[str, list[Death]] = {}
        """By node id: of tests that are not buried yet, because they are run again."""
        self.annotations: list[str] = []
        """For GitHub Actions: a line for each death."""
        self.watcher = ""
        """Where the watcher listens; a session starts another one where the first has ended."""
        self.begin()

    def begin(self) -> None:
        """A new session starts."""
        self.stage = ""
        self.test: TestRecord | None = None
        self.last: TestRecord | None = None
        """The test that this session finished last."""
        self.open: list[Record] = []
        """What is being imported or collected, the innermost last."""
        self.left = self.unwatched = self.output = ""
        self.order = []

    def add(self, records: list[Record]) -> None:
        """Take note of what the session has written since."""
        for kind, payload in records:
            self._add(kind, payload)

    def _add(self, kind: bytes, payload: bytes) -> None:
        match kind:
            case journal.REPORT if self.test is not None:
                self.test.entries.append((kind, payload))
            case journal.WARNING:  # recorded when all else of the test is over
                test = self.test or self.last
                if test is not None:
                    test.entries.append((kind, payload))
            case journal.PHASE if self.test is not None and len(payload) >= MOMENT.size:
                self.test.is_buried = False
                (self.test.began,) = MOMENT.unpack_from(payload)
                self.test.place = as_text(payload[MOMENT.size :])  # type: ignore[assignment] # one of the three
            case journal.TEST | journal.BURIED:
                self.test = TestRecord(as_text(payload), is_buried=kind == journal.BURIED)
            case journal.TEST_DONE if self.test is not None:
                self.keep(self.test)
                self.last, self.test = self.test, None
            case journal.CONFTEST | journal.COLLECTOR:
                self.open.append((kind, payload))
            case journal.CONFTEST_DONE | journal.COLLECTOR_DONE if self.open:
                self.open.pop()
            case journal.STAGE:
                self.stage = as_text(payload)
            case journal.LEAVES:
                self.left = as_text(payload)
            case journal.OUTPUT:
                self.output = as_text(payload)
            case journal.WATCHED:
                self.watcher = as_text(payload)
            case journal.UNWATCHED:
                self.unwatched = as_text(payload)
            case _:
                pass

    def keep(self, test: TestRecord) -> None:
        """The test is over, in one way or the other."""
        self.finished.setdefault(test.nodeid, deque()).append(test)
        self.order.append(test.nodeid)
