"""The short report: golden files, its length, what it counts, and hostile strings made harmless.

``NECROPSY_GOLDEN=write pytest tests/reports`` writes the golden files anew; read the difference before it is kept.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import CASES, COMMAND, RECURSION, UNKNOWN, WORKER, document

from necropsy.model import Diagnosis, Document, Evidence, Exit, Fix, Process, Report
from necropsy.reports import brief
from necropsy.reports.terminal import columns, parted, shortened

GOLDEN = Path(__file__).parent / "golden"
AGAIN = "necropsy show 9f86d081 --full"


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    path = GOLDEN / f"{name}.short.txt"
    rendered = brief.render(CASES[name], width=80, again=AGAIN)
    if os.environ.get("NECROPSY_GOLDEN") == "write":
        path.write_text(rendered)
    assert rendered == path.read_text()


def long(report: Report) -> Report:
    """The report with more of everything than there is room for."""
    verdict = report.verdict
    assert verdict is not None
    text = "The quick brown fox jumps over the lazy dog; " * 9
    return msgspec.structs.replace(
        report,
        verdict=msgspec.structs.replace(
            verdict,
            summary=text,
            evidence=tuple(Evidence(claim=f"claim {n}", seen=text) for n in range(5)),
            fixes=tuple(Fix(text=text, command="make one\nmake two") for _ in range(5)),
        ),
        environment_findings=tuple(
            Diagnosis(
                rule="r", title="t", summary=text, severity="error", confidence="certain", evidence=verdict.evidence
            )
            for _ in range(3)
        ),
    )


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for subject in (*CASES.values(), document(long(RECURSION), UNKNOWN)):
        for line in brief.render(subject, width=width, again=AGAIN).splitlines():
            assert columns(line) <= max(width, len(AGAIN) + 50)
            assert columns(line) <= width or AGAIN in line


def test_it_fits_on_a_screen_and_begins_with_the_answer() -> None:
    others = [msgspec.structs.replace(UNKNOWN, pid=pid, signature=f"s{pid}") for pid in range(20, 30)]
    subject = document(long(RECURSION), msgspec.structs.replace(RECURSION, pid=5), *others)
    lines = brief.render(subject, again=AGAIN).strip("\n").splitlines()
    assert len(lines) <= brief.MOST
    assert any(line.startswith("  Do now") for line in lines[:12])
    assert "  11 more processes died." in lines
    assert AGAIN in lines[-1]


def test_equal_deaths_are_counted_and_the_others_have_a_line_each() -> None:
    others = [msgspec.structs.replace(UNKNOWN, pid=pid, signature=f"s{pid}") for pid in range(20, 30)]
    same = [msgspec.structs.replace(RECURSION, pid=pid) for pid in range(5, 11)]
    lines = brief.render(document(RECURSION, *same, *others), again=AGAIN).strip("\n").splitlines()
    assert len(lines) <= brief.MOST
    place = lines.index("  6 more processes died in the same way: 5, 6, 7, 8, ...")
    assert lines[place + 1].startswith("  Process 20: The process was killed by SIGUSR1")
    assert sum(line.startswith("  Process 2") for line in lines) < len(others)
    assert any(line.endswith(" more processes died.") for line in lines[place:])


def test_colour_changes_nothing_but_colour() -> None:
    plain, coloured = brief.render(RECURSION, again=AGAIN), brief.render(RECURSION, color=True, again=AGAIN)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


def test_how_sure_it_is_ends_the_reason() -> None:
    lines = brief.render(RECURSION).splitlines()
    why = next(place for place, line in enumerate(lines) if line.startswith("  Why"))
    do = next(place for place, line in enumerate(lines) if line.startswith("  Do now"))
    assert lines[do - 1].endswith(" certain")
    assert all(columns(line) == 80 for line in lines[why:do] if line.endswith("certain"))


def test_the_reason_does_not_repeat_the_headline() -> None:
    assert RECURSION.verdict is not None
    verdict = msgspec.structs.replace(
        RECURSION.verdict,
        summary="The assertion `n > 3` in `half` (op.cc:12) failed.",
        evidence=(
            Evidence(claim="the process died by SIGABRT", seen="SIGABRT, SI_TKILL"),
            Evidence(claim="its last words", seen="op.cc:12: half: Assertion `n > 3' failed."),
            Evidence(claim="who called it", seen="train.py passed the batch of yesterday"),
        ),
    )
    said = " ".join(brief.render(msgspec.structs.replace(RECURSION, verdict=verdict)).split())
    assert "Why Who called it: train.py passed the batch of yesterday. certain" in said


def test_a_report_without_a_verdict_says_what_is_known() -> None:
    said = brief.render(UNKNOWN, again=AGAIN)
    assert "Why      No rule recognised it. What is known: was killed by SIGUSR1." in said
    assert said.endswith(f"  Not shown: 1 thing not observed\n  Full report: {AGAIN}\n")


def test_children_that_died_below_a_command_that_ended_well_are_one_line() -> None:
    child = msgspec.structs.replace(RECURSION, pid=12)
    other = msgspec.structs.replace(UNKNOWN, pid=13, signature="another")

    def line(*reports: Report, processes: tuple[Process, ...] = (COMMAND, WORKER)) -> str | None:
        return brief.children(document(*reports, processes=processes))

    assert line(child, child, other, other) == "necropsy: 4 child processes crashed (2 kinds)"
    one, two = line(child), line(child, child)
    assert one is not None
    assert two is not None
    assert one.startswith("necropsy: a child process crashed: train.py:41, in step, crashed (SIGSEGV)")
    assert two.startswith("necropsy: 2 child processes crashed: train.py:41")
    assert line(RECURSION, child) is None, "the command itself"
    failed = msgspec.structs.replace(COMMAND, exit=Exit(kind="exited", code=1))
    assert line(child, processes=(failed, WORKER)) is None
    assert line() is None


@pytest.mark.parametrize(
    ("text", "first", "rest"),
    [
        ("One. Two.", "One.", "Two."),
        ("A `f; g` died; it was freed.", "A `f; g` died.", "It was freed."),
        ("In (a; b) it died; twice.", "In (a; b) it died.", "Twice."),
        ("At op.cc:12. `f` called it.", "At op.cc:12.", "`f` called it."),
        ("Version 2.4.1 is old", "Version 2.4.1 is old", None),
        ("e.g. this one", "e.g. this one", None),
        ("", "", None),
    ],
)
def test_the_first_statement_of_a_sentence(text: str, first: str, rest: str | None) -> None:
    assert parted(text) == (first, rest)


def test_what_is_cut_off_leaves_a_mark() -> None:
    assert shortened(["a", "b"], 2, 80) == ["a", "b"]
    assert shortened(["a", "b,", "c"], 2, 80) == ["a", "b ..."]


@given(st.text(min_size=1), st.text(min_size=1), st.integers(min_value=40, max_value=120))
@settings(max_examples=60, deadline=None)
def test_nothing_of_a_program_reaches_the_terminal_raw(one: str, two: str, width: int) -> None:
    assert RECURSION.verdict is not None
    verdict = msgspec.structs.replace(
        RECURSION.verdict,
        summary=one,
        evidence=(Evidence(claim=one, seen=two, where=two),),
        fixes=(Fix(text=two, command=one),),
    )
    subject: Document = document(msgspec.structs.replace(RECURSION, verdict=verdict))
    said = brief.render(subject, width=width, again=AGAIN)
    assert all(char == "\n" or char.isprintable() for char in said)
