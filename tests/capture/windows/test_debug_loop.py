"""What the loop does with events that wine does not give, or not at will: they are played here, in Windows' order.

Everything else about the loop is tested with real programs under wine (``test_supervisor``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from necropsy.capture.run_options import RunOptions
from necropsy.capture.windows import debug_events as events
from necropsy.capture.windows import log_source, winapi
from necropsy.capture.windows.debugger import Debugger
from writers import pe

ROOT, CHILD = 100, 200


@dataclass
class Played:
    """The system's side: the events that come, None where none comes in time, and what it was told."""

    coming: list[events.DebugEvent | None]
    parents: dict[int, int] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)
    answers: list[tuple[events.DebugEvent, bool]] = field(default_factory=list)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def wait(self, seconds: float | None) -> events.DebugEvent | None:
        return self.coming.pop(0) if self.coming else None

    def answer(self, event: events.DebugEvent, *, handled: bool) -> None:
        self.answers.append((event, handled))

    def call(self, *words: object) -> int:
        self.calls.append(words)
        return 0

    def birth(self, process: int) -> winapi.Birth:
        return winapi.Birth(self.parents.get(process, 0), 0)


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Debugger, int]]:
    """Follow ROOT through what is played."""

    def followed(played: Played, timeout_s: float | None = None) -> tuple[Debugger, int]:
        monkeypatch.setattr(events, "wait", played.wait)
        monkeypatch.setattr(events, "answer", played.answer)
        monkeypatch.setattr(winapi, "call", played.call)
        monkeypatch.setattr(winapi, "close", played.closed.append)
        monkeypatch.setattr(winapi, "birth", played.birth)
        monkeypatch.setattr(winapi, "final_path", played.paths.get)
        monkeypatch.setattr(winapi, "peak_memory", lambda handle: None)
        monkeypatch.setattr(winapi, "is_wine", lambda: False)
        monkeypatch.setattr(winapi, "std_handle", lambda number: 0)
        debugger = Debugger(("train",), log_source.Stderr("off"), RunOptions(timeout_s=timeout_s))
        return debugger, debugger.follow(ROOT)

    return followed


def began(pid: int, file: int = 1) -> events.ProcessBegan:
    """Its process handle has its own number."""
    return events.ProcessBegan(pid, pid + 1, file, pid, pid + 2, 0x140000000, 0, 0)


def ended(pid: int, code: int = 0) -> events.ProcessEnded:
    return events.ProcessEnded(pid, pid + 1, code)


def loaded(pid: int, file: int, base: int) -> events.DllLoaded:
    return events.DllLoaded(pid, pid + 1, file, base)


Follow = Callable[..., tuple[Debugger, int]]


def test_a_child_that_is_born_at_the_end_is_let_go(follow: Follow) -> None:
    newborn, library = began(CHILD, file=7), loaded(CHILD, 8, 0x10000)
    played = Played([began(ROOT), ended(ROOT, 5), newborn, library])
    _, code = follow(played)
    assert code == 5
    assert [event for event, _ in played.answers[-2:]] == [newborn, library]
    assert ("DebugActiveProcessStop", CHILD) in played.calls
    assert {7, 8} <= set(played.closed)


def test_a_child_that_runs_at_the_end_is_let_go(follow: Follow) -> None:
    played = Played([began(ROOT), began(CHILD), ended(ROOT)], parents={CHILD: ROOT})
    debugger, _ = follow(played)
    assert ("DebugActiveProcessStop", CHILD) in played.calls
    assert [one.exit.kind for one in debugger.nouns() if one.exit is not None] == ["exited", "running"]


def test_what_is_started_while_the_time_is_up_ends_too(follow: Follow) -> None:
    played = Played([began(ROOT), None, began(CHILD), ended(CHILD, 124), ended(ROOT, 124)], parents={CHILD: ROOT})
    debugger, _ = follow(played, timeout_s=1e-9)
    assert debugger.timed_out
    ends = [words[1:] for words in played.calls if words[0] == "TerminateProcess"]
    assert ends == [(ROOT, 124), (CHILD, 124)]


def test_a_file_of_an_unknown_process_is_closed(follow: Follow) -> None:
    played = Played([began(ROOT), loaded(999, 77, 0x10000), ended(ROOT)])
    follow(played)
    assert 77 in played.closed


def test_only_the_loaders_breakpoint_is_the_debuggers(follow: Follow) -> None:
    def breaks(pid: int) -> events.RaisedEvent:
        return events.RaisedEvent(pid, pid + 1, 0x80000003, 0, 0, 0x7FF0, (), True)

    coming = [began(ROOT), breaks(ROOT), began(CHILD), breaks(CHILD), breaks(ROOT), breaks(CHILD), ended(ROOT)]
    played = Played(list(coming))
    follow(played)
    assert [handled for event, handled in played.answers if isinstance(event, events.RaisedEvent)] == [
        True,
        True,
        False,
        False,
    ]


def test_what_a_debugger_is_asked_is_left_to_the_program(follow: Follow) -> None:
    """Ctrl-C, Ctrl-Break and OutputDebugString arrive as if nobody had listened."""
    codes = (0x40010005, 0x40010008, 0x40010006, 0x4001000A, 0x406D1388, 0xE06D7363, 0xC0000005)
    raised = [events.RaisedEvent(ROOT, ROOT + 1, code, 0, 0, 0x7FF0, (), True) for code in codes]
    played = Played([began(ROOT), *raised, ended(ROOT)])
    follow(played)
    assert [handled for event, handled in played.answers if isinstance(event, events.RaisedEvent)] == [False] * len(
        codes
    )


# -- loads that failed, of a command that ended badly by itself ---------------------------------------------------


@pytest.fixture
def outer(tmp_path: Path) -> str:
    """A library that imports one that is nowhere."""
    writer = pe.Writer()
    writer.imports(["inner.dll"])
    (tmp_path / "outer.pyd").write_bytes(writer.written())
    return str(tmp_path / "outer.pyd")


def loads_in_vain(pid: int) -> list[events.DebugEvent | None]:
    return [loaded(pid, 50, 0x20000), events.DllUnloaded(pid, pid + 1, 0x20000)]


def missing(debugger: Debugger) -> list[tuple[int | None, str]]:
    return [
        (crash.pid, message.fields["library"])
        for crash in debugger.crashes
        for message in crash.messages or ()
        if message.kind == "missing-library"
    ]


def test_the_command_that_ends_badly_tells_of_its_failed_load(follow: Follow, outer: str) -> None:
    played = Played([began(ROOT), *loads_in_vain(ROOT), ended(ROOT, 1)], paths={1: "/app/python.exe", 50: outer})
    debugger, _ = follow(played)
    assert missing(debugger) == [(ROOT, "inner.dll")]
    (crash,) = debugger.crashes
    assert crash.exit is not None and (crash.exit.kind, crash.exit.code) == ("exited", 1)


@pytest.mark.parametrize("code", [0, 0xC000013A], ids=["well", "Ctrl-C"])
def test_one_that_ends_well_or_is_interrupted_does_not(follow: Follow, outer: str, code: int) -> None:
    played = Played([began(ROOT), *loads_in_vain(ROOT), ended(ROOT, code)], paths={1: "/app/python.exe", 50: outer})
    debugger, _ = follow(played)
    assert debugger.crashes == []


def test_behind_a_launcher_it_is_the_commands_own(follow: Follow, outer: str) -> None:
    coming = [began(ROOT), began(CHILD), *loads_in_vain(CHILD), ended(CHILD, 1), ended(ROOT, 1)]
    played = Played(coming, parents={CHILD: ROOT}, paths={1: "/app/python.exe", 50: outer})
    debugger, _ = follow(played)
    assert missing(debugger) == [(CHILD, "inner.dll")]
    assert [one.role for one in debugger.nouns()] == ["launcher", "command"]


def test_a_child_whose_end_the_command_survives_does_not(follow: Follow, outer: str) -> None:
    coming = [began(ROOT), began(CHILD), *loads_in_vain(CHILD), ended(CHILD, 1), ended(ROOT)]
    played = Played(coming, parents={CHILD: ROOT}, paths={1: "/app/python.exe", 50: outer})
    debugger, _ = follow(played)
    assert debugger.crashes == []


def test_of_several_children_none_is_the_command(follow: Follow, outer: str) -> None:
    both = [began(CHILD), began(CHILD + 1), *loads_in_vain(CHILD), ended(CHILD, 1), ended(CHILD + 1, 1)]
    played = Played(
        [began(ROOT), *both, ended(ROOT, 1)],
        parents={CHILD: ROOT, CHILD + 1: ROOT},
        paths={1: "/app/python.exe", 50: outer},
    )
    debugger, _ = follow(played)
    assert debugger.crashes == []
