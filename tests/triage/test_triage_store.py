"""The store: what a second run reads, what survives, and what is kept of what a person decided."""

from __future__ import annotations

import itertools
import json
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import fleet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import necropsy
from necropsy import triaging
from necropsy.errors import InputError, NoInputError, StoreBusyError, UnreadableStoreError
from necropsy.model import BugGroup, Triage
from necropsy.triage import corrections, store_lock, store_schema
from necropsy.triage.store import FILE, TriageStore


def read(*paths: Path, store: Path, rebuild: bool = False) -> Triage:
    found = necropsy.triage(paths, store=store, rebuild=rebuild).triage
    assert found is not None
    return found


def ids(found: Triage) -> dict[str, str]:
    """By the group's function."""
    return {_function(one): one.id for one in found.groups}


def _function(one: BugGroup) -> str:
    return (one.culprit.function if one.culprit is not None and one.culprit.function else "?").split("(")[0]


def test_a_second_run_reads_only_what_is_new(tmp_path: Path) -> None:
    folder, store = tmp_path / "in", tmp_path / "store"
    fleet.fill(folder, {"score_rows": 3, "merge_rows": 1})
    (folder / "well.log").write_text("all is well\n")
    first = read(folder, store=store)
    assert (first.files, first.unchanged, first.without_death) == (5, 0, 1)
    second = read(folder, store=store)
    assert (second.files, second.unchanged, second.without_death) == (0, 5, 1)
    assert ids(second) == ids(first)
    assert {one.status for one in second.groups} == {"known"}
    fleet.write(folder, "9.json", "sort_rows", number=9)
    third = read(folder, store=store)
    assert (third.files, third.unchanged) == (1, 5)
    assert {_function(one): one.status for one in third.groups} == {
        "rows::score_rows": "known",
        "rows::merge_rows": "known",
        "rows::sort_rows": "new",
    }
    assert oct((store / FILE).stat().st_mode & 0o777) == "0o600"


def test_a_file_with_another_time_and_the_same_contents_is_not_read_again(tmp_path: Path) -> None:
    folder, store = tmp_path / "in", tmp_path / "store"
    path = fleet.write(folder, "a.json")
    log = folder / "b.log"
    log.write_text(fleet.LOG)
    read(folder, store=store)
    os.utime(path, (1, 1))
    found = read(folder, store=store)
    assert (found.files, found.unchanged, found.deaths) == (0, 2, 2)
    log.write_text(fleet.LOG.replace("Segmentation fault", "Bus error"))
    found = read(folder, store=store)
    assert (found.files, found.deaths) == (1, 2)
    assert {one.end for one in found.groups} == {"SIGSEGV", "SIGBUS"}


def test_deaths_outlive_their_files(tmp_path: Path) -> None:
    folder, store = tmp_path / "in", tmp_path / "store"
    path = fleet.write(folder, "a.json")
    read(folder, store=store)
    path.unlink()
    assert read(folder, store=store).deaths == 1
    fleet.write(folder, "a.json", number=1)  # another run's report under the same name
    assert read(folder, store=store).deaths == 2


def test_a_store_is_shown_without_reading_anything(tmp_path: Path) -> None:
    fleet.fill(tmp_path / "in", {"score_rows": 2})
    first = read(tmp_path / "in", store=tmp_path / "store")
    again = read(store=tmp_path / "store")
    assert [one.id for one in again.groups] == [one.id for one in first.groups]
    assert [one.status for one in again.groups] == ["new"]


# ---------------------------------------------------------------- corrections


def test_corrections_survive(tmp_path: Path) -> None:
    folder, store = tmp_path / "in", tmp_path / "store"
    fleet.fill(folder, {"score_rows": 3, "merge_rows": 2, "sort_rows": 1})
    before = ids(read(folder, store=store))
    score, merge, sort = (before[f"rows::{name}_rows"] for name in ("score", "merge", "sort"))
    older, younger = triaging.corrected(store, lambda session: corrections.merge(session, merge, score))
    assert {older, younger} == {score, merge}
    triaging.corrected(store, lambda session: corrections.name(session, younger, "empty\nbatch"))
    triaging.corrected(store, lambda session: corrections.close(session, sort, "2.1"))
    fleet.write(folder, "more.json", "merge_rows", number=50)
    for rebuild in (False, True):
        found = read(folder, store=store, rebuild=rebuild)
        joined = next(one for one in found.groups if one.id == older)
        assert (joined.count, joined.aliases, joined.title) == (6, (younger,), "empty batch")
        assert "Two groups were merged by hand." in joined.why
        assert next(one for one in found.groups if one.id == sort).status == "closed"
        assert len(found.corrections) == 3
    parts = triaging.corrected(store, lambda session: corrections.split(session, older, "function"))
    assert parts[0] == older
    for rebuild in (False, True):
        found = read(folder, store=store, rebuild=rebuild)
        assert sorted(one.count for one in found.groups) == [1, 3, 3]
        assert set(parts) <= {one.id for one in found.groups}
    with pytest.raises(InputError, match="cannot be split"):
        triaging.corrected(store, lambda session: corrections.split(session, older, "function"))
    with pytest.raises(InputError, match="the same group"):
        triaging.corrected(store, lambda session: corrections.merge(session, older, younger))
    with pytest.raises(NoInputError, match=f"no group {older[:-1]}x; did you mean"):
        triaging.corrected(store, lambda session: corrections.close(session, f"{older[:-1]}x", None))


@pytest.mark.parametrize(
    ("version", "fixed_in", "status"),
    [
        ("2.0", "2.1", "closed"),
        ("2.1", "2.1", "regression"),
        ("2.10", "rows 2.9", "regression"),
        ("2.10", "rows==2.11", "closed"),
        ("2.1", "other 2.0", "closed"),  # its version of that is not known
        ("2.0", None, "regression"),
    ],
)
def test_a_closed_bug_comes_back(tmp_path: Path, version: str, fixed_in: str | None, status: str) -> None:
    folder, store = tmp_path / "in", tmp_path / "store"
    fleet.write(folder, "a.json", version="3.0")
    (group,) = read(folder, store=store).groups
    triaging.corrected(store, lambda session: corrections.close(session, group.id, fixed_in))
    assert read(folder, store=store).groups[0].status == "closed"  # what was read before it was closed does not count
    fleet.write(folder, "b.json", number=1, version=version)
    (after,) = read(folder, store=store).groups
    assert (after.status, after.fixed_in) == (status, fixed_in)
    triaging.corrected(store, lambda session: corrections.reopen(session, group.id))
    assert read(folder, store=store).groups[0].status == "known"


def _dump(thread: int, function: str) -> str:
    return (
        f"Fatal Python error: Segmentation fault\n\nCurrent thread 0x{thread:016x} (most recent call first):\n"
        f'  File "/home/user/train.py", line 7 in {function}\n'
        f"run.sh: line 3:  {thread % 10_000} Segmentation fault      (core dumped) python train.py\n"
    )


def test_a_log_that_grows_neither_loses_nor_repeats_a_death(tmp_path: Path) -> None:
    folder, store = tmp_path / "in", tmp_path / "store"
    folder.mkdir()
    log = folder / "a.log"
    log.write_text(_dump(0x7F0000001111, "score") + _dump(0x7F0000002222, "merge"))
    found = read(folder, store=store)
    assert [(one.count, one.status) for one in found.groups] == [(1, "new"), (1, "new")]
    score = next(one for one in found.groups if one.example is not None and one.example.line == 1)
    triaging.corrected(store, lambda session: corrections.close(session, score.id, None))
    with log.open("a") as file:
        file.write("more\n" + _dump(0x7F0000003333, "merge"))
    after = read(folder, store=store)
    # Its old deaths are those that were known when the bug was closed.
    assert sorted((one.count, one.status) for one in after.groups) == [(1, "closed"), (2, "known")]
    assert {one.line for group in after.groups for one in group.members} == {1, 6, 12}
    assert ids(after) == ids(found)
    with log.open("a") as file:
        file.write(_dump(0x7F0000004444, "score"))
    assert {one.status for one in read(folder, store=store).groups} == {"regression", "known"}
    assert read(folder, store=store).deaths == 4


def test_a_log_that_was_written_anew_has_other_deaths(tmp_path: Path) -> None:
    folder, store = tmp_path / "in", tmp_path / "store"
    folder.mkdir()
    (folder / "a.log").write_text(_dump(0x7F0000001111, "score"))
    (group,) = read(folder, store=store).groups
    triaging.corrected(store, lambda session: corrections.close(session, group.id, None))
    (folder / "a.log").write_text(_dump(0x7F0000002222, "score") + "step 1 done\n")
    (after,) = read(folder, store=store).groups
    assert (after.count, after.status) == (1, "regression")


def test_a_store_of_the_version_before_is_used(tmp_path: Path) -> None:
    fleet.fill(tmp_path / "in", {"score_rows": 2})
    (tmp_path / "in" / "a.log").write_text(fleet.LOG)
    before = read(tmp_path / "in", store=tmp_path / "store")
    connection = sqlite3.connect(tmp_path / "store" / FILE)
    for statement in (
        *("DROP VIEW deaths", "DROP VIEW members", "DROP VIEW groups"),
        *("ALTER TABLE death DROP COLUMN line", "ALTER TABLE file DROP COLUMN gaps"),
        *("CREATE VIEW deaths AS SELECT * FROM death", "CREATE VIEW members AS SELECT * FROM death"),
        *("CREATE VIEW groups AS SELECT * FROM summary", "PRAGMA user_version = 1"),
    ):
        connection.execute(statement)
    connection.commit()
    connection.close()
    with (tmp_path / "in" / "a.log").open("a") as file:
        file.write(_dump(0x7F0000002222, "merge"))
    after = read(tmp_path / "in", store=tmp_path / "store")
    assert (before.deaths, after.deaths, after.unchanged) == (3, 4, 2)


# ---------------------------------------------------------------- stable ids


FUNCTIONS = ("score_rows", "merge_rows", "sort_rows", "find_rows")


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(order=st.permutations(range(10)), cut=st.lists(st.integers(1, 9), max_size=3))
def test_portions_in_any_order_keep_every_id(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], cut: list[int]
) -> None:
    place = tmp_path_factory.mktemp("portions")
    whole = place / "whole"
    for number in range(10):
        fleet.write(
            whole, f"{number}.json", FUNCTIONS[number % 4], number=number, at=f"2026-11-{10 + number}T00:00:00Z"
        )
    once = necropsy.triage(whole).triage
    assert once is not None
    bounds = [0, *sorted(set(cut)), 10]
    known: dict[str, str] = {}
    for at, (start, end) in enumerate(itertools.pairwise(bounds)):
        for number in order[start:end]:
            fleet.write(
                place / f"part-{at}",
                f"{number}.json",
                FUNCTIONS[number % 4],
                number=number,
                at=f"2026-11-{10 + number}T00:00:00Z",
            )
        found = ids(read(place / f"part-{at}", store=place / "store"))
        assert known.items() <= found.items()
        known = found
    rebuilt = read(store=place / "store", rebuild=True)
    assert ids(rebuilt) == known
    assert {_function(one): one.count for one in rebuilt.groups} == {_function(one): one.count for one in once.groups}


def test_the_order_of_the_input_does_not_matter(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        names = [f"{one:02d}.json" for one in range(12)]
        random.Random(number).shuffle(names)
        for place, file in enumerate(names):
            fleet.write(tmp_path / name, file, FUNCTIONS[place % 4], number=place)
    found = [necropsy.triage(tmp_path / name).triage for name in ("a", "b")]
    assert found[0] is not None
    assert found[1] is not None
    assert ids(found[0]) == ids(found[1])


# ---------------------------------------------------------------- who writes


@pytest.mark.skipif(sys.platform == "win32", reason="it forks")
def test_a_killed_run_is_continued_and_writers_wait_for_each_other(tmp_path: Path) -> None:
    points = os.environ.get("NECROPSY_KILL_POINTS", "8")
    script = Path(__file__).parent / "killed_writers.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), points], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_store_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    store = TriageStore(tmp_path, wait_s=0.1)
    with store.session(create=True):
        pass
    with (
        store_lock.held(tmp_path),
        pytest.raises(StoreBusyError, match=f"in use by process {os.getpid()}"),
        store.session(),
    ):
        pass
    with store.session():
        pass


def test_a_newer_store_a_foreign_file_and_a_damaged_one_are_told_apart(tmp_path: Path) -> None:
    fleet.write(tmp_path / "in", "a.json")
    read(tmp_path / "in", store=tmp_path / "newer")
    connection = sqlite3.connect(tmp_path / "newer" / FILE)
    connection.execute(f"PRAGMA user_version = {store_schema.VERSION + 1}")
    connection.close()
    with pytest.raises(UnreadableStoreError, match="newer version"):
        read(tmp_path / "in", store=tmp_path / "newer")
    (tmp_path / "foreign").mkdir()
    connection = sqlite3.connect(tmp_path / "foreign" / FILE)
    connection.execute("CREATE TABLE somebodys (a)")
    connection.close()
    with pytest.raises(UnreadableStoreError, match="not a store"):
        read(tmp_path / "in", store=tmp_path / "foreign")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / FILE).write_bytes(b"nothing of the kind" * 1000)
    with pytest.raises(UnreadableStoreError, match="damaged"):
        read(tmp_path / "in", store=tmp_path / "damaged")
    with pytest.raises(NoInputError, match="there is no store"):
        read(store=tmp_path / "nix")


def test_the_store_holds_no_memory_and_no_variables(tmp_path: Path) -> None:
    document = fleet.document()
    crash = document["reports"][0]["crash"]
    crash["environment"] = {"variables": {"MY_SETTING": "value-of-it"}}
    crash["log_tail"] = "words of the log"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(json.dumps(document))
    read(tmp_path / "in", store=tmp_path / "store")
    data = (tmp_path / "store" / FILE).read_bytes()
    assert b"score_rows" in data
    assert b"value-of-it" not in data
    assert b"words of the log" not in data
