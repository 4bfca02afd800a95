"""The list of reports: a line each, in the terminal's width, whatever a program calls itself."""

from __future__ import annotations

import msgspec
import pytest
from report_examples import RECURSION, UNKNOWN, document

from necropsy.model import Subject
from necropsy.reports import listing
from necropsy.reports.listing import ListingRow, short_function
from necropsy.reports.terminal import columns

DOCUMENT = document(RECURSION, UNKNOWN)
ROWS = [
    ListingRow("20261121T004512Z-9f86d081", "9f86d081", None, DOCUMENT),
    ListingRow("20261121T004511Z-00000001", "00000001", "rank12", document(UNKNOWN)),
    ListingRow("20261121T004510Z-00000002", "00000002", None, None, "damaged"),
    ListingRow("odd", "odd", None, document()),
]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_the_terminal(width: int) -> None:
    hostile = msgspec.structs.replace(
        DOCUMENT, subject=Subject(kind="process", command=("/usr/bin/\x1b[2J", "\u6f22" * 200, "a\nb"))
    )
    rows = [*ROWS, ListingRow("x", "x", None, hostile)]
    lines = listing.render(rows, width=width).splitlines()
    assert len(lines) == len(rows) + 1
    assert all(columns(line) <= width for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_a_pipe_gets_whole_lines() -> None:
    lines = listing.render(ROWS).splitlines()
    assert lines[0].split() == ["ID", "WHEN", "WORKER", "CAUSE", "WHERE", "COMMAND"]
    assert lines[1].split()[3:] == ["stack-overflow-recursion", "+1", "train.py:41", "python", "train.py"]
    assert "rank12" in lines[2]
    assert "SIGUSR1" in lines[2], "without a verdict, how it ended"
    assert lines[3].endswith("damaged")
    assert "healthy" in lines[4]


def test_colour_changes_no_column() -> None:
    plain, coloured = (listing.render(ROWS, width=80, color=color).splitlines() for color in (False, True))
    assert [line.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "") for line in coloured] == plain


@pytest.mark.parametrize(
    ("function", "short"),
    [
        ("Walk(Node const*, int)", "Walk"),
        ("tensorflow::(anonymous namespace)::DeepOp<std::pair<int, float>>::Compute(X*)", "Compute"),
        ("tensorflow::swig::{anonymous}::FlattenHelper(_object*)", "FlattenHelper"),
        ("operator new(unsigned long)", "operator new"),
        ("<lambda>", "<lambda>"),
        ("", ""),
    ],
)
def test_short_names(function: str, short: str) -> None:
    assert short_function(function) == short


def test_the_page_names_the_command_that_shows_each_report() -> None:
    made = listing.as_html([listing.ListingRow(identity="20261122T101112Z-1", name="3fa7b2ce", number=1)])
    assert "<td><code>necropsy show 3fa7b2ce --full</code></td>" in made
