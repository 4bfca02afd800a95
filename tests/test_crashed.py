"""``Crashed`` is made from a document and survives pickling."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from necropsy.crashed import Crashed, signal_name
from necropsy.model import (
    Crash,
    Culprit,
    Diagnosis,
    Document,
    Evidence,
    Exit,
    Frame,
    Process,
    Report,
    Subject,
    Thread,
    Tool,
)


def document() -> Document:
    frame = Frame(index=0, kind="python", function="work", source="job.py", line=7, owner="script")
    crash = Crash(
        pid=9,
        exit=Exit(kind="signaled", signal="SIGSEGV"),
        threads=(Thread(tid=8, python=()), Thread(tid=9, crashed=True, python=(frame,))),
    )
    verdict = Diagnosis(
        rule="null-dereference",
        title="A null pointer",
        summary="A null pointer was read.",
        severity="error",
        confidence="certain",
        evidence=(Evidence(claim="address", seen="0x0", where="siginfo"),),
        culprit=Culprit(function="strlen"),
    )
    child = Report(crash=Crash(pid=10), pid=10)
    return Document(
        kind="run",
        id="20261121T004512Z-9f86d081",
        tool=Tool(name="necropsy", version="1"),
        complete=True,
        subject=Subject(kind="process", command=("python",)),
        processes=(Process(pid=9, exit=crash.exit),),
        reports=(child, Report(crash=crash, pid=9, signature="a|b|c", verdict=verdict)),
    )


def test_fields_are_those_of_the_command_and_not_of_its_child() -> None:
    crashed = Crashed.of(document())
    assert (crashed.rule, crashed.signal, crashed.exit_code) == ("null-dereference", "SIGSEGV", None)
    assert (crashed.signature, crashed.function) == ("a|b|c", "strlen")
    assert [(one["function"], one["file"], one["line"]) for one in crashed.python] == [("work", "job.py", 7)]
    assert str(crashed) == "A null pointer was read, while at job.py:7, in work, in `strlen`."


def test_it_pickles_with_its_report() -> None:
    crashed = Crashed.of(document())
    again = pickle.loads(pickle.dumps(crashed))
    assert str(again) == str(crashed)
    assert vars(again) == vars(crashed)


def test_an_end_without_a_report() -> None:
    crashed = Crashed.without_report(exit_code=3)
    assert (crashed.exit_code, crashed.signal, crashed.rule, crashed.python) == (3, None, None, [])
    assert str(crashed) == "The process ended with exit code 3."


def test_a_child_s_death_is_not_the_command_s() -> None:
    whole = document()
    ended = msgspec.structs.replace(whole.processes[0], exit=Exit(kind="exited", code=3))
    crashed = Crashed.of(msgspec.structs.replace(whole, processes=(ended,), reports=(whole.reports[0],)))
    assert (crashed.rule, crashed.signal, crashed.exit_code, crashed.python) == (None, None, 3, [])
    assert str(crashed) == "The process ended with exit code 3."


@pytest.mark.parametrize(("number", "name"), [(11, "SIGSEGV"), (40, "signal 40")])
def test_names_of_signals(number: int, name: str) -> None:
    assert signal_name(number) == name
