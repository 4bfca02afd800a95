"""Sentences that say how a process ended: every form of the table by its own example, the shells as they really speak."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import needs
from necropsy.formats import exit_phrases
from necropsy.formats.exit_phrases import Form, forms, found_in
from necropsy.formats.readers import readers
from necropsy.formats.readers.endings import READERS
from necropsy.formats.readers.endings_shells import READER as SHELLS
from necropsy.model import Crash, Exit, Message
from reading import lines_of, only, pieces

READER, *BLOCKS = READERS
ALL = (READER, SHELLS, *BLOCKS)
WHYS = ("memory", "memory-limit", "not-memory", "time", "stopped", "preempted", "probe", "node", "shared-memory")
each_form = pytest.mark.parametrize("form", forms(), ids=lambda form: form.id)


def spelled(end: Exit | None) -> str:
    """The end as ``reads`` in the table spells it."""
    assert end is not None
    if end.kind == "signaled":
        return end.signal or ""
    if end.ntstatus is not None:
        return end.ntstatus.value
    return f"exit {end.code}" if end.kind == "exited" else end.kind


def said(crash: Crash) -> Message:
    """The only message of the crash."""
    assert crash.messages is not None
    (message,) = crash.messages
    return message


# ---------------------------------------------------------------- the table


@each_form
def test_the_example_is_read_as_it_says(form: Form) -> None:
    (line,) = lines_of(form.example)
    match = form.match(line)
    assert match is not None
    found = found_in(line)
    assert found is not None
    read_by, _, end = found
    assert spelled(end) == form.reads, read_by.id
    assert end.text
    assert read_by.id == form.id or read_by.why == form.why, f"an earlier form says less: {read_by.id}"


@each_form
def test_the_literal_stands_in_the_example_and_is_long_enough(form: Form) -> None:
    assert form.must in form.example
    assert len(form.must.encode()) >= 4


@each_form
def test_a_form_says_how_it_ended(form: Form) -> None:
    groups = set(form.pattern.groupindex)
    constants = [form.signal, form.exit, form.kind]
    assert bool(groups & {"code", "windows", "signal", "wait"}) != any(constants)
    assert form.kind in {None, "lost", "timeout"}
    assert form.why in {None, *WHYS}
    assert form.source in {"measured", "source", "docs", "issue"}


@each_form
def test_no_quantifier_is_unbounded(form: Form) -> None:
    assert not re.search(
        r"(?<!\\)(?:\)|\]|\w|\.)[*+](?!\*)", form.pattern.pattern.replace(r"\*", "").replace(r"\+", "")
    )


@each_form
def test_any_cut_of_an_example_is_taken(form: Form) -> None:
    for end in range(0, len(form.example), 3):
        pieces(form.example[:end], *ALL)


def test_the_readers_are_found_by_their_folder() -> None:
    assert set(ALL) <= set(readers())


# ---------------------------------------------------------------- facts beside the end


def test_whose_end_it_is() -> None:
    assert only("Worker (pid:4711) was sent SIGKILL! Perhaps out of memory?", READER).pid == 4711
    crash = only("traceback : Signal 11 (SIGSEGV) received by PID 4711", READER)
    assert crash.pid == 4711
    assert only("PID 0 on node n1 exited on signal 9 (Killed).", READER).pid is None


def test_what_ended_it() -> None:
    crash = only("slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-01-02T03:04:05 DUE TO TIME LIMIT ***", READER)
    assert crash.exit is not None and crash.exit.kind == "timeout"
    message = said(crash)
    assert (message.kind, message.fields) == ("ended-from-outside", {"by": "Slurm", "why": "time"})
    message = said(only("train-0   0/1     OOMKilled   5          12m", READER))
    assert (message.kind, message.fields["by"]) == ("memory-killed", "Kubernetes")
    assert only("Worker (pid:4711) was sent SIGKILL! Perhaps out of memory?", READER).messages is None, (
        "gunicorn guesses"
    )


def test_the_limit_on_memory() -> None:
    text = "Container is running beyond physical memory limits. Current usage: 2.1 GB of 2 GB physical memory used; x"
    assert only(text, READER).memory_limit == 2 << 30
    assert only("=>> PBS: job killed: mem 2000000kb exceeded limit 1000000kb", READER).memory_limit == 1000000 << 10
    assert (
        only("slurmstepd: error: Job 1 exceeded memory limit (5242880 > 4194304), being killed", READER).memory_limit
        == 4 << 30
    )
    assert exit_phrases.octets("1024 megabytes") == 1 << 30
    assert exit_phrases.octets("many") is None


def test_the_test_that_ran() -> None:
    crash = only("worker 'gw0' crashed while running 'tests/test_a.py::test_b[it's]'", READER)
    message = said(crash)
    assert message.fields["test"] == "tests/test_a.py::test_b[it's]"
    message = said(only("The kernel appears to have died. It will restart automatically.", READER))
    assert (message.kind, message.fields) == ("process-lost", {"by": "Jupyter"})


def test_windows_statuses_that_only_the_processor_raises_are_faults() -> None:
    def read(code: str) -> Crash:
        return only(f"Process finished with exit code {code}", READER)

    overflow = read("-1073741571 (0xC00000FD)")
    assert overflow.fault is not None and overflow.fault.signal == "SIGSEGV"
    assert overflow.crashed_thread is not None and overflow.crashed_thread.stack is not None
    division = read("-1073741676 (0xC0000094)")
    assert division.fault is not None and division.fault.code == "FPE_INTDIV"
    assert read("-1073741819 (0xC0000005)").fault is None, "which access it was nobody said"
    assert read("-1073740791 (0xC0000409)").fault is None
    crash = only("wine: Unhandled page fault on write access to 0000000000000010 at address 0000000140001450", READER)
    assert crash.fault is not None and (crash.fault.access, crash.fault.address) == ("write", 0x10)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("Process finished with exit code -1", "exit -1"),
        ("The program 'python.exe' has exited with code 4294967295 (0xffffffff).", "exit -1"),
        ("Process finished with exit code 0", "exit 0"),
        ("process finished with exit code -1073740940 (0xc0000374)", "0xC0000374"),
        ("[程序崩溃，退出代码为 3221226505 (0xC0000409)]", "0xC0000409"),
        ("##[error]Process completed with exit code 3.", "exit 3"),
        ("Error: Process completed with exit code 3221225477.", "0xC0000005"),
        ("train-1  | exited with code -11", "SIGSEGV"),
        ("Exit code -1073740791 means STATUS_STACK_BUFFER_OVERRUN on Windows.", "0xC0000409"),
        ("iot.service: main process exited, code=dumped, status=11/SEGV", "SIGSEGV"),
        ("E       subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGABRT: 6>.", "SIGABRT"),
        ("RuntimeError: DataLoader worker (pid 1) is killed by signal: Bus error. It is possible that", "SIGBUS"),
        ("make: *** [M:2: x] Speicherzugriffsfehler (Speicherauszug erstellt)", "SIGSEGV"),
        ("Worker exited prematurely: signal 9 (SIGKILL) Job: 0.", "SIGKILL"),
        ("Slave 'gw0' crashed while running 'test_suite.py::test_cpp_binding'", "lost"),
        ("4711.0|python|FAILED|0:11|", "SIGSEGV"),
        ("Generating pages... 0:00:00 $0.000Illegal instruction        (core dumped)", "SIGILL"),
    ],
)
def test_other_lines(text: str, reads: str) -> None:
    assert spelled(only(text, READER).exit) == reads


@pytest.mark.parametrize(
    "text",
    [
        "The year 134 is remembered for little. In 1973 the library counted 139 readers on a Tuesday.",
        "8877665 tests: expect SIGABRT in the death tests",
        "6655443 Do not segfault on an empty ragged tensor",
        "testing/test_crash.py::test_segfault_is_reported PASSED                  [ 16%]",
        "[2024-05-02 09:31:12 +0000] [9] [INFO] Worker exiting (pid: 9)",
        "3221226505 grains of sand fit into a bus. The error is ours.",
        "FAILED tests/test_a.py::test_b - assert 1 == 2",
        "retry with exit code 3 of the helper, then go on",
        "The thread 0x1a2b has exited with code  (0x0).",
        "With --check nothing is written; the exit code is 1 where a page differs.",
        "Python printed the traceback and exited with code 1. There is no native crash.",
        "# command to exit with status code 1 instead of 128 in this case",
        "killing the process group with signal SIGKILL",
        "##[error]Process completed with exit code 1.",
        "make: *** [Makefile:12: all] Error 1",
        "error: command '/usr/bin/gcc' failed with exit code 1",
        "The command '/bin/sh -c pip install x' returned a non-zero code: 1",
        "mov eax, 0xC0000005",
        "NtCreateFile failed with status 0xC0000034",
        "balance of account -1073700000",
        "id 3221225477 of the table",
        "[2026-11-21 14:22:40 +0000] [16718] [INFO] Worker (pid:16770) was sent SIGTERM!",
        "2026-11-21 14:23:03,717 INFO stopped: train (terminated by SIGTERM)",
        "2026-11-21 14:23:03,717 INFO exited: train (exit status 0; expected)",
        "4/5 Test #4: d ................................***Failed    0.00 sec",
        "Killed in action: a story in 12 parts",
        "She was Killed (see page 4)",
        "Aborted, because the user said so",
        "Abandon",
        "Beendet",
        "pool exit status: ok",
        "request 1 exited with status ok",
        "returncode=0",
        "handles signal 11 (SIGSEGV) by printing a stack",
        '"exit_code_policy": 3',
        "Running: true",
        "Reason: Completed",
        "    Exit Code:    0",
    ],
)
def test_what_is_no_end(text: str) -> None:
    assert pieces(text, *ALL) == []


# ---------------------------------------------------------------- shells

SHELL_LINES = [
    # bash 5.2, measured in a script and by `bash -c`
    ("t.sh: line 2:  9550 Segmentation fault      (core dumped) python3 crash.py 11", "SIGSEGV", 9550),
    ("t.sh: line 4:  9634 Killed                  python3 crash.py 9", "SIGKILL", 9634),
    ("t.sh: line 6:  9718 Floating point exception(core dumped) ( python3 crash.py 8 )", "SIGFPE", 9718),
    ("bash: 13541 Aborted                 (core dumped) python3 crash.py 6", "SIGABRT", 13541),
    ("t.sh: Zeile 2: 11121 Speicherzugriffsfehler  (Speicherabzug geschrieben) python3 crash.py 11", "SIGSEGV", 11121),
    ("t.sh: Zeile 4: 11205 Getötet                python3 crash.py 9", "SIGKILL", 11205),
    ("t.sh : ligne 2 : 11376 Erreur de segmentation  (core dumped)python3 crash.py 11", "SIGSEGV", 11376),
    ("t.sh : ligne 4 : 11460 Processus arrêté      python3 crash.py 9", "SIGKILL", 11460),
    ("t.sh: línea 2: 11652 Violación de segmento  (`core' generado) python3 crash.py 11", "SIGSEGV", 11652),
    ("t.sh: línea 4: 11736 Terminado (killed)      python3 crash.py 9", "SIGKILL", 11736),
    ("t.sh: строка 3: 11949 Аварийный останов         (образ памяти сброшен на диск) python3 crash.py 6", "SIGABRT", 11949),
    ("t.sh: 第 2 行：12162 段错误               （核心已转储）python3 crash.py 11", "SIGSEGV", 12162),
    ("t.sh: 第 4 行：12246 已杀死               python3 crash.py 9", "SIGKILL", 12246),
    ("t.sh: 3 行: 12459 中止                  (コアダンプ) python3 crash.py 6", "SIGABRT", 12459),
    # interactive, dash, ninja, tcsh
    ("Segmentation fault (core dumped)", "SIGSEGV", None),
    ("Segmentation fault", "SIGSEGV", None),
    ("Segmentation fault (core dumped) python x.py", "SIGSEGV", None),
    ("Aborted (core dumped)", "SIGABRT", None),
    ("Abort (core dumped)", "SIGABRT", None),
    ("Killed", "SIGKILL", None),
    ("Speicherzugriffsfehler (Speicherabzug geschrieben)", "SIGSEGV", None),
    ("段错误 (核心已转储)", "SIGSEGV", None),
    ("已放弃 (核心已转储)", "SIGABRT", None),
    ("Illegal instruction (core dumped)", "SIGILL", None),
    ("Trace/breakpoint trap (core dumped)", "SIGTRAP", None),
    # ksh93, zsh 5.9, measured; jobs
    ("ksh93: 13236: Memory fault(coredump)", "SIGSEGV", 13236),
    ("ksh93: 13278: Killed", "SIGKILL", 13278),
    ("zsh: segmentation fault (core dumped)  python3 crash.py 11", "SIGSEGV", None),
    ("zsh: IOT instruction (core dumped)  python3 crash.py 6", "SIGABRT", None),
    ("zsh: killed     python3 crash.py 9", "SIGKILL", None),
    ("zsh: abort      python3 train.py", "SIGABRT", None),
    ("zsh: illegal hardware instruction  python3 -c 'import tensorflow'", "SIGILL", None),
    ("[1]    23847 segmentation fault  python3 train.py", "SIGSEGV", 23847),
    ("[1]  + 23847 segmentation fault  python3 train.py", "SIGSEGV", 23847),
    ("[1]+  Segmentation fault      (core dumped) python3 train.py", "SIGSEGV", None),
    ("[1]+  Killed                  python3 train.py", "SIGKILL", None),
    # macOS
    ("Segmentation fault: 11", "SIGSEGV", None),
    ("Killed: 9", "SIGKILL", None),
    ("Abort trap: 6", "SIGABRT", None),
    ("./run.sh: line 3: 4711 Illegal instruction: 4  python3 train.py", "SIGILL", 4711),
]  # fmt: skip


@pytest.mark.parametrize(("text", "signal", "pid"), SHELL_LINES, ids=lambda value: str(value)[:50])
def test_a_shells_line(text: str, signal: str, pid: int | None) -> None:
    found = pieces(text, READER, SHELLS)
    assert {spelled(piece.crash.exit) for piece in found} == {signal}
    assert pid in {piece.crash.pid for piece in found}


@pytest.mark.skipif(sys.platform != "linux", reason="signals of Linux")
@pytest.mark.parametrize(
    "shell", [pytest.param(name, marks=needs.command(name)) for name in ("bash", "dash", "ksh93", "busybox")]
)
@pytest.mark.parametrize(
    ("number", "name"), [(11, "SIGSEGV"), (6, "SIGABRT"), (9, "SIGKILL"), (8, "SIGFPE"), (4, "SIGILL")]
)
def test_what_a_real_shell_says(shell: str, number: int, name: str) -> None:
    kill = f"{sys.executable} -c 'import os; os.kill(os.getpid(), {number})'"
    command = [shell, "sh", "-c"] if shell == "busybox" else [shell, "-c"]
    done = subprocess.run([*command, f"ulimit -c 0; {kill}; true"], capture_output=True, text=True, check=False)
    found = pieces(done.stderr.strip(), READER, SHELLS)
    assert {spelled(piece.crash.exit) for piece in found} == {name}, done.stderr


@needs.command("make")
def test_what_a_real_make_says(tmp_path: object) -> None:
    makefile = f"x:\n\t@{sys.executable} -c 'import os; os.kill(os.getpid(), 11)'\ny:\n\t@exit 139\n"
    for target in ("x", "y"):
        done = subprocess.run(["make", "-f", "-", target], input=makefile, capture_output=True, text=True, check=False)
        found = pieces(done.stderr, READER)
        assert {spelled(piece.crash.exit) for piece in found} == {"SIGSEGV"}, done.stderr


# ---------------------------------------------------------------- several lines

INSPECT = """    "State": {
        "Status": "exited",
        "Running": false,
        "OOMKilled": %s,
        "Dead": false,
        "Pid": 0,
        "ExitCode": %d,
        "Error": "",
"""

DESCRIBE = """    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Tue, 02 Jan 2024 03:04:05 +0000
      Finished:     Tue, 02 Jan 2024 03:05:06 +0000
    Ready:          False
    Restart Count:  5
    Limits:
      cpu:     1
      memory:  512Mi
"""


def block(text: str) -> Crash:
    (piece,) = pieces(text, *BLOCKS)
    return piece.crash


def why(crash: Crash) -> list[tuple[str, str]]:
    return [(message.kind, message.fields["by"]) for message in crash.messages or ()]


def test_docker_inspect() -> None:
    killed = block(INSPECT % ("true", 137))
    assert spelled(killed.exit) == "SIGKILL"
    assert why(killed) == [("memory-killed", "Docker")]
    assert why(block(INSPECT % ("false", 137))) == [("memory-not-it", "Docker")]
    assert spelled(block(INSPECT % ("false", 139)).exit) == "SIGSEGV"
    assert pieces(INSPECT % ("false", 0), *BLOCKS) == []
    running = (INSPECT % ("false", 0)).replace('"Running": false', '"Running": true')
    assert pieces(running, *BLOCKS) == []
    one_line = '{"Status":"exited","Running":false,"OOMKilled":true,"ExitCode":137,"Error":""}'
    assert why(block(one_line)) == [("memory-killed", "Docker")]


def test_kubectl_describe() -> None:
    crash = block(DESCRIBE)
    assert spelled(crash.exit) == "SIGKILL"
    assert crash.exit is not None and crash.exit.text == "Reason:       OOMKilled Exit Code:    137"
    assert why(crash) == [("memory-killed", "Kubernetes")]
    assert crash.memory_limit == 512 << 20
    error = block(DESCRIBE.replace("OOMKilled", "Error").replace("137", "139"))
    assert spelled(error.exit) == "SIGSEGV"
    assert error.messages is None


@pytest.mark.parametrize(
    "text",
    [
        "      lastState:\n        terminated:\n          exitCode: 137\n          reason: OOMKilled\n",
        '  "termination": {\n    "exitCode": 137,\n    "reason": "OOMKilled",\n',
        "{'exit_code': 137,\n 'message': None,\n 'reason': 'OOMKilled',\n 'signal': None}",
    ],
)
def test_the_api_of_kubernetes(text: str) -> None:
    crash = block(text)
    assert spelled(crash.exit) == "SIGKILL"
    assert why(crash) == [("memory-killed", "Kubernetes")]


def test_a_reason_belongs_to_its_own_container() -> None:
    other = "    Exit Code: 139\n    Reason: Error\n\n\n    Exit Code: 137\n    Reason: OOMKilled\n"
    assert [spelled(piece.crash.exit) for piece in pieces(other, *BLOCKS)] == ["SIGSEGV", "SIGKILL"]


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("PS C:\\work> $LASTEXITCODE\n-1073741819\n", "0xC0000005"),
        ("C:\\work> echo %ERRORLEVEL%\n-1073740791\n", "0xC0000409"),
        ("C:\\work> echo %ERRORLEVEL%\n\n3\n", "exit 3"),
        ("$ echo $?\n139\n", "SIGSEGV"),
        ("$ echo $?\n127\n", "exit 127"),
        ("> echo $status\n134\n", "SIGABRT"),
        ("Command exit status:\n  137\n", "SIGKILL"),
    ],
)
def test_asked_and_answered(text: str, reads: str) -> None:
    assert spelled(block(text).exit) == reads


def test_asked_and_not_answered() -> None:
    assert pieces("$ echo $?\nhello\n139\n", *BLOCKS) == []
    assert pieces("if [ $LASTEXITCODE -ne 0 ]; then\n139\n", *BLOCKS) == []


def test_a_lambda_that_used_all_its_memory() -> None:
    report = "REPORT RequestId: 1c2d\tDuration: 1 ms\tMemory Size: 512 MB\tMax Memory Used: %d MB\n"
    error = "RequestId: 1c2d Error: Runtime exited with error: signal: killed\n"
    crash = block(error + report % 512)
    assert why(crash) == [("memory-killed", "AWS Lambda")]
    assert crash.memory_limit == 512 << 20
    assert pieces(error + report % 300, *BLOCKS) == [], "it was killed for something else"
    assert pieces(report % 512, *BLOCKS) == [], "a function may use all of it and live"
