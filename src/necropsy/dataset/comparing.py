"""A leaf beside what is wanted at its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from necropsy.dataset import spec as specs
from necropsy.dataset.columns import Column
from necropsy.dataset.leaves import Leaf
from necropsy.dataset.spec import Want, dims


def compare(column: Column, leaf: Leaf, index: int, elements: int) -> bool:
    """The leaf has the wanted kind, type, rank and sizes; what differs is noted."""
    want, shape = column.want, leaf.shape
    if want is None:
        return True
    if want.kind == "none" or leaf.kind == "none":
        if want.kind == leaf.kind:
            return True
        column.fault(
            "structure",
            index,
            "None" if leaf.kind == "none" else leaf.kind,
            expected=want.kind if want.kind == "none" else want.dtype,
            elements=elements,
        )
        return False
    if want.kind == "object" or leaf.dtype == "object":
        return False  # what is wrong with it is among its problems
    found = True
    if not specs.same_type(want, leaf):
        column.fault("dtype", index, str(leaf.dtype), expected=want.dtype, elements=elements)
        found = False
    if shape is not None and want.shape is not None and len(shape) != len(want.shape):
        expected = f"{len(want.shape)}, as in {dims(want.shape)}"
        column.fault("rank", index, f"{len(shape)}, as in {dims(shape)}", expected=expected, elements=elements)
        return False
    if not specs.fits(want.shape, shape):
        column.fault("shape", index, dims(shape or ()), expected=dims(want.shape or ()), elements=elements)
        found = False
    elif shape is not None and 0 in shape and 0 not in (want.shape or ()):
        column.fault("empty", index, dims(shape), elements=elements)
        found = False
    return found


def is_smaller_batch(leaves: Sequence[Leaf], wants: Mapping[str, Want]) -> bool:
    """All arrays are as wanted but for their first size, which is the same smaller one in each."""
    sizes, wanted = set(), set()
    for leaf in leaves:
        want = wants[leaf.path]
        if leaf.kind != want.kind or not specs.same_type(want, leaf) or not leaf.shape or not want.shape:
            return False
        if len(leaf.shape) != len(want.shape) or not specs.fits(want.shape[1:], leaf.shape[1:]):
            return False
        sizes.add(leaf.shape[0])
        wanted.add(want.shape[0])
    if len(sizes) != 1 or len(wanted) != 1:
        return False
    size, one = sizes.pop(), wanted.pop()
    return one is not None and 0 < size < one
