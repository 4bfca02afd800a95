"""What ``make check`` leaves out is what was meant."""

from __future__ import annotations

import pytest

import marks


@pytest.mark.parametrize("pattern", [*marks.SLOW, *marks.QUICK])
def test_every_pattern_names_a_module(pattern: str) -> None:
    assert list(marks.ROOT.glob(pattern)), f"tests/marks.py: no module is called {pattern}"


def test_the_marks_that_check_leaves_out_are_given(request: pytest.FixtureRequest) -> None:
    assert marks.is_slow(marks.ROOT / "test_crashers.py")
    assert not any(marks.is_slow(marks.ROOT / one) for one in (*marks.QUICK, "test_marks.py"))
    assert request.node.get_closest_marker("slow") is None


def test_every_folder_has_tests_that_check_runs() -> None:
    modules = list(marks.ROOT.rglob("test_*.py"))
    assert {path.parent for path in modules} == {path.parent for path in modules if not marks.is_slow(path)}


def test_only_modules_of_slow_tests_are_not_read() -> None:
    slow, quick = marks.ROOT / "test_crashers.py", marks.ROOT / "test_marks.py"
    assert marks.are_left_out(slow, "not slow and not wine and not tensorflow")
    assert not marks.are_left_out(quick, "not slow and not wine and not tensorflow")
    assert not any(marks.are_left_out(slow, one) for one in ("", "slow", "wine", "not slow or wine"))
    assert not marks.are_left_out(marks.ROOT.parent / "conftest.py", "not slow")
