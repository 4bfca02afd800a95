"""The headline begins with the line of the person who ran the command."""

from __future__ import annotations

import msgspec
import pytest

from necropsy.model import (
    Argument,
    Crash,
    Culprit,
    Diagnosis,
    Evidence,
    Exit,
    Fault,
    Frame,
    NodeLine,
    Operation,
    Owner,
    PythonPlace,
    Report,
    Thread,
)
from necropsy.reports import html, markdown, text, user_line


def frame(index: int, file: str, owner: Owner | None, code: str | None = None) -> Frame:
    return Frame(index=index, kind="python", function=f"f{index}", source=file, line=index + 10, owner=owner, code=code)


LIBRARY = frame(0, "/usr/lib/python3.11/ctypes/__init__.py", "interpreter")
PACKAGE = frame(1, "/home/u/v/lib/python3.11/site-packages/numpy/core.py", "package")
OWN = frame(2, "/home/u/train.py", "script", "out = op(values)")
CALLER = frame(3, "/home/u/main.py", "script")
UNKNOWN = frame(4, "<string>", None)
GENERATED = frame(5, "<string>", "script")


def report(fault: Fault | None, *frames: Frame, end: Exit | None = None) -> Report:
    thread = Thread(tid=1, crashed=fault is not None, python=frames, frames=())
    return Report(pid=1, crash=Crash(pid=1, fault=fault, threads=(thread,), exit=end))


SEGV = Fault(signal="SIGSEGV", code="SEGV_MAPERR")
ABORT = Fault(signal="SIGABRT", code="SI_TKILL", sender=1, sent_by_itself=True)


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ((LIBRARY, PACKAGE, OWN, CALLER), "train.py:12, in f2"),
        ((CALLER, OWN), "main.py:13, in f3"),
        ((LIBRARY, PACKAGE, UNKNOWN), "<string>:14, in f4"),
        ((GENERATED, PACKAGE, OWN), "train.py:12, in f2"),
        ((GENERATED, PACKAGE), "<string>:15, in f5"),
        ((LIBRARY, PACKAGE), None),
        ((), None),
        ((msgspec.structs.replace(OWN, function="<module>"),), "train.py:12"),
    ],
)
def test_it_is_the_innermost_of_ones_own(frames: tuple[Frame, ...], place: str | None) -> None:
    found = user_line.of_report(report(SEGV, *frames))
    assert (found.place if found is not None else None) == place


def test_the_headline_says_what_happened_there() -> None:
    assert user_line.headline(report(SEGV, OWN)).startswith("train.py:12, in f2, crashed (SIGSEGV): The process")
    assert user_line.headline(report(ABORT, OWN)).startswith("train.py:12, in f2, aborted: The process")
    stopped = Fault(signal="SIGTERM", code="SI_USER", sender=7, sent_by_itself=False)
    assert user_line.headline(report(stopped, OWN)).endswith(", while at train.py:12, in f2.")


def test_the_source_line_is_shown_as_a_traceback_shows_it() -> None:
    lines = text.render(report(SEGV, LIBRARY, OWN)).splitlines()
    assert lines[lines.index("  /home/u/train.py:12") :][:2] == ["  /home/u/train.py:12", "      out = op(values)"]
    hostile = msgspec.structs.replace(OWN, code="x = '\x1b[31m'")
    assert "\x1b" not in text.render(report(SEGV, hostile))


def test_a_file_that_was_generated_is_not_the_users() -> None:
    made = msgspec.structs.replace(OWN, source="/tmp/__autograph_generated_filex1.py", owner="script")
    assert user_line.of_report(report(SEGV, LIBRARY, made)) is None
    waiting = Diagnosis(
        rule="null-dereference",
        title="",
        summary="",
        severity="error",
        confidence="likely",
        evidence=(Evidence(claim="the signal", seen="SIGSEGV"),),
        culprit=Culprit(python=PythonPlace(function="train", file="/home/u/train.py", line=7)),
    )
    found = user_line.of_report(msgspec.structs.replace(report(SEGV, LIBRARY, made), verdict=waiting))
    assert found is not None
    assert found.place == "train.py:7, in train"


def test_an_op_in_a_graph_is_of_the_line_that_put_it_there() -> None:
    line = NodeLine(function="step", source="/home/u/model.py", line=5, code="y = tf.raw_ops.Unbatch(...)")
    died = report(ABORT, LIBRARY, OWN)
    operation = Operation(op="Unbatch", python=(line, NodeLine(source="/home/u/main.py", line=1)))
    died = msgspec.structs.replace(died, crash=msgspec.structs.replace(died.crash, operation=operation))
    assert user_line.headline(died).startswith("model.py:5, in step, aborted: ")
    assert "      y = tf.raw_ops.Unbatch(...)" in text.render(died).splitlines()


def test_carets_stand_below_the_part_of_the_line_that_ran() -> None:
    code = 'größe = "漢字", op(values)'
    died = report(SEGV, LIBRARY, msgspec.structs.replace(OWN, code=code, columns=(14, 24)))
    lines = text.render(died).splitlines()
    at = lines.index(f"      {code}")
    assert lines[at + 1] == "      " + " " * 16 + "^" * 10  # the two wide characters take two columns each
    assert f"{code}\n{' ' * 16}{'^' * 10}\n```" in markdown.render(died)
    assert f"\n{' ' * 16}{'^' * 10}\n</pre>" in html.render(died)
    # What is cut or escaped has its letters elsewhere.
    assert "^^^" not in text.render(died, width=30)
    escaped = msgspec.structs.replace(OWN, code="a\tb = op(values)", columns=(6, 16))
    assert "^^^" not in text.render(report(SEGV, escaped))


def test_the_values_stand_below_the_line() -> None:
    values = (
        Argument(name="values", type="numpy.ndarray", dtype="float32", shape=(0, 3), unusual=("empty",)),
        Argument(name="n", type="int", value="4"),
    )
    died = report(SEGV, LIBRARY, msgspec.structs.replace(OWN, values=values))
    lines = text.render(died).splitlines()
    assert lines[lines.index("      out = op(values)") + 1] == "      values: float32 [0, 3] (empty)"
    assert "values: float32 \\[0, 3\\] (empty)" in markdown.render(died)
    assert "values: float32 [0, 3] (empty)" in html.render(died)
    typed = msgspec.structs.replace(UNKNOWN, values=values)
    assert "      values: float32 [0, 3] (empty), n = 4" in text.render(report(SEGV, typed)).splitlines()
