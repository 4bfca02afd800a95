"""Which death of a run explains which: what links a parent's end to a worker's death, and what does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from necropsy import document
from necropsy.data import table
from necropsy.formats import exit_status, lost_workers
from necropsy.formats.log import scan
from necropsy.github import annotation
from necropsy.model import Crash, Document, Exit, Fault, Frame, Message, Process, RunRecord, Thread
from necropsy.reports import html, markdown, text
from necropsy.rules import crash_rules

COMMAND, PARENT, WORKER, OTHER = 1000, 1001, 1002, 1003
_AT = "2026-11-22T16:00:{:02}.000000+00:00"


def process(pid: int, parent: int | None, seconds: float, **end: Any) -> Process:
    """Started at second 0, over after ``seconds``."""
    return Process(
        pid=pid,
        parent=parent,
        role="command" if pid == COMMAND else "child",
        command=("python", f"{pid}.py"),
        started=_AT.format(0),
        wall_s=seconds,
        exit=Exit(**end),
    )


def died(pid: int, signal: str, second: int, *, log: str | None = None, **fault: Any) -> Crash:
    return Crash(
        pid=pid,
        at=_AT.format(second),
        fault=Fault(signal=signal, **fault),
        exit=Exit(kind="signaled", signal=signal),
        log_tail=log,
    )


def run(log: str | None, *crashes: Crash, code: int = 1, more: Sequence[Process] = ()) -> Document:
    """A command that fails after 9 seconds, and what died in it before."""
    known = {one.pid for one in more}
    dead = [
        process(one.pid or 0, COMMAND, 5, kind="signaled", signal=one.fault.signal if one.fault else None)
        for one in crashes
        if one.pid not in known
    ]
    own = process(COMMAND, 1, 9, kind="exited", code=code)
    return document.of_run(
        RunRecord(processes=(own, *more, *dead), crashes=crashes, log_tail=log), ["x"], crash_rules()
    )


def links(made: Document) -> list[tuple[int | None, int | None]]:
    return [(one.pid, one.consequence_of) for one in made.reports]


def raised(last: str) -> str:
    return f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    work()\n{last}\n'


CAUSED = [(WORKER, None), (COMMAND, WORKER)]
APART = [(COMMAND, None), (WORKER, None)]


@pytest.mark.parametrize(
    "last",
    [
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while",
        "loky.process_executor.TerminatedWorkerError: A worker process managed by the executor was unexpectedly terminated.",
        "nbclient.exceptions.DeadKernelError: Kernel died",
        f"RuntimeError: DataLoader worker (pid(s) {WORKER}) exited unexpectedly",
        f"RuntimeError: DataLoader worker (pid {WORKER}) is killed by signal: Segmentation fault. ",
        "subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGSEGV: 11>.",
        "subprocess.CalledProcessError: Command 'x' returned non-zero exit status 139.",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV",
        "EOFError",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "RuntimeError: helper failed with -11",
        "RuntimeError: the child got signal 11",
        f"mine.Lost: where is {WORKER}?",
        "mine.Gone: the render process died",
    ],
)
def test_a_parents_last_words_make_its_end_a_consequence(last: str) -> None:
    made = run(raised(last), died(WORKER, "SIGSEGV", 5))
    assert links(made) == CAUSED
    verdict = made.reports[1].verdict
    assert verdict is not None and verdict.rule == "python-exception"
    assert f"process {WORKER} (python {WORKER}.py)" in verdict.summary
    assert "not a native crash" not in verdict.summary
    assert any(last.strip()[:60] in one.seen for one in verdict.evidence)
    assert [one.pid for one in document.news(made).reports] == [WORKER, COMMAND]


@pytest.mark.parametrize(
    "log",
    [
        "make: *** [Makefile:2: all] Segmentation fault (core dumped)",
        "make: *** [Makefile:2: all] Error 139",
        "[gw0] node down: Not properly terminated",
        "worker 'gw0' crashed while running 'test_x.py::test_a'",
    ],
)
def test_the_last_lines_of_a_program_that_is_not_python(log: str) -> None:
    assert links(run(f"{log}\n", died(WORKER, "SIGSEGV", 5), code=2)) == CAUSED


@pytest.mark.parametrize(
    ("log", "signal", "fault"),
    [
        pytest.param(raised("ValueError: 3"), "SIGSEGV", {}, id="an exception of its own"),
        pytest.param(raised("ValueError: 11 is too large"), "SIGSEGV", {}, id="a number of its own"),
        pytest.param(raised("EOFError: EOF when reading a line"), "SIGSEGV", {}, id="its input ended"),
        pytest.param(
            raised("RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"), "SIGSEGV", {}, id="another pid"
        ),
        pytest.param(
            raised("subprocess.CalledProcessError: Command 'x' died with <Signals.SIGABRT: 6>."),
            "SIGSEGV",
            {},
            id="another end",
        ),
        pytest.param(raised("EOFError"), "SIGKILL", {}, id="killed, perhaps by itself"),
        pytest.param(
            raised("BrokenProcessPool: A process in the process pool was terminated abruptly"),
            "SIGTERM",
            {"code": "SI_USER", "sender": COMMAND, "sent_by_itself": False},
            id="ended by its parent",
        ),
        pytest.param(
            "bash: line 1: 4711 Segmentation fault  x\n" + "at work\n" * 9 + raised("ValueError: 3"),
            "SIGSEGV",
            {},
            id="words of long ago",
        ),
        pytest.param(None, "SIGSEGV", {"handled_first": True}, id="nothing was read"),
    ],
)
def test_that_one_came_after_the_other_is_not_enough(log: str | None, signal: str, fault: dict[str, Any]) -> None:
    made = run(log, died(WORKER, signal, 5, **fault))
    assert dict(links(made)) == {COMMAND: None, WORKER: None}


def test_words_that_stood_in_the_log_before_are_no_answer_to_the_death() -> None:
    words = "RuntimeError: the render process died"
    assert links(run(f"{words}\n", died(WORKER, "SIGSEGV", 5))) == CAUSED
    assert [of for _, of in links(run(f"{words}\n", died(WORKER, "SIGSEGV", 5, log=f"{words}\n")))] == [None, None]


def test_an_exception_that_was_read_elsewhere_than_in_the_log() -> None:
    text = "A process in the process pool was terminated abruptly"
    fields = {"exception": "concurrent.futures.process.BrokenProcessPool", "text": text}
    message = Message(kind="python-traceback", text="BrokenProcessPool", where="memory", fields=fields)
    assert [one.text for one in lost_workers.last_words("", message)][:1] == [f"{fields['exception']}: {text}"]


def test_a_worker_that_was_killed_is_the_cause_where_the_parent_misses_it() -> None:
    """The kernel tells no sender of SIGKILL: who says that it lost a worker has not killed it."""
    words = "A process in the process pool was terminated abruptly while the future was running or pending."
    made = run(raised(f"concurrent.futures.process.BrokenProcessPool: {words}"), died(WORKER, "SIGKILL", 5))
    assert links(made) == CAUSED
    assert [one.pid for one in document.news(made).reports] == [WORKER, COMMAND]
    made = run(raised("multiprocessing.context.TimeoutError"), died(WORKER, "SIGKILL", 5))
    assert links(made) == CAUSED, "a pool ends its workers by SIGTERM, and waits for ever for one that is gone"
    alone = run(raised("ValueError: 3"), died(WORKER, "SIGKILL", 5))
    assert links(alone) == APART
    assert document.news(alone).reports == ()


def test_of_several_the_first_that_crashed_is_the_cause() -> None:
    words = raised(
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly"
    )
    made = run(words, died(PARENT, "SIGKILL", 3), died(WORKER, "SIGSEGV", 5), died(OTHER, "SIGABRT", 6))
    assert links(made) == [(WORKER, None), (COMMAND, WORKER), (PARENT, None), (OTHER, None)]


@pytest.mark.parametrize(("code", "signal"), [(139, "SIGSEGV"), (134, "SIGABRT"), (245, "SIGSEGV"), (137, "SIGKILL")])
def test_a_status_that_is_passed_on(code: int, signal: str) -> None:
    made = run(None, died(WORKER, signal, 5), code=code)
    assert links(made) == CAUSED
    verdict = made.reports[1].verdict
    assert verdict is not None and verdict.confidence == "certain"


def test_a_status_that_stands_for_another_signal() -> None:
    assert COMMAND not in dict(links(run(None, died(WORKER, "SIGSEGV", 5), code=134))).values()
    assert [of for _, of in links(run(None, died(WORKER, "SIGSEGV", 5), code=134))] == [None, None]


def test_a_death_after_the_end_is_no_cause() -> None:
    assert [of for _, of in links(run(None, died(WORKER, "SIGSEGV", 20), code=139))] == [None, None]


def test_a_signal_that_is_passed_on() -> None:
    """As timeout(1) does: it ends itself by the signal that its child died of."""
    raised_again = died(COMMAND, "SIGSEGV", 8, code="SI_TKILL", sender=COMMAND, sent_by_itself=True)
    assert links(run(None, died(WORKER, "SIGSEGV", 5), raised_again)) == CAUSED
    own = died(COMMAND, "SIGABRT", 8, code="SI_TKILL", sender=COMMAND, sent_by_itself=True)
    assert links(run(None, died(WORKER, "SIGABRT", 5), own)) == APART, "abort() has a reason of its own"
    crash = died(COMMAND, "SIGSEGV", 8, code="SEGV_MAPERR", address=None)
    assert links(run(None, died(WORKER, "SIGSEGV", 5), crash)) == APART


def test_a_consequence_of_a_consequence_names_the_first_cause() -> None:
    between = died(PARENT, "SIGSEGV", 6, code="SI_TKILL", sender=PARENT, sent_by_itself=True)
    tree = (
        process(PARENT, COMMAND, 6, kind="signaled", signal="SIGSEGV"),
        process(WORKER, PARENT, 5, kind="signaled", signal="SIGSEGV"),
    )
    made = run(None, between, died(WORKER, "SIGSEGV", 5), code=139, more=tree)
    assert links(made) == [(WORKER, None), (COMMAND, WORKER), (PARENT, WORKER)]
    assert all(f"process {WORKER} (" in one.verdict.summary for one in made.reports[1:] if one.verdict)


def test_of_an_end_that_is_only_a_number_the_crash_before_it_is_told_first() -> None:
    made = run("at work\n", died(WORKER, "SIGSEGV", 5))
    assert links(made) == [(WORKER, None), (COMMAND, None)]


def test_every_format_tells_the_consequence() -> None:
    made = document.news(run(None, died(WORKER, "SIGSEGV", 5), code=139))
    said = f"This process ended because process {WORKER}"
    shown = text.render(made, width=200)
    assert [line for line in shown.splitlines() if said in line] == [
        f"necropsy: process {COMMAND}: {said} (python {WORKER}.py) had died by SIGSEGV: see above. (exit-status-only, certain)"
    ]
    assert shown.count("Evidence") == 1, "in one line"
    assert said in markdown.render(made)
    assert said in html.render(made)
    assert "more death" not in annotation(made), "it is no death of its own"


def test_the_examples_of_the_table_are_read() -> None:
    for row in table("lost_peers.toml")["exception"]:
        log = raised(row["example"])
        (traceback,) = scan(log)[:1]
        assert row["example"] in {one.text for one in lost_workers.last_words(log, traceback)}, row
    for row in table("lost_peers.toml")["words"]:
        assert [one.text for one in lost_workers.last_words(row["example"], None)] == [row["example"]], row


def test_the_sender_is_named_by_its_command() -> None:
    fault: dict[str, Any] = {
        "code": "SI_USER",
        "sender": 77,
        "sent_by_itself": False,
        "sender_command": ("timeout", "5", "x", "--token=hunter22hunter22"),
    }
    made = run(None, died(WORKER, "SIGTERM", 5, **fault))
    shown = text.render(made, width=300)
    assert "Process 77 (timeout 5 x --token=***) sent it SIGTERM" in shown
    assert "sent by process 77 (timeout 5 x --token=***)" in shown
    hidden = run(None, died(WORKER, "SIGTERM", 5, code="SI_USER", sender=0, sent_by_itself=False))
    assert "sent by a process that cannot be seen from here" in text.render(hidden, width=300)
    assert "process 0" not in text.render(hidden, width=300)


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        ("timeout 5 python x.py", 5),
        ("/usr/bin/timeout -s KILL -k 3 --foreground 0.5m x", 30),
        ("timeout --signal=TERM --kill-after 2 -v 1h x", 3600),
        ("busybox timeout -s 9 .5 x", 0.5),
        ("timeout -- 2d x", 172800),
        ("timeout 0 x", None),
        ("timeout", None),
        ("timeout -k", None),
        ("timeout x y", None),
        ("python timeout 5", None),
        ("", None),
    ],
)
def test_the_limit_of_a_timeout(command: str, seconds: float | None) -> None:
    assert exit_status.time_limit_of(command.split()) == seconds


def under_timeout(seconds: float, *crashes: Crash, code: int = 124) -> list[int | None]:
    """What is news where `timeout 5` has run for so long."""
    own = replace(process(COMMAND, 1, seconds, kind="exited", code=code), command=("timeout", "5", "x"))
    dead = [process(one.pid or 0, COMMAND, seconds, kind="signaled", signal="SIGABRT") for one in crashes]
    ended = RunRecord(processes=(own, *[one for one in dead if one.pid != COMMAND]), crashes=crashes)
    return [one.pid for one in document.news(document.of_run(ended, ["x"], crash_rules())).reports]


def test_a_timeout_that_fired_is_no_news() -> None:
    sent: dict[str, Any] = {"code": "SI_USER", "sender": COMMAND, "sent_by_itself": False}
    for signal in ("SIGABRT", "SIGTERM", "SIGUSR1"):
        assert under_timeout(5.1, died(WORKER, signal, 5, log=None, **sent)) == []
    itself = died(COMMAND, "SIGKILL", 5, code="SI_USER", sender=COMMAND, sent_by_itself=True)
    assert under_timeout(5.1, died(WORKER, "SIGKILL", 5), itself, code=137) == []
    # Not over yet, or a crash of its own.
    assert under_timeout(3, died(WORKER, "SIGABRT", 2, **sent)) == [WORKER]
    assert under_timeout(5.1, died(WORKER, "SIGSEGV", 4)) == [WORKER]
    counted = replace(died(WORKER, "SIGKILL", 4), memory_events={"oom_kill": 1}, memory_limit=1 << 20)
    assert under_timeout(5.1, counted) == [WORKER], "the kernel had no memory left"


@pytest.mark.parametrize(("code", "news"), [(0, []), (3, [WORKER])])
def test_who_is_ended_by_a_parent_that_ends_well_is_no_news(code: int, news: list[int]) -> None:
    sent: dict[str, Any] = {"code": "SI_USER", "sender": COMMAND, "sent_by_itself": False}
    made = run(None, died(WORKER, "SIGQUIT", 5, **sent), code=code)
    assert [one.pid for one in document.news(made).reports] == news


def test_a_process_that_waits_is_told_of_after_the_worker_that_it_had_lost() -> None:
    wait = Frame(index=0, kind="native", function="read", module="libc.so.6")
    waiting = Crash(
        pid=COMMAND,
        at=_AT.format(9),
        exit=Exit(kind="timeout"),
        threads=(Thread(tid=COMMAND, frames=(wait,)),),
    )
    killed = died(WORKER, "SIGKILL", 5, sender=WORKER, sent_by_itself=True)
    for crash in (died(WORKER, "SIGFPE", 5), killed):
        made = run(None, waiting, crash)
        verdicts = [(one.pid, one.verdict.rule if one.verdict is not None else None) for one in made.reports]
        assert [pid for pid, _ in verdicts] == [WORKER, COMMAND], crash.fault
        hang = made.reports[1].verdict
        assert hang is not None
        assert hang.rule == "hang"
        assert f"Process {WORKER}, which it had started, had died by" in hang.summary


def test_a_process_that_its_parent_ended_is_no_reason_to_wait() -> None:
    wait = Frame(index=0, kind="native", function="read", module="libc.so.6")
    waiting = Crash(
        pid=COMMAND, at=_AT.format(9), exit=Exit(kind="timeout"), threads=(Thread(tid=COMMAND, frames=(wait,)),)
    )
    made = run(None, waiting, died(WORKER, "SIGKILL", 5, sender=COMMAND, sent_by_itself=False))
    assert [one.pid for one in made.reports] == [COMMAND, WORKER]


def test_a_loss_names_the_worker_that_ended_with_a_code_of_its_own() -> None:
    last = "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly"
    gone = process(WORKER, COMMAND, 4, kind="exited", code=3)
    later = process(OTHER, COMMAND, 60, kind="exited", code=4)
    own = Crash(pid=COMMAND, exit=Exit(kind="exited", code=1), log_tail=raised(last), messages=scan(raised(last)))
    (report,) = run(raised(last), replace(own, at=_AT.format(9)), more=(gone, later)).reports
    assert report.verdict is not None
    assert report.verdict.summary.endswith(
        f"Process {WORKER}, which it had started, had ended with exit code 3 before."
    )
    assert "exit code 4" not in report.verdict.summary
    other = raised("ValueError: no such column")
    own = Crash(pid=COMMAND, exit=Exit(kind="exited", code=1), log_tail=other, messages=scan(other))
    (report,) = run(other, own, more=(gone,)).reports
    assert report.verdict is not None
    assert str(WORKER) not in report.verdict.summary
