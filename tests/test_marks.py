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
