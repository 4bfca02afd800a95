"""What is concluded from sentences that say how a process ended: texts as people post them, through all readers."""

from __future__ import annotations

from io import BytesIO

import pytest

from necropsy import explanation
from necropsy.formats import exit_status
from necropsy.model import Diagnosis
from necropsy.rules import crash_rules
from necropsy.rules.exit_causes import of_code, of_signal, of_status


def judged(text: str, *words: str) -> Diagnosis:
    document = explanation.explain(["-", *words], crash_rules, stdin=BytesIO(text.encode())).document
    assert document is not None
    (report,) = document.reports
    assert not [gap for gap in report.gaps if gap.part.startswith("rule ")], report.gaps
    assert report.verdict is not None
    return report.verdict


def pycharm(status: int) -> str:
    signed = status - (1 << 32) if status >= 1 << 31 else status
    return f"Process finished with exit code {signed} (0x{status:08X})\n"


@pytest.mark.parametrize(
    ("status", "rule", "confidence"),
    [
        (0xC0000409, "exit-status-only", "possible"),
        (0xC0000005, "exit-status-only", "possible"),
        (0xC0000142, "exit-status-only", "possible"),
        (0xC0000417, "fast-fail", "likely"),
        (0xC0000602, "fast-fail", "likely"),
        (0xC00000FD, "stack-overflow-recursion", "likely"),
        (0xC0000374, "heap-corruption", "certain"),
        (0xC000001D, "illegal-instruction", "likely"),
        (0xC0000094, "integer-divide-by-zero", "certain"),
        (0xC0000096, "illegal-instruction", "certain"),
        (0xC0000006, "bus-error", "likely"),
        (0xC0000017, "allocation-failed", "likely"),
        (0xC000012D, "allocation-failed", "likely"),
        (0xC0000135, "missing-library", "likely"),
        (0xC000007B, "missing-library", "likely"),
        (0xC06D007E, "missing-library", "likely"),
        (0xC0000138, "undefined-symbol", "likely"),
        (0xC0000139, "undefined-symbol", "likely"),
        (0xC06D007F, "undefined-symbol", "likely"),
        (0xC0000420, "assertion-failed", "likely"),
        (0xE06D7363, "uncaught-cpp-exception", "certain"),
        (0x80000003, "deliberate-trap", "likely"),
        (0x40000015, "abort", "likely"),
        (0xC000013A, "killed-by-signal", "likely"),
        (0x40010004, "killed-by-signal", "likely"),
    ],
    ids=lambda value: f"{value:#x}" if isinstance(value, int) else value,
)
def test_a_status_of_windows_alone(status: int, rule: str, confidence: str) -> None:
    verdict = judged(pycharm(status))
    assert (verdict.rule, verdict.confidence) == (rule, confidence), verdict.summary


@pytest.mark.parametrize("status", [0xC0000409, 0xC0000005, 0xC0000142, 0xC0000417, 0xC0000135, 0xC000013A, 0xC0000374])
def test_what_a_status_leaves_open(status: int) -> None:
    possible = judged(pycharm(status)).possible
    assert possible == of_status(status)
    assert possible
    assert all(one.decide for one in possible)


def test_0xc0000409_alone_names_its_causes_by_how_often_they_were_confirmed() -> None:
    verdict = judged(pycharm(0xC0000409))
    assert [one.rule for one in verdict.possible][:2] == ["cudnn-version-mismatch", "uncaught-cpp-exception"]
    assert verdict.possible[0].share == "7 of 13 public reports with a confirmed cause"
    assert verdict.possible[-1].rule == "stack-smash"
    assert "wevtutil" in (verdict.fixes[0].command or "")


@pytest.mark.parametrize(
    ("code", "rule", "first"),
    [
        (139, "exit-status-only", "conflicting-libraries"),
        (134, "abort", "check-failed"),
        (137, "killed-by-signal", "out-of-memory-killed"),
        (135, "exit-status-only", "shared-memory-exhausted"),
        (133, "exit-status-only", "deliberate-trap"),
        (143, "killed-by-signal", "killed-by-signal"),
        (124, "exit-status-only", "hang"),
        (1, "exit-status-only", "python-exception"),
        (3, "exit-status-only", None),
        (255, "exit-status-only", None),
        (127, "exit-status-only", None),
    ],
)
def test_an_exit_code_alone(code: int, rule: str, first: str | None) -> None:
    verdict = judged(f"train_1 exited with code {code}\n")
    assert verdict.rule == rule
    assert verdict.confidence != "certain"
    assert verdict.possible[0].rule == first


def test_the_causes_are_rules_that_exist() -> None:
    names = {rule.name for rule in crash_rules()}
    codes = exit_status.read(["0xC0000409"])
    assert codes
    for possible in (of_status(0xC0000005), of_signal("SIGSEGV"), of_code(3), of_code(42)):
        assert {one.rule for one in possible if one.rule} <= names


# ---------------------------------------------------------------- who ended it says so


def test_oom_killed_is_believed() -> None:
    verdict = judged(
        "    Last State:  Terminated\n      Reason:    OOMKilled\n      Exit Code: 137\n    Limits:\n      memory:  512Mi\n"
    )
    assert (verdict.rule, verdict.confidence) == ("out-of-memory-killed", "certain")
    assert "as Kubernetes reports" in verdict.summary and "512 MiB" in verdict.summary


def test_137_and_not_oom_killed() -> None:
    verdict = judged('"Running": false,\n"OOMKilled": false,\n"ExitCode": 137,\n')
    assert verdict.rule == "killed-by-signal"
    assert "Docker counted no" in verdict.summary


def test_a_guess_about_memory_is_no_evidence() -> None:
    verdict = judged(
        "[2024-01-02 03:04:05 +0000] [1] [ERROR] Worker (pid:4711) was sent SIGKILL! Perhaps out of memory?\n"
    )
    assert verdict.rule == "killed-by-signal"


def test_the_batch_systems_memory_limit() -> None:
    verdict = judged("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.\n")
    assert verdict.rule == "out-of-memory-killed"
    assert verdict.summary.startswith("LSF killed the program")


def test_a_time_limit() -> None:
    verdict = judged("slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-01-02T03:04:05 DUE TO TIME LIMIT ***\n")
    assert (verdict.rule, verdict.confidence) == ("killed-by-signal", "certain")
    assert "Slurm ended it because its time was over" in verdict.summary


def test_who_waited_for_a_dead_process_is_ended_too() -> None:
    verdict = judged(
        "F0000 00:00:1795208908.409686    9695 hlo.cc:204] Check failed: a == b (1 vs. 2)\n"
        "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
    )
    assert verdict.rule == "check-failed"


def test_gunicorn_ends_a_worker_by_sigabrt() -> None:
    verdict = judged(
        "[2024-01-09 13:24:39 +0000] [1637] [CRITICAL] WORKER TIMEOUT (pid:7214)\n"
        "[2024-01-09 13:24:40 +0000] [1637] [WARNING] Worker with pid 7214 was terminated due to signal 6\n"
    )
    assert verdict.rule == "killed-by-signal"
    assert "WORKER TIMEOUT" in verdict.evidence[0].seen


def test_an_abort_is_one_whatever_slurm_does_later() -> None:
    verdict = judged(
        "srun: error: n1: task 0: Aborted (core dumped)\n"
        "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2024-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
    )
    assert verdict.rule == "abort"


# ---------------------------------------------------------------- a worker's last words


def test_a_launchers_exception_is_not_the_cause() -> None:
    verdict = judged(
        "Traceback (most recent call last):\n"
        '  File "/home/u/train.py", line 12, in <module>\n'
        "    main()\n"
        "ValueError: bad shape\n"
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 4711) of binary: python3\n"
        "Traceback (most recent call last):\n"
        '  File "/usr/bin/torchrun", line 8, in <module>\n'
        "    sys.exit(main())\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    assert verdict.rule == "python-exception"
    assert "ValueError: bad shape" in verdict.summary


def test_a_workers_last_words_are_the_cause() -> None:
    verdict = judged(
        "terminate called after throwing an instance of 'std::out_of_range'\n"
        "  what():  vector::_M_range_check\n"
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -6) local_rank: 0 (pid: 4711) of binary: python3\n"
        "  exitcode  : -6 (pid: 4711)\n"
        "  traceback : Signal 6 (SIGABRT) received by PID 4711\n"
    )
    assert (verdict.rule, verdict.confidence) == ("uncaught-cpp-exception", "certain")


def test_a_lost_worker_is_no_exception_of_its_parent() -> None:
    verdict = judged(
        "Traceback (most recent call last):\n"
        '  File "/home/u/train.py", line 12, in <module>\n'
        "    list(pool.map(f, range(3)))\n"
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future "
        "was running or pending.\n"
    )
    assert verdict.rule == "exit-status-only"
    assert "nothing says how it ended" in verdict.summary
    assert verdict.culprit is not None and verdict.culprit.python is not None
    assert verdict.culprit.python.line == 12
    assert [one.rule for one in verdict.possible] == [None, "out-of-memory-killed", None]


def test_a_lost_test_is_named() -> None:
    verdict = judged(
        "[gw1] node down: Not properly terminated\nworker 'gw1' crashed while running 'tests/test_a.py::test_b'\n"
    )
    assert "tests/test_a.py::test_b" in verdict.summary
    assert "-p no:xdist tests/test_a.py::test_b" in (verdict.fixes[0].command or "")


def test_shared_memory_of_a_data_loader() -> None:
    verdict = judged(
        "Traceback (most recent call last):\n"
        '  File "/home/u/train.py", line 12, in <module>\n'
        "    for x in loader:\n"
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's workers are "
        "out of shared memory. Please try to raise your shared memory limit.\n"
    )
    assert verdict.rule == "shared-memory-exhausted"


def test_a_library_that_is_named_beside_0xc0000409() -> None:
    verdict = judged(
        "Could not locate zlibwapi.dll. Please make sure it is in your library path!\n" + pycharm(0xC0000409)
    )
    assert (verdict.rule, verdict.confidence) == ("cuda-library-missing", "likely")


def test_a_code_that_was_given_and_one_in_the_text() -> None:
    text = b"Process finished with exit code 139\n"
    document = explanation.explain(["-", "137"], crash_rules, stdin=BytesIO(text)).document
    assert document is not None
    (found,) = document.reports[0].contradictions
    assert "137 (SIGKILL)" in found.said and "SIGSEGV" in found.against
