"""The journal: what was written is read, whatever its end looks like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.pytest_plugin import journal, reports
from necropsy.pytest_plugin.journal import Journal
from necropsy.pytest_plugin.progress import MOMENT, Death, Progress

RECORDS = st.lists(
    st.tuples(
        st.sampled_from([journal.TEST, journal.PHASE, journal.COLLECTOR, journal.COLLECTOR_DONE, journal.LEAVES]),
        st.binary(max_size=40),
    )
)


def _written(records: list[tuple[bytes, bytes]]) -> Journal:
    written = Journal()
    written.own()
    for number, (kind, payload) in enumerate(records):
        (written.hold if number % 2 else written.write)(kind, payload)
    written.write(journal.STAGE, b"end")
    return written


@given(RECORDS)
def test_records_come_back(records: list[tuple[bytes, bytes]]) -> None:
    written = _written(records)
    found, offset = written.read(0)
    assert found == [*records, (journal.STAGE, b"end")]
    assert written.read(offset) == ([], offset)


@given(RECORDS, st.binary(max_size=200))
def test_a_record_that_was_cut_off_or_damaged_raises_nothing(records: list[tuple[bytes, bytes]], rest: bytes) -> None:
    written = _written(records)
    os.write(written._handle, rest)
    found, _ = written.read(0)
    assert found[: len(records)] == records
    Progress().add(found)


def test_another_process_and_a_file_that_took_its_number_are_left_alone(tmp_path: Path) -> None:
    written = Journal()
    written.write(journal.STAGE, b"not ours")
    written.own()
    assert written.read(0) == ([], 0)
    with (tmp_path / "other").open("wb") as other:
        os.dup2(other.fileno(), written._handle)
        written.write(journal.STAGE, b"run")
    assert written.broken
    assert (tmp_path / "other").read_bytes() == b""


def test_where_a_process_died_follows_from_its_journal() -> None:
    progress = Progress()
    death = Death("session", "", 1)
    progress.add([(journal.STAGE, b"collect"), (journal.COLLECTOR, b"a.py"), (journal.CONFTEST, b"/x/conftest.py")])
    death.locate(progress)
    assert (death.place, death.name) == ("conftest", "/x/conftest.py")
    progress.add([(journal.CONFTEST_DONE, b""), (journal.COLLECTOR_DONE, b""), (journal.STAGE, b"run")])
    progress.add([(journal.TEST, b"a.py::one"), (journal.PHASE, MOMENT.pack(5.0) + b"call")])
    death.locate(progress)
    assert (death.place, death.name, death.began) == ("call", "a.py::one", 5.0)
    progress.add([(journal.TEST_DONE, b"")])
    death.locate(progress)
    assert (death.place, death.name) == ("teardown", "a.py::one")
    assert list(progress.finished) == ["a.py::one"]


class _Odd:
    def __reduce__(self) -> str:
        raise TypeError("never")


@pytest.mark.parametrize("extra", [{}, {"odd": _Odd()}, {"user_properties": [("a", 1)]}])
def test_reports_come_back_as_far_as_they_can_be_pickled(extra: dict[str, object]) -> None:
    report = pytest.TestReport("a.py::one", ("a.py", 3, "one"), {"one": 1}, "passed", None, "call", [("out", "x")], 0.5)
    report.__dict__.update(extra)
    found = reports.restored(reports.Keeping()(report), {})
    assert (found.nodeid, found.location, found.outcome, found.when) == (
        "a.py::one",
        ("a.py", 3, "one"),
        "passed",
        "call",
    )
    assert found.sections == [("out", "x")]
    assert found.keywords == {"one": 1}
    assert found.user_properties == extra.get("user_properties", [])
