"""Structures, types and shapes: what differs is told, what may vary is not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import necropsy.dataset
from necropsy.dataset.sources import NotADatasetError, source_of
from walked import findings, seen


def rules(made: Any, **request: Any) -> list[str]:
    return [one.rule for one in findings(made, **request) if one.severity != "note"]


@pytest.mark.parametrize("last", [1, 17])
@pytest.mark.parametrize("batches", [11, 32, 33, 40])
def test_a_smaller_last_batch_is_no_fault(batches: int, last: int) -> None:
    sizes = [32] * (batches - 1) + [last]
    assert rules((np.ones((size, 3)), np.arange(size)) for size in sizes) == []


def test_a_smaller_batch_before_the_last_one_is() -> None:
    sizes = [32] * 50 + [17] + [32] * 5
    found = findings((np.ones((size, 3)), np.arange(size)) for size in sizes)
    assert [(one.rule, one.confidence) for one in found if one.severity != "note"] == [("data-shape", "likely")] * 2


def test_sizes_that_vary_are_no_fault() -> None:
    assert rules({"tokens": np.arange(1 + place % 7)} for place in range(200)) == []


def test_a_bad_element_among_the_first_ones_is_found() -> None:
    elements: list[Any] = [{"x": np.arange(3.0), "y": 1} for _ in range(40)]
    elements[4] = {"x": np.arange(3.0)}
    elements[9] = {"x": np.arange(4.0), "y": 1}
    elements[12] = {"x": np.arange(3), "y": 1}
    found = findings(elements)
    assert {(one.rule, one.evidence[0].claim) for one in found if one.severity != "note"} == {
        ("data-structure", "the first one is element 4"),
        ("data-shape", "the first one is element 9"),
        ("data-dtype", "the first one is element 12"),
    }


def test_every_violation_is_counted_and_none_ends_the_walk() -> None:
    dataset = seen({"x": np.array([1.0, np.nan if place % 3 == 0 else 2.0])} for place in range(1000))
    (fault,) = dataset.columns[0].faults
    assert (dataset.elements, fault.elements, fault.index, fault.position) == (1000, 334, 0, (1,))


class Pair(NamedTuple):
    image: Any
    label: Any


def test_paths() -> None:
    element = (Pair([1.0, 2.0], 3), {"a b": [np.ones(2), None], 5: "text"})
    dataset = seen([element] * 3)
    assert [(one.path, one.kind) for one in dataset.columns] == [
        ("[0].image", "dense"),
        ("[0].label", "number"),
        ("[1]['a b'][0]", "dense"),
        ("[1]['a b'][1]", "none"),
        ("[1][5]", "string"),
    ]


def test_arrays_are_cut_along_their_first_axis() -> None:
    found = findings((np.arange(30.0), np.array([9, 10] * 15)), ranges={"[1]": (0, 9)})
    assert [(one.rule, one.evidence[1].seen) for one in found] == [("data-index-out-of-range", "15 of 30 elements")]
    assert rules({"x": np.arange(30.0), "y": np.arange(29)}) == ["data-inconsistent"]


def test_rows_of_different_lengths_are_one_finding() -> None:
    assert rules([[[1, 2], [3, 4]]] * 20 + [[[1, 2], [3]]]) == ["data-inconsistent"]


def test_objects_are_one_finding() -> None:
    assert rules([np.array([1, None], object)] * 3) == ["data-dtype"]


class Indexed:
    """A sequence whose third element cannot be read."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, place: int) -> Any:
        if place == 2:
            raise OSError("truncated file")
        return np.full(3, np.nan if place == 30 else float(place))


def test_the_walk_goes_on_behind_an_exception() -> None:
    found = findings(Indexed())
    assert [(one.rule, one.evidence[0].claim) for one in found] == [
        ("data-error", "OSError while element 2 was fetched"),
        ("data-nan", "the first one is element 30"),
    ]
    assert (found[0].evidence[0].where or "").startswith(__file__)


def test_a_source_that_always_raises_is_given_up() -> None:
    class Broken(Indexed):
        def __getitem__(self, place: int) -> Any:
            raise OSError(str(place))

    dataset = seen(Broken())
    assert dataset.ended == "error"
    assert dataset.raised is not None and dataset.raised.times == 10


def endless() -> Iterator[Any]:
    while True:
        yield np.ones(3)


def test_the_limit_ends_an_endless_walk() -> None:
    dataset = seen(endless(), limit=70)
    assert (dataset.ended, dataset.elements) == ("limit", 70)


def test_the_time_limit_ends_it_too() -> None:
    assert seen(endless(), deadline=1.0).ended == "timeout"  # long past


@pytest.mark.parametrize("made", [5, None, "text", {"a": 1}, object()])
def test_what_is_no_dataset(made: object) -> None:
    with pytest.raises(NotADatasetError):
        source_of(made)


MODULES = sorted(Path(necropsy.dataset.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.name))
def test_the_walk_is_written_for_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))
