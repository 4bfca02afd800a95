"""What rules on a dataset say alike: which elements are affected, the first of them, and what was wanted."""

from __future__ import annotations

from necropsy.model import Column, Confidence, DataFault, Dataset, Evidence, FaultKind, Fix, Part
from necropsy.rule import Finding, Found

ORIGINS = {
    "given": "the given spec",
    "declared": "the spec that the dataset declares",
    "inferred": "a spec inferred from the first elements",
}


def shape_text(shape: tuple[int | None, ...] | None) -> str:
    """A shape as it is printed: ``(None, 28, 28)``."""
    if shape is None:
        return "of any shape"
    sizes = ", ".join("None" if one is None else str(one) for one in shape)
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"


def column_text(column: Column) -> str:
    """What is wanted at a path: ``float32 (28, 28), 0 to 1``."""
    if column.kind == "none":
        return "None"
    if column.kind == "object":
        return "not checked" if column.dtype is None else f"{column.dtype}, not checked"
    kind = f"{column.kind} " if column.kind in {"ragged", "sparse"} else ""
    text = f"{kind}{column.dtype or 'any type'} {shape_text(column.shape)}"
    bounds = range_text(column)
    return f"{text}, {bounds}" if bounds else text


def range_text(column: Column) -> str | None:
    """``0 to 255``, ``at least 0``; None where no range was given."""
    if column.low is None and column.high is None:
        return None
    if column.low is None:
        return f"at most {column.high:g}"
    return f"at least {column.low:g}" if column.high is None else f"{column.low:g} to {column.high:g}"


def name_of(column: Column) -> str:
    """A path in a sentence."""
    return f"`{column.path}`" if column.path else "the array of an element"


def starting(text: str) -> str:
    """The text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def count(part: Part, fault: DataFault) -> str:
    """``3 of 1,000 elements``."""
    of = part.dataset.elements
    noun = "batch" if part.dataset.batches else "element"
    plural = f"{noun}es" if noun == "batch" else f"{noun}s"
    if of < fault.elements:
        return f"{fault.elements:,} {noun if fault.elements == 1 else plural}"
    return f"{fault.elements:,} of {of:,} {noun if of == 1 else plural}"


def first(part: Part, fault: DataFault) -> Evidence:
    """The first affected element: its index, the position in it, the value."""
    position = "" if fault.position in {None, ()} else f" at position {shape_text(fault.position)}"
    noun = "batch" if part.dataset.batches else "element"
    expected = f"; expected: {fault.expected}" if fault.expected else ""
    path = part.column.path if part.column is not None else None
    return Evidence(
        claim=f"the first one is {noun} {fault.index:,}",
        seen=f"{fault.value or 'seen'}{position}{expected}",
        where=path or None,
    )


def evidence(part: Part, fault: DataFault) -> Found:
    """The first affected element, how many there are, and the specification that they were compared with."""
    affected = Evidence(claim="affected", seen=count(part, fault))
    if part.column is None or fault.kind in {"nan", "inf", "range", "index", "ragged"}:
        return (first(part, fault), affected)
    origin = ORIGINS[part.dataset.spec]
    return (first(part, fault), affected, Evidence(claim=origin, seen=column_text(part.column)))


def sureness(dataset: Dataset) -> Confidence:
    """How sure a difference from the specification is: an inferred one may be too narrow."""
    return "likely" if dataset.spec == "inferred" else "certain"


def of_fault(part: Part, kind: FaultKind, what: str, *fixes: Fix, values: bool = False) -> Finding | None:
    """The finding on one kind of fault at one path; None if there is none.

    ``what`` completes the sentence after the path: ``has NaN``. ``values``: a fault of values, needing no
    specification.
    """
    fault, column = part.fault(kind), part.column
    if fault is None or column is None:
        return None
    noun = "batch" if part.dataset.batches else "element"
    return Finding(
        evidence=evidence(part, fault),
        summary=f"{starting(name_of(column))} {what} in {count(part, fault)}; the first is {noun} {fault.index:,}.",
        confidence="certain" if values else sureness(part.dataset),
        fixes=fixes,
    )


_TYPES = frozenset({"int32", "int64", "uint32", "uint64", "int"})
"""Indices have these types; pixels and counts that are kept small have others."""


def is_index(column: Column) -> bool:
    """An integer of 32 or 64 bits with a range that starts at 0 or above."""
    return column.dtype in _TYPES and column.low is not None and column.low >= 0
