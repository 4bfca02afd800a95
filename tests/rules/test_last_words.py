"""The program's own last words: which lines are quoted, where no rule knows them, and how each report shows them."""

from __future__ import annotations

import json

import msgspec
import pytest

from necropsy import redact, serialize
from necropsy.diagnose import diagnose
from necropsy.model import Address, Crash, Diagnosis, Document, Exit, LastWords, Report, Subject, Tool
from necropsy.reports import html, markdown, text
from necropsy.rules import crash_rules
from necropsy.rules.last_words import last_words
from sketch import crash as sketched

ABORTED = """
    pid 4711
    signal SIGABRT SI_TKILL
    sent-by itself
    register rip=0x401000
    thread 4711 engine crashed
    frame raise @ libc.so.6
    frame abort @ libc.so.6
    frame open_catalog(char const*) @ engine.so
"""


def report_of(crash: Crash) -> Report:
    return diagnose(redact.crash(crash), crash_rules())


def verdict_of(crash: Crash) -> Diagnosis:
    verdict = report_of(crash).verdict
    assert verdict is not None
    return verdict


def aborted(*log: str) -> Crash:
    return sketched(ABORTED + "\n".join(f"log {line}" for line in log))


def test_an_abort_that_no_rule_knows_quotes_what_was_written_last() -> None:
    verdict = verdict_of(aborted("loaded 3 tables", "", "catalog: cannot open /data/x.db", "run `fsck` on the volume"))
    assert verdict.rule == "abort"
    assert "“catalog: cannot open /data/x.db run `fsck` on the volume” were the last words on stderr" in verdict.summary
    assert verdict.last_words is not None
    assert verdict.last_words.text.splitlines() == ["catalog: cannot open /data/x.db", "run `fsck` on the volume"]
    assert "no known message" not in verdict.summary


def test_without_a_word_nothing_is_quoted() -> None:
    silent = verdict_of(sketched(ABORTED))
    assert silent.last_words is None
    assert "what it wrote before was not seen" in silent.summary


@pytest.mark.parametrize(
    ("log", "quoted"),
    [
        pytest.param(
            [
                "engine: no plan",
                "Fatal Python error: Aborted",
                "",
                "Current thread 0x00007f (most recent call first):",
                '  File "t.py", line 3 in <module>',
                "",
                "Extension modules: numpy (total: 1)",
            ],
            "engine: no plan",
            id="faulthandler's dump is not theirs",
        ),
        pytest.param(
            ["engine: no plan", "", "goroutine 1 [running]:", "main.main()", "\t/src/main.go:7 +0x1d", "exit status 2"],
            "engine: no plan",
            id="a stack below them",
        ),
        pytest.param([f"step {n} loss 0.1" for n in range(50)] + ["engine: no plan"], "engine: no plan", id="long log"),
        pytest.param(
            ["2026-11-22 10:00:00 step 1", "2026-11-22 10:00:01 engine: no plan", "  it has no root"],
            "2026-11-22 10:00:01 engine: no plan\n  it has no root",
            id="the last message with a time stamp",
        ),
        pytest.param(["10%\r50%\rengine: no plan", "Aborted (core dumped)"], "engine: no plan", id="progress bar"),
    ],
)
def test_the_block_is_the_last_one_that_is_no_stack(log: list[str], quoted: str) -> None:
    words = last_words(Crash(log_tail="\n".join(log) + "\n", registers={"rip": Address(1)}))
    assert words is not None
    assert words.where == "the end of stderr"
    assert words.text.endswith(quoted)
    assert len(words.text.splitlines()) <= 6


def test_a_bad_exit_quotes_them_too() -> None:
    crash = Crash(
        pid=4711, exit=Exit(kind="exited", code=3), log_tail="config: line 3: bad key\nuse --help\n", messages=()
    )
    verdict = verdict_of(crash)
    assert verdict.rule == "exit-status-only"
    assert "“config: line 3: bad key use --help”" in verdict.summary
    assert "nothing else was seen" not in verdict.summary


def test_a_secret_in_them_stays_secret() -> None:
    verdict = verdict_of(aborted("login with password=hunter2hunter2 was refused"))
    assert "hunter2" not in verdict.summary
    assert verdict.last_words is not None
    assert "hunter2" not in verdict.last_words.text


def test_words_from_memory_say_where_they_are_from() -> None:
    crash = sketched(ABORTED)
    found = LastWords(text="engine: no plan", where="found in memory, not read from stderr")
    verdict = verdict_of(msgspec.structs.replace(crash, last_words=found))
    assert "“engine: no plan” were its last words (found in memory, not read from stderr)" in verdict.summary


def test_every_format_shows_the_lines_and_the_json_is_read_back() -> None:
    report = report_of(aborted("catalog: <cannot> open /data/x.db", "run fsck"))
    plain = text.render(report)
    assert "  > catalog: <cannot> open /data/x.db\n  > run fsck\n" in plain
    assert "catalog: <cannot> open /data/x.db\nrun fsck\n```" in markdown.render(report)
    document = Document(
        kind="diagnosis",
        id="x",
        tool=Tool(name="necropsy", version="0"),
        complete=True,
        subject=Subject(kind="log"),
        reports=(report,),
    )
    assert "catalog: &lt;cannot&gt; open /data/x.db\nrun fsck\n" in html.render(document)
    encoded = serialize.dumps(document)
    assert serialize.loads(encoded) == document
    old = json.loads(encoded)
    del old["reports"][0]["verdict"]["last_words"], old["reports"][0]["crash"]["last_words"]
    assert serialize.loads(json.dumps(old).encode()).reports[0].verdict is not None


@pytest.mark.parametrize(
    ("line", "condition", "message"),
    [
        ('python3: op.c:12: half: Assertion `n % 2 == 0 && "n must be even"\' failed.', "n % 2 == 0", "n must be even"),
        ('python3: op.c:12: half: Assertion `"n must be even" && n % 2 == 0\' failed.', "n % 2 == 0", "n must be even"),
        ('python3: op.c:12: half: Assertion `(a && b) && "both"\' failed.', "a && b", "both"),
    ],
)
def test_the_message_of_an_assertion_stands_in_the_headline(line: str, condition: str, message: str) -> None:
    verdict = verdict_of(aborted(line))
    assert verdict.rule == "assertion-failed"
    assert f"The assertion `{condition}`" in verdict.summary
    assert f"Its message: “{message}”." in verdict.summary


def test_the_message_of_a_check_stands_in_the_headline() -> None:
    line = "F20261121 00:00:00.123456  4711 shape.cc:356] Check failed: a == b (2 vs. 3) ranks differ"
    verdict = verdict_of(aborted(line))
    assert verdict.rule == "check-failed"
    assert "Its message: “ranks differ”." in verdict.summary


@pytest.mark.parametrize(
    ("tail", "left", "quoted", "where"),
    [
        ("MPI_ERR_RANK: invalid rank\n\n[vm] cleaning up\n", "MPI_ERR_RANK: invalid rank", None, "the end of stderr"),
        ("thread 'main' panicked at r.rs:8:\nbad magic\n", "thread 'main' panicked at r.rs:8:", "bad magic", ""),
        ("", "Terminating due to java.lang.OutOfMemoryError: Java heap space", None, "found in memory"),
        ("[1.2] exit hooks\n", "Terminating due to something else", "[1.2] exit hooks", ""),
    ],
    ids=["written before the last block", "a part of the last block", "written elsewhere", "not on stderr"],
)
def test_what_memory_holds_counts_where_the_last_block_does_not_say_it(
    tail: str, left: str, quoted: str | None, where: str
) -> None:
    found = last_words(
        Crash(
            pid=4711,
            exit=Exit(kind="exited", code=3),
            log_tail=tail,
            last_words=LastWords(text=left, where="found in memory, not read from stderr"),
        )
    )
    assert found is not None
    assert (quoted or left) in found.text
    assert where in found.where
