"""``Contained``: calls, futures, and records of which some crash; and death tests."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any, cast

import pytest

import contain_jobs as jobs
from necropsy.contain import Contained, Crashed, Quarantined, TimedOut, raises_native
from necropsy.errors import NecropsyError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these deaths are those of Linux")


def test_calls_and_futures() -> None:
    with Contained(workers=2) as pool:
        assert pool.call(jobs.add, 1, b=2) == 3
        futures = [pool.submit(jobs.add, number) for number in range(5)]
        assert [future.result() for future in futures] == [1, 2, 3, 4, 5]
        with pytest.raises(Crashed):
            pool.submit(jobs.leave, 3).result()
        assert pool.call(jobs.add, 1) == 2
    with pytest.raises(NecropsyError, match="closed"):
        pool.call(jobs.add, 1)


def test_map_keeps_the_order_and_takes_endless_records() -> None:
    with Contained(workers=2) as pool:
        assert list(pool.map(jobs.add, range(5000))) == list(range(1, 5001))
        assert list(itertools.islice(pool.map(jobs.add, itertools.count()), 100)) == list(range(1, 101))
        assert pool.call(jobs.add, 1) == 2


def test_records_that_crash_or_raise_are_quarantined_in_order() -> None:
    bad: list[Quarantined] = []
    with Contained(workers=2) as pool:
        results = list(pool.map(jobs.picky, range(300), errors="quarantine", quarantine=bad))
    assert results == [number for number in range(300) if number not in {20, 200, 250}]
    assert [(one.index, one.record) for one in bad] == [(20, 20), (200, 200), (250, 250)]
    first, second, third = (one.error for one in bad)
    assert isinstance(first, ValueError) and isinstance(third, TypeError)
    assert isinstance(second, Crashed) and second.exit_code == 9


def test_errors_are_raised_in_their_place_or_returned() -> None:
    with Contained(workers=1) as pool:
        results = pool.map(jobs.picky, range(18, 30))
        assert [next(results), next(results)] == [18, 19]
        with pytest.raises(ValueError, match="20"):
            next(results)
        assert isinstance(list(pool.map(jobs.picky, [19, 20], errors="return"))[1], ValueError)


def test_a_crash_that_does_not_repeat_costs_no_record(tmp_path: Path) -> None:
    marks = [str(tmp_path / str(number)) for number in range(40)]
    with Contained(workers=1) as pool, pytest.warns(RuntimeWarning, match="record 33 did not happen again"):
        assert list(pool.map(jobs.crash_once_at_33, marks)) == marks


def test_the_record_is_blamed_that_makes_a_later_one_crash() -> None:
    bad: list[Quarantined] = []
    with Contained(workers=1) as pool, pytest.warns(RuntimeWarning, match="record 17 makes record 29 crash"):
        results = list(pool.map(jobs.damaged_by_17, range(40), errors="quarantine", quarantine=bad))
    assert results == [number for number in range(40) if number != 17]
    assert [(one.index, getattr(one.error, "rule", None)) for one in bad] == [(17, "null-dereference")]


def test_a_record_that_takes_too_long() -> None:
    with Contained(workers=1, timeout=2) as pool:
        found = list(pool.map(jobs.sleep, [0.0, 600.0, 0.0], errors="return"))
    assert (found[0], found[2]) == (0.0, 0.0)
    assert isinstance(found[1], TimedOut)


def test_arguments_of_map() -> None:
    with Contained(workers=1) as pool:
        with pytest.raises(ValueError, match="belong together"):
            pool.map(jobs.add, [1], errors="quarantine")
        with pytest.raises(ValueError, match="'skip'"):
            pool.map(jobs.add, [1], errors=cast("Any", "skip"))


def test_a_death_test_returns_the_crash() -> None:
    assert raises_native(jobs.leave, 4, rule="exit-status-only").exit_code == 4


@pytest.mark.parametrize(
    ("job", "args", "rule", "said"),
    [
        (jobs.add, (1,), None, "add did not die"),
        (jobs.fail, ("x",), None, "fail did not die; it raised KeyError"),
        (jobs.leave, (4,), "null-dereference", "leave died of exit-status-only, not of null-dereference"),
    ],
)
def test_a_death_test_fails_otherwise(job: Any, args: tuple[Any, ...], rule: str | None, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        raises_native(job, *args, rule=rule)
