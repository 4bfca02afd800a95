"""What ``make check`` leaves out is what was meant."""

from __future__ import annotations

import pytest

import marks


@pytest.mark.parametrize("pattern", [*marks.SLOW, *marks.MEDIUM, *marks.QUICK])
def test_every_pattern_names_a_module(pattern: str) -> None:
    assert list(marks.ROOT.glob(pattern)), f"tests/marks.py: no module is called {pattern}"


def test_the_marks_that_check_leaves_out_are_given(request: pytest.FixtureRequest) -> None:
    assert marks.kind_of(marks.ROOT / "test_crashers.py") == "slow"
    assert {marks.kind_of(marks.ROOT / one) for one in marks.MEDIUM} == {"medium"}
    assert {marks.kind_of(marks.ROOT / one) for one in (*marks.QUICK, "test_marks.py")} == {None}
    assert not [one for one in ("slow", "medium") if request.node.get_closest_marker(one)]


def test_every_folder_has_tests_that_check_runs() -> None:
    modules = list(marks.ROOT.rglob("test_*.py"))
    assert {path.parent for path in modules} == {path.parent for path in modules if marks.kind_of(path) is None}


def test_only_modules_whose_tests_are_left_out_are_not_read() -> None:
    slow, medium, quick = (marks.ROOT / one for one in ("test_crashers.py", marks.MEDIUM[0], "test_marks.py"))
    check = "not slow and not medium and not wine and not tensorflow"
    assert [marks.are_left_out(one, check) for one in (slow, medium, quick)] == [True, True, False]
    assert [marks.are_left_out(one, "not slow and not wine") for one in (slow, medium, quick)] == [True, False, False]
    assert not any(marks.are_left_out(slow, one) for one in ("", "slow", "wine", "not slow or wine", "not medium"))
    assert not marks.are_left_out(marks.ROOT.parent / "conftest.py", "not slow")
