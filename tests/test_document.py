"""What becomes of a run's end: the order of its reports, and which of them are news."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any, Literal

import msgspec
import pytest

from necropsy import document
from necropsy.consequences import is_native
from necropsy.model import (
    Crash,
    Environment,
    Exit,
    Fault,
    Frame,
    Gap,
    Process,
    Report,
    RunRecord,
    Subject,
    Thread,
    Wait,
)
from necropsy.rules import crash_rules

COMMAND = Process(pid=10, role="command", exit=Exit(kind="exited", code=0))


def end_of(**given: Any) -> RunRecord:
    return RunRecord(**{"processes": (COMMAND,), **given})


def died(pid: int, signal: str = "SIGSEGV", at: str | None = None) -> Crash:
    return Crash(pid=pid, at=at, fault=Fault(signal=signal), exit=Exit(kind="signaled", signal=signal))


def ended(**end: Any) -> Process:
    return Process(pid=10, role="command", exit=Exit(**end))


def of(end: RunRecord) -> tuple[Report, ...]:
    return document.of_run(end, ["x"], crash_rules()).reports


def test_the_commands_own_death_comes_first_then_time() -> None:
    crashes = (
        died(12, at="2026-11-21T00:00:02Z"),
        died(11, at="2026-11-21T00:00:01Z"),
        died(13),
        died(10, at="2026-11-21T00:00:09Z"),
    )
    assert [report.pid for report in of(end_of(crashes=crashes))] == [10, 11, 12, 13]


def test_each_of_the_dead_has_the_version_of_its_python() -> None:
    dead = msgspec.structs.replace(died(11), environment=Environment(python="3.11.7"))
    other = msgspec.structs.replace(died(12), environment=Environment(platform="Linux"))
    processes = (COMMAND, Process(pid=11, parent=10), Process(pid=12, parent=10))
    made = document.of_run(end_of(processes=processes, crashes=(dead, other)), ["x"], crash_rules())
    assert [(one.pid, one.python) for one in made.processes] == [(COMMAND.pid, None), (11, "3.11.7"), (12, None)]
    subject = Subject(kind="core", path="core.11")
    one = document.of_crash(dead, subject, crash_rules(), Process(pid=11))
    assert [process.python for process in one.processes] == ["3.11.7"]
    assert document.of_crash(dead, subject, crash_rules()).processes == ()


def test_a_healthy_run_has_no_report() -> None:
    assert of(end_of(log_tail="all is well")) == ()
    assert of(end_of(processes=())) == ()


def test_a_plain_failure_is_judged_by_its_log() -> None:
    (report,) = of(end_of(processes=(ended(kind="exited", code=1),), log_tail="ValueError: 3"))
    assert report.crash.log_tail == "ValueError: 3"
    assert report.crash.messages is not None
    assert report.crash.exit is not None
    assert report.crash.exit.code == 1


def test_a_log_that_was_not_seen_is_a_gap_not_an_empty_log() -> None:
    (report,) = of(
        end_of(processes=(ended(kind="exited", code=1),), gaps=(Gap(part="log_tail", why="stderr is a socket"),))
    )
    assert report.crash.messages is None
    assert {(gap.part, gap.why) for gap in report.gaps} == {
        ("log_tail", "stderr is a socket"),
        ("messages", "stderr is a socket"),
    }


def test_a_death_that_could_not_be_read_is_a_report_all_the_same() -> None:
    (report,) = of(end_of(processes=(ended(kind="signaled", signal="SIGKILL"),)))
    assert is_native(report)


@pytest.mark.parametrize(
    ("pid", "signal", "news"),
    [
        (10, "SIGSEGV", True),
        (10, "SIGKILL", True),
        (10, "SIGTERM", True),
        (10, "SIGINT", False),
        (10, "SIGPIPE", False),
        (11, "SIGSEGV", True),
        (11, "SIGABRT", True),
        (11, "SIGKILL", False),
        (11, "SIGTERM", False),
    ],
)
def test_what_is_news(pid: int, signal: str, news: bool) -> None:
    made = document.of_run(end_of(crashes=(died(pid, signal),)), ["x"], crash_rules())
    assert bool(document.news(made).reports) is news
    assert made.reports, "in the document it is in any case"


@pytest.mark.parametrize(
    ("sender", "signal", "news"),
    [
        (10, "SIGTERM", False),
        (12, "SIGTERM", False),
        (99, "SIGTERM", True),
        (0, "SIGTERM", True),
        (99, "SIGINT", False),
        (None, "SIGHUP", False),
    ],
)
def test_a_child_that_somebody_outside_of_the_run_ended_is_news(sender: int | None, signal: str, news: bool) -> None:
    fault = Fault(signal=signal, code="SI_USER", sender=sender, sent_by_itself=None if sender is None else False)
    crash = Crash(pid=11, fault=fault, exit=Exit(kind="signaled", signal=signal))
    processes = (COMMAND, Process(pid=11, parent=10), Process(pid=12, parent=10))
    made = document.of_run(end_of(processes=processes, crashes=(crash,)), ["x"], crash_rules())
    assert bool(document.news(made).reports) is news


def test_a_child_that_was_killed_for_want_of_memory_is_news() -> None:
    crash = msgspec.structs.replace(died(11, "SIGKILL"), memory_events={"oom_kill": 1}, memory_limit=1 << 20)
    made = document.of_run(end_of(crashes=(crash,)), ["x"], crash_rules())
    (report,) = document.news(made).reports
    assert report.verdict is not None and report.verdict.rule == "out-of-memory-killed"


def test_what_necropsy_did_itself_is_no_news() -> None:
    made = document.of_run(end_of(crashes=(died(10, "SIGTERM"), died(11)), timed_out=True), ["x"], crash_rules())
    assert [report.pid for report in document.news(made, timed_out=True).reports] == [11]


def stood(pid: int, call: str, *python: str, kind: Literal["timeout", "running"] = "timeout") -> Crash:
    frames = tuple(Frame(index=place, kind="python", source=source) for place, source in enumerate(python))
    thread = Thread(tid=pid, waits=Wait(call=call), python=frames or None, frames=(Frame(index=0, kind="native"),))
    return Crash(pid=pid, exit=Exit(kind=kind), threads=(thread,))


@pytest.mark.parametrize(
    ("launcher", "told"),
    [
        (stood(10, "wait4"), [11]),
        (stood(10, "waitid", "/p/train.py"), [11]),
        (stood(10, "rt_sigsuspend"), [11]),
        (stood(10, "poll", "/p/selectors.py", "/p/subprocess.py", "/p/subprocess.py", "/p/train.py"), [11]),
        (stood(10, "futex", "/p/pool.py", "/p/train.py"), [10, 11]),
        (stood(10, "poll", "/p/train.py", "/p/a.py", "/p/b.py", "/p/subprocess.py"), [10, 11]),
    ],
)
def test_of_a_launcher_and_what_it_waits_for_the_latter_is_news(launcher: Crash, told: list[int]) -> None:
    """A shell between the two, of which nothing is told, changes nothing."""
    processes = (COMMAND, Process(pid=12, parent=10, role="child"), Process(pid=11, parent=12, role="child"))
    end = end_of(processes=processes, crashes=(launcher, stood(11, "nanosleep", "/p/x.py")), timed_out=True)
    whole = document.of_run(end, ["x"], crash_rules())
    assert [report.pid for report in whole.reports] == [10, 11]
    assert [report.pid for report in document.news(whole, timed_out=True).reports] == told


def test_who_waits_for_a_child_of_which_nothing_is_known_is_news() -> None:
    processes = (COMMAND, Process(pid=11, parent=10, role="child"))
    whole = document.of_run(end_of(processes=processes, crashes=(stood(10, "wait4"),)), ["x"], crash_rules())
    assert [report.pid for report in document.news(whole, timed_out=True).reports] == [10]


def test_a_plain_failure_is_news_only_with_a_native_cause() -> None:
    def news_of(log: str) -> bool:
        end = end_of(processes=(ended(kind="exited", code=1),), log_tail=log)
        return bool(document.news(document.of_run(end, ["x"], crash_rules())).reports)

    traceback = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n'
    assert not news_of(traceback + "ValueError: 3\n")
    assert not news_of("usage: x [-h]\n")
    assert news_of(
        traceback + "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
    )


def test_time_to_report_needs_a_time() -> None:
    now = datetime.now(timezone.utc).isoformat()
    took = [report.took_s for report in of(end_of(crashes=(died(10, at=now), died(11), died(12, at="yesterday"))))]
    assert took[0] is not None
    assert took[1:] == [None, None]


def test_ids_sort_by_time() -> None:
    early = document.new_id(lambda: datetime(2026, 11, 21, 0, 45, 12, tzinfo=timezone.utc))
    late = document.new_id(lambda: datetime(2026, 11, 21, 0, 45, 13, tzinfo=timezone.utc))
    assert re.fullmatch(r"20261121T004512Z-[0-9a-f]{8}", early)
    assert early < late


def test_a_report_of_a_run_does_not_advise_to_run_it_under_necropsy() -> None:
    segv = died(10)
    bare = msgspec.structs.replace(segv, fault=None)
    for end in (end_of(crashes=(segv, bare)), end_of(processes=(ended(kind="exited", code=3),))):
        for report in of(end):
            for one in (report.verdict, *report.alternatives):
                assert one is not None
                assert one.fixes
                told = [*(fix.command for fix in one.fixes), *(cause.command for cause in one.possible)]
                assert not [command for command in told if "necropsy run python" in (command or "")]


def test_an_exception_that_was_read_from_memory_explains_the_commands_end() -> None:
    from necropsy.capture.linux.stderr.last_messages import as_crash
    from necropsy.capture.run_options import Said

    text = 'Traceback (most recent call last):\n  File "/home/u/a.py", line 3, in load\nOSError: no disk'
    verdicts = []
    for said in (as_crash(10, Said("uncaught", text)), as_crash(10, Said("handled", text))):
        (report,) = of(end_of(processes=(ended(kind="exited", code=1),), ends={10: said}))
        assert report.verdict is not None
        assert "OSError: no disk" in report.verdict.summary
        verdicts.append((report.verdict.rule, report.verdict.confidence))
    assert verdicts == [("python-exception", "certain"), ("python-exception", "likely")]
