"""`necropsy profile` against programs of known depth; ``verify_known_depths.py`` prints the same as a table."""

from __future__ import annotations

import shutil

import pytest
from known_depths import KnownDepth, build, native, python

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[KnownDepth]:
    """All programs."""
    folder = tmp_path_factory.mktemp("depths")
    program, library = build(folder)
    return [*native(folder, program), *python(folder, library)]


def test_every_peak_is_within_a_page_of_the_truth(rows: list[KnownDepth]) -> None:
    assert len(rows) >= 30
    assert [(one.name, one.error) for one in rows if not one.is_close] == []


def test_the_function_with_the_largest_share_is_named_and_never_another_one(rows: list[KnownDepth]) -> None:
    assert [(one.name, one.named) for one in rows if one.named is not None and not one.is_named] == []
    assert len([one for one in rows if one.is_named]) >= 28 / 30 * len(rows)


def test_a_signal_handler_is_named_however_large_the_frame_is_that_the_kernel_put_below_it(
    rows: list[KnownDepth],
) -> None:
    """With AMX it has 11 KiB, so that a part of it outlives the calls that come after the handler."""
    row = next(one for one in rows if one.name == "handler")
    assert row.is_named
    assert (row.largest or {})["bytes"] > 0.9 * row.depth


def test_what_the_code_says_stands_beside_what_was_measured(rows: list[KnownDepth]) -> None:
    row = {one.name: one.largest or {} for one in rows}
    assert row["large-frame"]["static_bytes"] == row["large-frame"]["frame_bytes"] > 700_000
    assert row["recursion"]["static_bytes"] == row["recursion"]["frame_bytes"]
    assert row["vla"]["static_bytes"] < 1000
    assert row["vla"]["frame_bytes"] > 300_000
