"""What `necropsy explain` says: the claims that others get wrong are held here one by one."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from necropsy import explanation, serialize, store
from necropsy.errors import InputError, NoInputError, UnknownCodeError
from necropsy.formats.statuses import exit_codes, signals, statuses, subcodes
from necropsy.reports.terminal import columns
from necropsy.rules import crash_rules


def shown(*words: str, width: int = 80) -> str:
    return explanation.explain(words, crash_rules).text(width=width)


def flat(*words: str) -> str:
    return " ".join(shown(*words).split())


def test_0xc0000409_is_usually_abort() -> None:
    text = flat("0xC0000409")
    assert "this is usually abort()" in text
    assert "only the subcodes 0 and 2 are a smashed stack" in text
    assert "it is not in the exit status" in text
    causes = [
        text.index(cause)
        for cause in (
            "CUDA or cuDNN",
            "An uncaught C++ exception",
            "The C runtime refused",
            "qFatal",
            "another Python",
        )
    ]
    assert causes == sorted(causes), "by how often they were confirmed"
    assert "7 of 13" in text
    assert "none of 13 public threads with a confirmed cause was a proven one" in text


def test_the_two_statuses_that_are_mixed_up() -> None:
    assert "It is not 0xC0000409" in flat("-1073741571")
    assert "It is not a stack overflow (that is 0xC00000FD, -1073741571)" in flat("-1073740791")
    assert flat("-1073741571", "STATUS_STACK_BUFFER_OVERRUN").startswith("Note: -1073741571 (0xC00000FD")


def test_137_is_no_proof_of_memory() -> None:
    assert "The number alone does not say so" in flat("137")


@pytest.mark.parametrize("code", ["134", "139"])
def test_a_shells_number_can_be_the_programs_own(code: str) -> None:
    assert f"the program's own exit({code})" in flat(code)


def test_3_is_ambiguous() -> None:
    assert "Ambiguous" in flat("3")


def test_several_codes_are_each_explained() -> None:
    text = flat("139", "134")
    assert "139 is SIGSEGV" in text
    assert "134 is SIGABRT" in text


@pytest.mark.parametrize("rule", [rule.name for rule in crash_rules()])
def test_every_rule_has_its_page(rule: str) -> None:
    page = shown(rule)
    assert page.startswith(f"{rule}: ")
    assert "What it is often mistaken for" in page
    assert "``" not in page.split("\n")[0]


def test_a_rules_page_fits() -> None:
    for line in shown("stack-smash").splitlines():
        assert columns(line) <= 80 or "://" in line


def test_a_rule_may_be_spelled_with_underscores() -> None:
    assert shown("Stack_Smash") == shown("stack-smash")


@pytest.mark.parametrize("word", ["stack", "__init__", "os", "crash", "../abort", "culprit"])
def test_what_is_no_rule_is_refused(word: str) -> None:
    with pytest.raises((UnknownCodeError, NoInputError)):
        shown(word)


def test_codes_and_rules_together() -> None:
    text = shown("stack-smash", "139")
    assert text.index("139 is SIGSEGV") < text.index("stack-smash: ")


def test_everything_in_the_tables_can_be_rendered_in_80_columns() -> None:
    words = [
        *(str(128 + number) for number in signals()),
        *map(str, exit_codes()),
        *(f"0x{value:08X}" for value in statuses()),
        *(subcode.name for subcode in subcodes().values()),
        "0xC0FFEE00",
        "SIGRTMIN",
        "-40",
        "42",
        "1234567",
    ]
    for word in words:
        try:
            text = shown(word)
        except UnknownCodeError:
            assert word == "SIGRTMIN"
            continue
        assert text.endswith("\n")
        assert all(columns(line) <= 80 or line.strip().startswith("$ ") for line in text.splitlines()), word


def test_a_name_of_a_rule_has_no_document() -> None:
    assert explanation.explain(["stack-smash"], crash_rules).document is None


def test_codes_given_together_are_one_death() -> None:
    document = explanation.explain(["139", "-11", "SIGSEGV"], crash_rules).document
    assert document is not None
    (report,) = document.reports
    assert report.crash.exit is not None
    assert report.crash.exit.signal == "SIGSEGV"
    assert report.contradictions == ()


@pytest.mark.parametrize(
    ("words", "name", "rule"),
    [
        (["CUDNN_STATUS_NOT_INITIALIZED"], "CUDNN_STATUS_NOT_INITIALIZED", "gpu-out-of-memory"),
        (["CUDA error 700"], "cudaErrorIllegalAddress", "cuda-kernel-fault"),
        (["CUDA", "error", "700"], "cudaErrorIllegalAddress", "cuda-kernel-fault"),
        (["WinError 126"], "ERROR_MOD_NOT_FOUND", "missing-library"),
        (["SEGV_MAPERR"], "SEGV_MAPERR", None),
    ],
)
def test_an_error_by_its_name(words: list[str], name: str, rule: str | None) -> None:
    text = shown(*words)
    assert text.startswith(name)
    assert all(columns(line) <= 80 for line in text.splitlines())
    assert rule is None or f"necropsy explain {rule}" in " ".join(text.split())


def test_signals_and_statuses_keep_their_pages() -> None:
    assert "What to do next" in shown("SIGSEGV")
    assert "Possible causes" in shown("STATUS_STACK_BUFFER_OVERRUN")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("terminate called after throwing an instance of 'std::length_error'", "uncaught-cpp-exception"),
        ("free(): invalid pointer", "heap-corruption"),
        ("OOMKilled", "out-of-memory-killed"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda-kernel-fault"),
    ],
)
def test_what_a_program_printed_is_evidence_and_no_question(text: str, rule: str) -> None:
    document = explanation.explain([text], crash_rules).document
    assert document is not None
    assert document.reports[0].verdict is not None
    assert document.reports[0].verdict.rule == rule


def test_nothing_found_says_what_was_not_looked_at(tmp_path: Path) -> None:
    log = tmp_path / "bomb.log.gz"
    log.write_bytes(gzip.compress(b"epoch 1\n" + bytes(64 << 20)) * 40)
    document = explanation.explain([str(log)], crash_rules)
    assert document.document is not None
    gaps = [gap for digest in document.inputs.digests for gap in digest.gaps]
    said = " ".join(document.text().split())
    assert said.startswith("Nothing found")
    assert gaps, "a bomb is not read to its end"
    assert "Part of the input was not read" in said


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_of_a_log_is_quoted(form: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    ended = "Aborted (core dumped) python x.py --api-key hunter2hunter2"
    log.write_text(f"login token=hunter2hunter2\nfree(): invalid pointer\n{ended}\n")
    explained = explanation.explain([str(log)], crash_rules)
    assert explained.document is not None
    said = explained.text(full=True) if form == "text" else serialize.dumps(explained.document).decode()
    assert "Aborted (core dumped)" in " ".join(said.split())
    assert "hunter2" not in said


def test_a_log_with_a_report_of_our_own_in_it(tmp_path: Path) -> None:
    log = tmp_path / "ci.log"
    log.write_text(
        "epoch 1\n2026-11-21T10:00:00Z Verdict  null-dereference, likely: the best explanation; others fit less well\n"
    )
    assert "with the verdict null-dereference, likely;" in flat(str(log))


def test_a_log_with_a_short_report_of_our_own_in_it(tmp_path: Path) -> None:
    log = tmp_path / "ci.log"
    log.write_text(
        "epoch 1\n\nnecropsy: dies.py:5, in load, crashed (SIGSEGV): `string_at` read through a null\n  pointer.\n\n"
        "  Why      The address is null or a small offset from it: address 0x10.   likely\n"
        "  Do now   Find the pointer that can be null in `string_at`.\n\n"
        "  Full report: necropsy show fed62542 --full (null-dereference, seen 4 times before)\n"
    )
    assert "with the verdict null-dereference;" in flat(str(log))


def test_a_report_of_our_own_is_not_read_as_a_log(tmp_path: Path) -> None:
    document = explanation.explain(["139"], crash_rules).document
    assert document is not None
    serialize.write(document, tmp_path / "report.json")
    store.keep(document, "text", tmp_path)
    paths = [tmp_path / "report.json", *tmp_path.glob("*.necropsy")]
    assert len(paths) == 2
    for path in paths:
        with pytest.raises(InputError, match=f"necropsy show {path}"):
            explanation.explain([str(path)], crash_rules)
