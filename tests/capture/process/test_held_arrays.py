"""How many bytes an array takes, and which arrays are told."""

from __future__ import annotations

import pytest

from necropsy.capture.process.held_arrays import held
from necropsy.model import Argument


def array(dtype: str, *shape: int) -> Argument:
    return Argument(name="a", type="numpy.ndarray", dtype=dtype, shape=shape)


@pytest.mark.parametrize(
    ("dtype", "octets"),
    [
        ("float32", 24),
        ("complex64", 48),
        ("quint8", 6),
        ("bool", 6),
        ("bfloat16", 12),
        ("longdouble", 96),
        ("object", 48),
        ("datetime64", 48),
        ("str", None),
        ("int4", None),
        ("variant", None),
    ],
)
def test_bytes_are_those_of_the_elements_where_their_size_is_known(dtype: str, octets: int | None) -> None:
    (one,) = held([array(dtype, 2, 3)])
    assert (one.dtype, one.shape, one.bytes) == (dtype, (2, 3), octets)


def test_the_largest_is_first_and_what_cannot_be_is_left_out() -> None:
    found = held([array("int8", 5), array("float64", 9), array("str", 7), array("float64", 1 << 45)])
    assert [one.bytes for one in found] == [72, 5, None]
    assert not held([Argument(name="n", type="int", value="3")])
