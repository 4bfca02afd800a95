"""The fast checks say the same as the plain ones of NumPy, for every type and layout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import needs
from necropsy.dataset import values
from walked import findings, seen

FLOATS = ("float16", "float32", "float64", "complex64")
INTEGERS = ("uint8", "int8", "int32", "int64", "bool")


def batches(dtypes: tuple[str, ...]) -> st.SearchStrategy[Any]:
    return st.sampled_from(dtypes).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    )


@given(batches(FLOATS))
def test_extremes_of_floats(batch: Any) -> None:
    found = values.extremes(batch)
    assert found is not None
    parts = np.stack([batch.real, batch.imag]) if batch.dtype.kind == "c" else batch
    assert found.clean == bool(np.isfinite(parts).all())
    if not np.isnan(parts).any():
        assert (float(found.low), float(found.high)) == (float(parts.min()), float(parts.max()))


@given(batches(INTEGERS))
def test_extremes_of_integers(batch: Any) -> None:
    found = values.extremes(batch)
    assert found == (int(batch.min()), int(batch.max()), True)


@given(batches(FLOATS + INTEGERS), st.integers(-5, 5), st.integers(-5, 5))
def test_search_names_the_rows_and_the_first_value(batch: Any, low: int, high: int) -> None:
    found = values.search(batch, (low, high))
    for row, element in enumerate(batch):
        parts = np.array([element.real, element.imag]) if batch.dtype.kind == "c" else element
        finite = np.isfinite(parts)
        with np.errstate(invalid="ignore"):
            wanted = {
                "nan": np.isnan(parts).any(),
                "inf": np.isinf(parts).any(),
                "range": (finite & ((parts < low) | (parts > high))).any(),
            }
        for kind, is_wrong in wanted.items():
            assert (kind in found and bool(found[kind].rows[row])) == bool(is_wrong)
    for kind, first in found.items():
        value = batch[int(first.rows.argmax())][first.position]
        assert (first.value == value.item()) or (kind == "nan" and np.isnan(value))


@pytest.mark.parametrize("order", ["C", "F", "strided"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_large_arrays_are_checked_in_chunks(order: str, dtype: str) -> None:
    array = np.ones((1000, 700), dtype, order="F" if order == "F" else "C")
    array[900, 3] = np.nan
    if order == "strided":
        array = array[:, ::2]
        array[900, 3] = np.nan
    assert array.nbytes > values.CHUNK
    (found,) = findings([np.ones_like(array), array])
    assert found.rule == "data-nan"
    assert "element 1: " not in found.summary
    assert found.evidence[0].claim == "the first one is element 1"
    assert "(900, " in found.evidence[0].seen


def test_a_bound_is_rounded_to_the_type_of_the_values() -> None:
    elements = [np.array([0.1, 0.7], np.float32)] * 3 + [np.array([0.1, 0.7], np.float16)]
    assert not [one for one in findings(elements, ranges={"": (0.1, 0.7)}) if one.rule == "data-out-of-range"]
    (found,) = findings(elements[:3], ranges={"": (0.1, 0.6)})
    assert found.rule == "data-out-of-range"


@needs.package("ml_dtypes")
def test_brain_floats_are_compared_by_their_bits() -> None:
    from ml_dtypes import bfloat16

    clean = np.array([-3.5, 0.25, 2.0]).astype(bfloat16)
    found = values.extremes(clean)
    assert found is not None and (float(found.low), float(found.high), found.clean) == (-3.5, 2.0, True)
    for bad in (math.nan, math.inf, -math.inf):
        broken = values.extremes(np.array([1.0, bad]).astype(bfloat16))
        assert broken is not None and not broken.clean


def test_an_array_that_is_filled_again_is_checked_as_it_was() -> None:
    buffer = np.zeros(3, np.float32)

    def elements() -> Any:
        for place in range(100):
            buffer[:] = np.nan if place == 50 else place
            yield buffer

    (found,) = findings(elements())
    assert (found.rule, found.evidence[0].claim) == ("data-nan", "the first one is element 50")


def test_extremes_of_what_is_finite() -> None:
    dataset = seen([np.array([1.0, np.nan, 3.0]), np.array([np.inf, 2.0, 2.0])])
    assert (dataset.columns[0].minimum, dataset.columns[0].maximum) == (1.0, 3.0)
