"""The text report: golden files, widths, colours, and hostile strings made harmless.

``NECROPSY_GOLDEN=write pytest tests/reports`` writes the golden files anew; read the difference before it is kept.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import CASES, COMMAND, OP, PYTHON, RECURSION, UNKNOWN, document, native

from necropsy.model import (
    Crash,
    Culprit,
    Diagnosis,
    Document,
    Evidence,
    Exit,
    Fix,
    Fold,
    Frame,
    Gap,
    Process,
    Report,
    StackUse,
    Thread,
)
from necropsy.reports import markdown, stack, text
from necropsy.reports.stack import fit_name
from necropsy.reports.terminal import Pen, bar, clean, columns, cut, cut_path, lines_of, size, wrap

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    rendered = text.render(CASES[name], width=80)
    if os.environ.get("NECROPSY_GOLDEN") == "write":
        path.write_text(rendered)
    assert rendered == path.read_text()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    for line in text.render(CASES[name], width=width).splitlines():
        assert columns(line) <= width


def test_lines_of_python_are_shown_where_only_the_interpreter_repeats() -> None:
    # Four turns of the evaluator for four different lines look like a recursion of the interpreter's.
    names = ("_PyEval_EvalFrameDefault", "_PyFunction_Vectorcall")
    frames = tuple(native(n, names[n % 2], PYTHON) for n in range(8))
    python = tuple(
        Frame(index=n, kind="python", function=f"f{n}", source="/home/u/train.py", line=n + 1, evaluated_by=2 * n)
        for n in range(4)
    )
    fold = Fold(period=2, times=4, functions=names, modules=(PYTHON, PYTHON), start=0)
    drawn = "\n".join(stack.draw(Thread(tid=1, frames=frames, folds=(fold,), python=python), 80, Pen(color=False)))
    assert [f"/home/u/train.py:{n + 1} in f{n}" in drawn for n in range(4)] == [True] * 4
    assert "x 4" not in drawn
    # Where native code of somebody else repeats, it is a recursion, and has its lines of Python behind it.
    other = msgspec.structs.replace(fold, modules=(PYTHON, OP))
    frames = tuple(native(n, names[n % 2], (PYTHON, OP)[n % 2]) for n in range(8))
    drawn = "\n".join(stack.draw(Thread(tid=1, frames=frames, folds=(other,), python=python), 80, Pen(color=False)))
    assert "x 4" in drawn
    assert "/home/u/train.py:4 in f3" in drawn


def test_the_first_lines_are_the_sentence_and_what_to_do() -> None:
    lines = text.render(RECURSION).strip().splitlines()
    assert lines[0].startswith("necropsy: train.py:41, in step, crashed (SIGSEGV): `Walk` in deep.so called")
    assert lines[2].startswith("  Do now: Turn the recursion")


def test_colour_changes_nothing_but_colour() -> None:
    import re

    plain, coloured = text.render(RECURSION), text.render(RECURSION, color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


def test_a_report_alone_renders_as_in_its_document() -> None:
    assert text.render(RECURSION) in text.render(document(RECURSION))


def test_a_fold_stands_for_all_its_frames() -> None:
    drawing = text.render(RECURSION)
    assert drawing.count("Walk(Node const*, int)  deep.so") == 1
    assert "x 104,652  80 B each" in drawing


def test_python_lines_stand_under_the_frames_that_run_them() -> None:
    lines = [line.strip() for line in text.render(RECURSION).splitlines()]
    step = next(place for place, line in enumerate(lines) if line.startswith("py") and "train.py:41 in step" in line)
    assert lines[step - 1].startswith("#104654")


def test_frames_that_were_not_kept_are_counted() -> None:
    thread = Thread(tid=1, crashed=True, frames=(native(0, "f"), native(500, "g")), frames_total=501)
    assert "... 499 frames that were not kept" in text.render(Report(crash=Crash(threads=(thread,))))


def test_a_stack_that_was_not_read_to_its_end_says_about_how_many_frames_it_has() -> None:
    thread = Thread(tid=1, crashed=True, frames=(native(0, "f"),), frames_total=1_500_000, complete=False)
    report = Report(crash=Crash(threads=(thread,)))
    assert "... the rest of the stack could not be read" in text.render(report)
    known = msgspec.structs.replace(thread, frames_estimate=12_000_000)
    report = Report(crash=Crash(threads=(known,)))
    told = "... the stack has about 12,000,000 frames (estimated); 1,500,000 of them were read"
    assert told in text.render(report)
    assert told in markdown.render(report)


def test_a_fold_without_a_known_place_is_told_all_the_same() -> None:
    thread = Thread(tid=1, crashed=True, frames=(native(0, "f"),), folds=(Fold(period=1, times=9, functions=("f",)),))
    assert "x 9" in text.render(Report(crash=Crash(threads=(thread,))))


def test_a_crash_of_which_nothing_is_known_is_told_without_a_guess() -> None:
    assert "ended in an unknown way; the cause was not recognised" in text.render(Report(crash=Crash()))


def test_the_same_crash_again_takes_one_line() -> None:
    again = msgspec.structs.replace(RECURSION, pid=4800)
    rendered = text.render(document(RECURSION, again))
    assert rendered.count("Evidence") == 1
    assert "process 4800 died in the same way" in rendered


def test_many_deaths_are_told_in_a_line_each() -> None:
    reports = [msgspec.structs.replace(UNKNOWN, pid=pid) for pid in range(20)]
    rendered = text.render(document(*reports))
    assert rendered.count("What was not observed") == text.WHOLE_REPORTS
    assert "necropsy: process 19: The process was killed by SIGUSR1" in rendered


def test_a_tried_fix_says_so() -> None:
    assert "Check the input for cycles. (Tried: it still crashes.)" in text.render(RECURSION)


def test_a_command_is_never_broken_inside_of_quotes() -> None:
    verdict = RECURSION.verdict
    assert verdict is not None
    command = "python -c '" + "x " * 80 + "'"
    changed = msgspec.structs.replace(verdict, fixes=(Fix(text="t", command=command),))
    assert command in text.render(msgspec.structs.replace(RECURSION, verdict=changed))
    long = "python train.py " + " ".join(f"--option-{number} value" for number in range(10))
    changed = msgspec.structs.replace(verdict, fixes=(Fix(text="t", command=long),))
    rendered = text.render(msgspec.structs.replace(RECURSION, verdict=changed))
    assert all(columns(line) <= 80 for line in rendered.splitlines())
    assert " ".join(rendered.replace("\\\n", " ").split()).count(long) == 1


# ---------------------------------------------------------------- hostile strings

HOSTILE = st.text(
    alphabet=st.one_of(
        st.sampled_from("\x1b\x9b\x07\x00\r\n\t\x7f\u202e\u2066\u200b\ufeff\udcff\u4e2d\u0301a(<:> "), st.characters()
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(HOSTILE, HOSTILE, st.integers(40, 100))
def test_nothing_of_a_program_reaches_the_terminal_raw(one: str, two: str, width: int) -> None:
    crash = Crash(
        threads=(
            Thread(
                tid=1,
                name=two,
                crashed=True,
                frames=(native(0, one, two, source=one, line=1), native(1, two, OP)),
                folds=(Fold(period=1, times=5, functions=(one,), modules=(two,), start=1),),
            ),
        ),
    )
    verdict = Diagnosis(
        rule="abort",
        title=one,
        summary=two,
        severity="error",
        confidence="possible",
        evidence=(Evidence(claim=one, seen=two, where=one),),
        culprit=Culprit(function=one, module=two, source=one),
        fixes=(Fix(text=one), Fix(text=two)),
    )
    process = msgspec.structs.replace(COMMAND, command=(one, two), stacks=(StackUse(tid=9, name=one, size=1, peak=1),))
    report = Report(crash=crash, verdict=verdict, gaps=(Gap(part=one, why=two),), pid=3)
    rendered = text.render(document(report, processes=(process,)), width=width)
    for line in rendered.split("\n"):
        assert columns(line) <= width
        assert all(char.isprintable() for char in line), ascii(line)
        assert not set(line) & set("\u202e\u2066\u200b\ufeff")


def test_an_escape_sequence_is_shown_not_sent() -> None:
    assert clean("\x1b]0;owned\x07") == "\\x1b]0;owned\\x07"
    assert clean("\udcff") == "\\udcff"
    assert clean("naïve 中文") == "naïve 中文"


def test_a_progress_bar_is_its_last_state() -> None:
    assert list(lines_of("10%\r20%\r30%\r\nend\n")) == ["30%", "end", ""]


# ---------------------------------------------------------------- layout


@given(st.text(max_size=200), st.integers(20, 100))
def test_wrapped_lines_fit(value: str, width: int) -> None:
    assert all(columns(line) <= width for line in wrap(value, width, first="  * "))


@pytest.mark.parametrize(
    ("width", "cut"),
    [
        (60, "/tmp/python-build.20260509.455/Modules/_ctypes/_ctypes.c"),
        (40, "...0260509.455/Modules/_ctypes/_ctypes.c"),
        (34, ".../Modules/_ctypes/_ctypes.c"),
        (20, "..._ctypes/_ctypes.c"),
    ],
)
def test_a_path_is_cut_at_a_folder_where_that_costs_little(width: int, cut: str) -> None:
    assert cut_path("/tmp/python-build.20260509.455/Modules/_ctypes/_ctypes.c", width) == cut


@given(st.text(max_size=80), st.integers(3, 40))
def test_cut_text_fits(value: str, width: int) -> None:
    assert columns(cut(value, width)) <= width
    assert columns(cut_path(value, width)) <= width
    assert columns(fit_name(value, width)) <= width


def test_names_lose_their_parameters_first() -> None:
    name = "a::b::C<d, e<f> >::g(int, h*)"
    assert fit_name(name, 80) == name
    assert fit_name(name, 26) == "a::b::C<d, e<f> >::g(...)"
    assert fit_name(name, 20) == "a::b::C<...>::g(...)"
    assert fit_name(name, 15) == "a::b::C<...>::g"
    assert fit_name(name, 12) == "...C<...>::g"
    assert fit_name(name, 11) == "...g"
    assert "(anonymous namespace)" in fit_name("x::(anonymous namespace)::f(int, int, int, int)", 40)
    assert "operator()" in fit_name("long_namespace::functor::operator()(int, int) const", 30)


def test_the_bar_is_to_scale() -> None:
    assert bar(0, 100, 12) == "[----------]"
    assert bar(50, 100, 12) == "[#####-----]"
    assert bar(99, 100, 12) == "[#########-]"
    assert bar(100, 100, 12) == "[##########]"


def test_sizes() -> None:
    assert [size(n) for n in (0, 128, 2_000_000, 8 << 20, 3 << 30)] == ["0 B", "128 B", "1.91 MiB", "8 MiB", "3 GiB"]


# ---------------------------------------------------------------- healthy runs


def healthy(*stacks: StackUse) -> Document:
    return document(processes=(msgspec.structs.replace(COMMAND, stacks=stacks),))


def test_a_pool_is_one_row() -> None:
    rendered = text.render(CASES["healthy"])
    row = next(line for line in rendered.splitlines() if line.startswith("  tf_Compute"))
    assert row.split() == ["tf_Compute", "2", "8", "MiB", "630", "KiB", "8%"]


def test_what_would_not_fit_is_said() -> None:
    rendered = " ".join(text.render(CASES["healthy"]).split())
    assert "Windows, python.exe, 2,000,000 bytes: WOULD NOT FIT, main thread used 3,250,000" in rendered
    assert "macOS, other threads 524,288 bytes: WOULD NOT FIT, thread tf_Compute used 645,120" in rendered
    small = " ".join(text.render(healthy(StackUse(tid=4711, size=8 << 20, peak=2_000_000))).split())
    assert "Windows, python.exe, 2,000,000 bytes: fits" in small
    assert "macOS" not in small, "its limit is that of other threads, and there was none"


def test_an_unknown_peak_is_not_judged() -> None:
    rendered = text.render(healthy(StackUse(tid=4711, size=None, peak=None)))
    assert "unknown" in rendered
    assert "FIT" not in rendered
    assert "fits" not in rendered


def test_children_take_a_line_each() -> None:
    def child(pid: int, peak: int) -> Process:
        return Process(
            pid=pid,
            command=("uname", "-p"),
            exit=Exit(kind="exited", code=0),
            stacks=(StackUse(tid=pid, size=1, peak=peak),),
        )

    rendered = text.render(document(processes=(COMMAND, child(5, 12_288), child(6, 5 << 20))))
    assert "  child 5, uname -p: exited with code 0, at most 12 KiB of a stack\n" in rendered
    after = " ".join(rendered.split("child 6,")[1].split())
    assert "WOULD NOT FIT, main thread used 5,242,880" in after
    many = text.render(document(processes=(COMMAND, *(child(pid, 1) for pid in range(10, 40)))))
    assert "  and 20 more child processes\n" in many


def test_a_recursion_of_the_interpreter_is_not_hidden() -> None:
    names = tuple(f"slot_{letter}" for letter in "abcdefgh")
    fold = Fold(period=8, times=100, functions=names, modules=(PYTHON,) * 8, start=0)
    thread = Thread(tid=1, crashed=True, frames=(), folds=(fold,))
    rendered = text.render(Report(crash=Crash(threads=(thread,))))
    assert "slot_a" in rendered
    assert "and 4 frames of the interpreter" in rendered
    mixed = msgspec.structs.replace(fold, modules=(OP, *(PYTHON,) * 7))
    rendered = text.render(Report(crash=Crash(threads=(msgspec.structs.replace(thread, folds=(mixed,)),))))
    assert "slot_a" in rendered
    assert "slot_b" not in rendered
