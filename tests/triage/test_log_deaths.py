"""Several deaths in one log: each is one death, whatever else the log says of it, and none is made of two."""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import dying_logs
import fleet
import pytest
from dying_logs import WAYS, died, mixed, prefixed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import necropsy
from necropsy import gathering
from necropsy.capture import separate_deaths
from necropsy.cli import main
from necropsy.formats import log_parts, log_sampler
from necropsy.formats.text_reports import TextReport
from necropsy.triage.deaths import DeathRow
from necropsy.triage.walk import walk

SLOWLY = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
PREFIXES = {
    "torchrun": "[rank{}]: ",
    "Ray": "(train pid={}77) ",
    "Kubernetes": "[pod/train-{}/main] ",
    "docker compose": "worker-{}  | ",
    "GitHub Actions": "2026-11-20T21:17:51.1234567Z ",
}


def rows(folder: Path, text: str | bytes, name: str = "a.log") -> list[DeathRow]:
    """The deaths in a file with this text."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    (found,) = walk([path]).files
    read = gathering.read_file(found)
    assert read.why is None
    return [row for row, _ in read.deaths]


def keys(found: Iterable[DeathRow]) -> list[str]:
    return sorted(one.key for one in found)


def alone(folder: Path, *texts: str) -> list[str]:
    """The keys of the deaths, each in a file of its own."""
    return keys(row for text in texts for row in rows(folder, text))


@pytest.mark.parametrize("way", WAYS)
def test_a_log_of_one_death_has_one(tmp_path: Path, way: str) -> None:
    (row,) = rows(tmp_path, died(way))
    assert (row.number, row.line) == (0, 2)
    assert row.end.startswith("SIG")


@given(st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 1)), min_size=1, max_size=7, unique=True))
@SLOWLY
def test_logs_in_one_file_have_the_deaths_of_all_files(tmp_path: Path, chosen: list[tuple[str, int]]) -> None:
    """The same processes die in another order, and some of them in the same way."""
    texts = [died(way, nth) for way, nth in chosen]
    together = rows(tmp_path, "".join(texts))
    assert keys(together) == alone(tmp_path, *texts)
    assert [one.number for one in together] == list(range(len(texts)))
    starts = [1 + sum(text.count("\n") for text in texts[:nth]) for nth in range(len(texts))]
    assert [one.line for one in together] == [start + 1 for start in starts]


@pytest.mark.parametrize("collector", PREFIXES)
@given(st.lists(st.sampled_from(WAYS), min_size=2, max_size=5, unique=True), st.randoms(use_true_random=False))
@SLOWLY
def test_a_collector_mixes_the_lines_of_processes(
    tmp_path: Path, collector: str, chosen: list[str], order: random.Random
) -> None:
    texts = [prefixed(died(way), PREFIXES[collector].format(nth)) for nth, way in enumerate(chosen)]
    names_them = "{}" in PREFIXES[collector]
    together = mixed(texts, order) if names_them else "".join(texts)
    assert keys(rows(tmp_path, together)) == alone(tmp_path, *map(died, chosen))


@given(
    st.lists(st.sampled_from(WAYS), min_size=1, max_size=4, unique=True),
    st.sampled_from(["tee", "summary", "captured", "quoted"]),
)
@SLOWLY
def test_the_same_text_once_more_is_no_other_death(tmp_path: Path, chosen: list[str], how: str) -> None:
    texts = [died(way) for way in chosen]
    whole = "".join(texts)
    if how == "tee":
        text = "".join(line + line for line in texts)
    elif how == "summary":
        text = f"{whole}\n=== summary ===\n{whole}"
    elif how == "captured":
        shown = "".join(f"----- Captured stderr call -----\n{one}" for one in reversed(texts))
        text = f"{whole}\n=================== FAILURES ===================\n{shown}=== 3 failed ===\n"
    else:
        text = whole + prefixed(whole, "E   ")
    assert keys(rows(tmp_path, text)) == alone(tmp_path, *texts)


def test_all_that_is_said_of_one_process_is_one_death(tmp_path: Path) -> None:
    text = (
        "malloc(): corrupted top size\n"
        "Fatal Python error: Aborted\n\n"
        "Current thread 0x00007f1c2a3b4740 (most recent call first):\n"
        '  File "/home/user/train.py", line 7 in score\n'
        "run.sh: line 3:  4711 Aborted                 (core dumped) python train.py\n"
        "Aborted (core dumped)\n"
        "make: *** [Makefile:3: train] Aborted (core dumped)\n"
        "##[error]Process completed with exit code 134.\n"
        "subprocess.CalledProcessError: Command 'make' died with <Signals.SIGABRT: 6>.\n"
    )
    assert [one.end for one in rows(tmp_path, text)] == ["SIGABRT"]


def test_a_sanitizer_and_the_abort_behind_it_are_one_death(tmp_path: Path) -> None:
    def report(pid: int, function: str) -> str:
        return (
            f"=================================================================\n=={pid}==ERROR: AddressSanitizer: "
            "heap-buffer-overflow on address 0x602000000014 at pc 0x55d0 bp 0x7ffd sp 0x7ffc\n"
            "READ of size 4 at 0x602000000014 thread T0\n"
            f"    #0 0x55d0c0 in {function} /src/rows.cc:12:10\n    #1 0x55d1c0 in main /src/main.cc:3:3\n\n"
            f"SUMMARY: AddressSanitizer: heap-buffer-overflow /src/rows.cc:12:10 in {function}\n=={pid}==ABORTING\n"
            "Aborted (core dumped)\n"
        )

    found = rows(tmp_path, report(100, "score") + report(101, "merge") + report(102, "score"))
    assert [(one.pid, one.function, one.source) for one in found] == [
        (100, "score", "sanitizer"),
        (101, "merge", "sanitizer"),
        (102, "score", "sanitizer"),
    ]


def dump(thread: int, function: str, signal: str = "Segmentation fault") -> str:
    return (
        f"Fatal Python error: {signal}\n\nCurrent thread 0x{thread:016x} (most recent call first):\n"
        f'  File "/home/user/train.py", line 7 in {function}\n'
    )


def test_forked_processes_have_the_same_numbers_of_threads(tmp_path: Path) -> None:
    first, second = dump(0x7F1C2A3B4740, "score"), dump(0x7F1C2A3B4740, "merge")
    assert len(rows(tmp_path, first + second)) == 2
    assert len(rows(tmp_path, first + first)) == 1
    # A second signal behind the first one, in the same thread at the same place.
    assert len(rows(tmp_path, first + dump(0x7F1C2A3B4740, "score", "Aborted"))) == 2


def test_what_may_be_of_two_deaths_is_evidence_of_neither(tmp_path: Path) -> None:
    text = dump(0x7F1C2A3B4740, "score") + dump(0x7F1C2A3B5740, "merge")
    text += "run.sh: line 3:  4711 Segmentation fault      python a.py\n"
    text += "run.sh: line 4:  4712 Segmentation fault      python b.py\n"
    assert [one.pid for one in rows(tmp_path, text)] == [None, None]


def test_in_doubt_it_is_one_death(tmp_path: Path) -> None:
    """Two jobs of make died, or one was told twice: no number of a process, and the same signal."""
    said = "make: *** [Makefile:3: {}] Segmentation fault (core dumped)\n"
    assert len(rows(tmp_path, said.format("a") + "all done\n" * 50 + said.format("b"))) == 1


def test_another_signal_is_another_death(tmp_path: Path) -> None:
    said = "make: *** [Makefile:3: {}] {} (core dumped)\n"
    found = rows(tmp_path, said.format("a", "Segmentation fault") + said.format("b", "Aborted"))
    assert [one.end for one in found] == ["SIGSEGV", "SIGABRT"]


def segfault(pid: int) -> str:
    return (
        f"[4242.10000{pid % 10}] python[{pid}]: segfault at 8 ip 00007f1c2a3b4740 sp 00007ffd00000000 error 4 "
        "in librows.so[7f1c2a3b4000+1000] likely on CPU 1 (core 1, socket 0)\n"
    )


def test_the_kernels_lines_are_of_the_processes_that_they_name(tmp_path: Path) -> None:
    text = dump(0x7F1C2A3B4740, "score") + "a.sh: line 3:  4711 Segmentation fault      python a.py\n"
    text += dump(0x7F1C2A3B5740, "merge") + "a.sh: line 3:  4712 Segmentation fault      python a.py\n"
    text += segfault(4712) + segfault(4711)
    found = rows(tmp_path, text)
    assert [(one.pid, one.python_function) for one in found] == [(4711, "score"), (4712, "merge")]
    # Of a container, where they have other numbers: either may be the first.
    assert len(rows(tmp_path, text.replace("python[4711]", "python[91]").replace("python[4712]", "python[92]"))) == 2
    # Two threads of one process may crash at once: the kernel numbers threads.
    assert len(rows(tmp_path, segfault(4711) + segfault(4712))) == 1


def test_who_is_killed_because_another_crashed_is_no_death_of_its_own(tmp_path: Path) -> None:
    killed = "a.sh: line 4:  {} Killed                  python b.py\n"
    text = dump(0x7F1C2A3B4740, "score") + "a.sh: line 3:  4711 Segmentation fault      python a.py\n"
    assert [one.end for one in rows(tmp_path, text + killed.format(4712))] == ["SIGSEGV"]
    assert [one.end for one in rows(tmp_path, killed.format(4712) + killed.format(4713))] == ["SIGKILL", "SIGKILL"]
    oom = "[42.1] Out of memory: Killed process {} (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB\n"
    found = rows(tmp_path, text + oom.format(5000) + killed.format(5000))
    assert [(one.end, one.rule) for one in found] == [
        ("SIGSEGV", "exit-status-only"),
        ("SIGKILL", "out-of-memory-killed"),
    ]


SUITE = """\
import ctypes, os
def test_ok(): pass
def test_null(): ctypes.string_at(0)
def test_abort(): os.abort()
def test_low(): ctypes.memset(8, 1, 4)
def test_fails(): assert 1 == 2
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_of_pytest_that_crashed(tmp_path: Path, workers: int) -> None:
    (tmp_path / "test_x.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(workers), "test_x.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert ran.stdout.count("crashed while running") > 3  # each of the three is told twice
    found = rows(tmp_path, ran.stdout)
    if workers > 1:  # lines of two dumps may be mixed
        assert 1 <= len(found) <= 3
        return
    assert sorted((one.python_line, one.end) for one in found) == [(3, "SIGSEGV"), (4, "SIGABRT"), (5, "SIGSEGV")]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no make")
@pytest.mark.parametrize("jobs", [1, 3])
def test_jobs_of_make(tmp_path: Path, jobs: int) -> None:
    ways = ["read", "write", "rank", "bus", "words"]
    program = shlex.join([sys.executable, str(dying_logs.PROGRAM)])
    (tmp_path / "Makefile").write_text(f"all: {' '.join(ways)}\n{' '.join(ways)}:\n\t{program} $@\n")
    ran = subprocess.run(
        ["make", "-k", f"-j{jobs}"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    ends = [one.end for one in rows(tmp_path, ran.stdout)]
    if jobs > 1:  # lines of two dumps may be mixed, and whose the words are is open
        assert 1 <= len(ends) <= len(ways)
        return
    assert ends == ["SIGSEGV", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGABRT"]


# ---------------------------------------------------------------- long logs


@given(
    st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 1)), min_size=1, max_size=8, unique=True),
    st.integers(6000, 20_000),
    st.integers(0, 200),
)
@SLOWLY
def test_where_a_log_is_cut_into_parts_does_not_matter(
    tmp_path: Path, chosen: list[tuple[str, int]], size: int, noise: int
) -> None:
    text = "".join(died(*one) + "step done, loss 0.1, nothing else of note\n" * noise for one in chosen)
    whole = rows(tmp_path, text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_parts, "SIZE", size)
        patched.setattr(log_sampler, "_BLOCK", 2000)
        cut = rows(tmp_path, text)
    assert [(one.number, one.line, one.key) for one in cut] == [(one.number, one.line, one.key) for one in whole]


@given(st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 1)), min_size=2, max_size=6, unique=True), st.data())
@SLOWLY
def test_a_log_that_grows_keeps_its_earlier_deaths(
    tmp_path: Path, chosen: list[tuple[str, int]], data: st.DataObject
) -> None:
    lines = "".join(died(*one) for one in chosen).splitlines(keepends=True)
    whole = {one.number: one for one in rows(tmp_path, "".join(lines))}
    early = rows(tmp_path, "".join(lines[: data.draw(st.integers(1, len(lines)))]))
    for one in early[:-1]:
        assert whole[one.number] == one
    for one in early[-1:]:  # it may not be complete
        assert (whole[one.number].number, whole[one.number].line) == (one.number, one.line)


@pytest.mark.slow
def test_a_long_log_has_every_death(tmp_path: Path) -> None:
    """More than are kept of one kind from both ends of a log that is explained."""
    count = 500
    noise = "2026-11-20 21:17:51,123 INFO step done, loss 0.1\n" * 100
    text = "".join(
        dump(0x7F0000000000 + nth, f"step_{nth}")
        + f"a.sh: line 1: {1000 + nth} Segmentation fault      python\n"
        + noise
        for nth in range(count)
    )
    found = rows(tmp_path, text)
    assert [one.python_function for one in found] == [f"step_{nth}" for nth in range(count)]
    assert [one.pid for one in found] == [1000 + nth for nth in range(count)]


def test_of_too_many_deaths_the_first_are_read_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate_deaths, "MOST", 3)
    monkeypatch.setattr(gathering, "MOST", 3)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("".join(died(way) for way in WAYS))
    for _ in range(2):  # the second time from the store
        document = necropsy.triage(tmp_path / "logs", store=tmp_path / "store")
        assert document.triage is not None
        assert document.triage.deaths == 3
        assert [one.why for one in document.gaps] == [
            f"{tmp_path}/logs/a.log: it tells of more than 3 deaths: the first 3 were read"
        ]


LINES = st.deferred(lambda: st.sampled_from([line for way in WAYS for line in died(way).splitlines(keepends=True)]))


@given(st.lists(LINES, max_size=60))
@settings(deadline=None, max_examples=50)
def test_lines_in_any_order_are_read(lines: list[str]) -> None:
    separator = separate_deaths.Separator()
    pieces: list[TextReport] = []
    for part in log_parts.parts(BytesIO("".join(lines).encode())):
        pieces += part.pieces
        separator.take(part.messages, part.pieces, part.writers)
    told = [piece for death in separator.deaths for piece in death.pieces]
    assert len(told) == len(set(map(id, told)))  # no text is evidence of two deaths
    assert len(separator.deaths) <= max(1, len(pieces) + sum(line.startswith(("F0", "term")) for line in lines))
    assert list(separator.rest()) != [] or not separator.deaths


def test_what_is_remembered_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a log is full of: words without an end, ends without a number, dumps of forked processes."""
    monkeypatch.setattr(separate_deaths, "_WORDS", 100)
    monkeypatch.setattr(separate_deaths, "MOST", 300)
    lines = [f"F0000 00:00:17.4 7 a.cc:2] Check failed: x{nth} > 0\n" for nth in range(1000)]
    lines += [dump(0x7F1C2A3B4740, f"f{nth}") for nth in range(1000)]
    lines += [f"a.sh: line 1: {nth} Segmentation fault      python\n" for nth in range(1000, 2000)]
    separator = separate_deaths.Separator()
    for part in log_parts.parts(BytesIO("".join(lines).encode())):
        separator.take(part.messages, part.pieces, part.writers)
    assert len(separator.deaths) == 300
    assert separator.more > 0
    assert max(len(one.messages) + len(one.pieces) for one in separator.deaths) <= 2 * separate_deaths._TEXTS
    assert len(separator._by_words) <= 100
    assert max(map(len, separator._by_thread.values())) <= separate_deaths.OPEN
    assert len(separator._by_pid) <= 300 + separate_deaths.OPEN


# ---------------------------------------------------------------- other ways in


def test_the_jobs_of_an_archive_are_logs_of_their_own(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("0_build.txt", died("read") + died("write"))
        archive.writestr("1_test.txt", died("rank"))
        archive.writestr("2_lint.txt", "all is well\n")
    found = rows(tmp_path, (tmp_path / "logs.zip").read_bytes(), "b.zip")
    assert keys(found) == alone(tmp_path, died("read"), died("write"), died("rank"))
    assert [(one.number, one.line) for one in found] == [(0, None), (1, None), (2, None)]


def test_the_texts_of_another_archive_are_one_log(tmp_path: Path) -> None:
    """stdout and stderr of one run."""
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("stderr.txt", fleet.LOG)
        archive.writestr("stdout.txt", fleet.LOG)
    assert len(rows(tmp_path, (tmp_path / "logs.zip").read_bytes(), "b.zip")) == 1


def test_one_report_is_about_one_death_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    path.write_text(died("rank") + died("size") + died("rank", 1))
    assert main(["explain", str(path)]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "the text tells of 3 deaths; this is the one at line 2, and `necropsy triage FILE` lists all" in said
    assert "rank >= 0" in said
    assert "size >= 0" not in said
    # Each of the others, as triage names them.
    assert main(["triage", str(path)]) == 0
    assert f"necropsy explain {path} --line" in capfd.readouterr().out
    second = 2 + died("rank").count("\n")
    assert main(["explain", str(path), "--line", str(second)]) == 0
    said = capfd.readouterr().out
    assert "size >= 0" in said
    assert "rank >= 0" not in said
    assert main(["explain", str(path), "--line", "1"]) == 65
    assert "tells of no death at line 1 or before" in capfd.readouterr().err
    assert main(["explain", "139", "--line", "1"]) == 2
    path.write_text(died("size"))
    assert main(["explain", str(path), "--line", "1"]) == 0
    assert main(["explain", str(path)]) == 0
    assert "the text tells of" not in capfd.readouterr().out
