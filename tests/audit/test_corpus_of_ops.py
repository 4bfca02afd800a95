"""The annotated ops are what the rules on C++ sources are measured by: their form, and how well the rules do on them.

The sources are compiled and run by verify_corpus.py, by hand.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from corpus_marks import CORPUS, HELD_OUT, NOTES, WARNINGS, AnnotatedOp, annotated, ops
from score_corpus import Finding, findings, score, together

_BAD = [op for op in ops() if op.bad]
_GOOD = [op for op in ops() if not op.bad]

# The rules that read C++ sources. Add a rule here together with its file: from then on it is held to the bar below.
_HELD = (
    "op-check-on-input",
    "op-dangling-view",
    "op-done-not-called",
    "op-exception",
    "op-kernel-state",
    "op-large-frame",
    "op-legacy-api",
    "op-lock-order",
    "op-no-shape-function",
    "op-null-input",
    "op-output-unset",
    "op-recursion",
    "op-recursive-destructor",
    "op-requires-in-lambda",
    "op-shape-function-weak",
    "op-shared-write",
    "op-stack-allocation",
    "op-stack-depth",
    "op-status-ignored",
    "op-string-overflow",
    "op-type-unchecked",
    "op-unbounded-loop",
)


def _named(op: AnnotatedOp) -> str:
    return op.path.stem


def test_there_are_enough() -> None:
    assert len(_BAD) >= 60
    assert len(_GOOD) >= 30


@pytest.mark.parametrize("op", _BAD, ids=_named)
def test_bad_ops_expect_known_rules_and_say_how_they_end(op: AnnotatedOp) -> None:
    assert op.marks
    for mark in (*op.marks, *op.alternatives):
        assert mark.rule in (NOTES if mark.note else WARNINGS), mark
    assert op.calls
    assert len({"dies", "wrong", "hangs", "advice"} & op.fields.keys()) == 1
    assert op.fields.get("dies", "asan") in {"SIGSEGV", "SIGABRT", "SIGFPE", "asan"}
    assert not op.twin_of


@pytest.mark.parametrize("op", _GOOD, ids=_named)
def test_correct_ops_expect_nothing_and_are_called_with_hostile_input(op: AnnotatedOp) -> None:
    assert not op.marks and not op.alternatives
    assert op.twin_of
    assert set(op.twin_of) <= WARNINGS | NOTES
    assert len(op.calls) >= 2
    assert not op.ending


def test_every_rule_has_bad_ops_and_a_correct_twin() -> None:
    expected = Counter(rule for op in _BAD for rule in {mark.rule for mark in op.marks})
    twins = {rule for op in _GOOD for rule in op.twin_of}
    assert [rule for rule in sorted(WARNINGS) if expected[rule] < 2] == []
    assert [rule for rule in sorted(NOTES) if not expected[rule]] == []
    assert sorted((WARNINGS | NOTES) - twins) == []


def test_every_header_belongs_to_an_op() -> None:
    included = {header for op in ops() for header in op.headers}
    assert sorted(included) == sorted(CORPUS.glob("*/*.h"))


def test_marks_are_read_from_sources_and_their_headers(tmp_path: Path) -> None:
    (tmp_path / "kernel.h").write_text("int a;\nint b[9];  // expect: op-large-frame, op-buffer-overrun\n")
    source = tmp_path / "kernel.cc"
    source.write_text(
        '// call: Twice {"x": [1]} => [2]\n// dies: SIGSEGV\n#include "kernel.h"\n#include "tensorflow/core/framework/op.h"\nint c;  // expect-note: op-legacy-api\n'
    )
    op = annotated(source)
    assert op.headers == (tmp_path / "kernel.h",)
    assert [(call.op, call.arguments, call.answer) for call in op.calls] == [("Twice", {"x": [1]}, [2])]
    assert op.fields == {"dies": "SIGSEGV"}
    assert [(mark.path.name, mark.line, mark.rule, mark.note) for mark in op.marks] == [
        ("kernel.cc", 5, "op-legacy-api", True),
        ("kernel.h", 2, "op-large-frame", False),
        ("kernel.h", 2, "op-buffer-overrun", False),
    ]


def test_a_score_counts_what_was_found_missed_and_false(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cc"
    source.write_text("int a =\n    1;  // expect: op-recursion\n\nint b;\nint c;  // expect: op-recursion\n")
    reported = [
        Finding(source, 1, "op-recursion", "error"),
        Finding(source, 4, "op-recursion", "warning"),
        Finding(source, 4, "op-recursion", "note"),
        Finding(source, 5, "op-exception", "error"),
    ]
    scores = score([annotated(source)], reported)
    recursion = scores["op-recursion"]
    assert (recursion.expected, recursion.found, [mark.line for mark in recursion.missed]) == (2, 1, [5])
    assert [finding.line for finding in recursion.false] == [4]
    assert len(scores["op-exception"].false) == 1
    whole = together(scores.values())
    assert whole.recall == 0.5
    assert whole.precision == pytest.approx(1 / 3)


def test_a_finding_on_another_line_of_the_same_fault_is_right(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cc"
    source.write_text("lock(a);  // expect: op-lock-order\nlock(b);  // or: op-lock-order\n")
    op = annotated(source)
    for reported in ([Finding(source, 2, "op-lock-order", "error")], [Finding(source, 1, "op-lock-order", "error")]):
        one = score([op], reported)["op-lock-order"]
        assert (one.expected, one.found, one.false) == (1, 1, [])


@pytest.fixture(scope="session")
def reported() -> list[Finding]:
    return findings([CORPUS])


@pytest.mark.parametrize("rule", _HELD)
def test_a_rule_finds_what_the_corpus_expects(rule: str, reported: list[Finding]) -> None:
    one = score(ops(), reported)[rule]
    assert one.expected
    assert one.recall >= 0.9, one.missed
    assert one.precision >= 0.95, one.false


def test_nothing_is_reported_on_correct_ops(reported: list[Finding]) -> None:
    correct = {path for op in _GOOD for path in (op.path, *op.headers)}
    assert [one for one in reported if one.path in correct and one.severity != "note"] == []


def test_most_of_what_ops_that_no_rule_was_written_for_expect_is_found() -> None:
    unseen = ops(HELD_OUT)
    assert {mark.rule for op in unseen for mark in op.marks} == WARNINGS
    whole = together(score(unseen, findings([HELD_OUT])).values())
    assert whole.recall >= 0.9, whole.missed
    assert whole.precision >= 0.95, whole.false
