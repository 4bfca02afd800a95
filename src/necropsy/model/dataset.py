"""What a walk over a dataset saw: the columns of its elements, what is wrong with them, and how the walk ended."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Noun
from necropsy.model.concluded import Diagnosis, PythonPlace

FaultKind = Literal[
    "structure",
    "dtype",
    "rank",
    "shape",
    "inconsistent",
    "ragged",
    "empty",
    "nan",
    "inf",
    "range",
    "index",
]
ColumnKind = Literal["dense", "ragged", "sparse", "string", "number", "none", "object"]
SpecOrigin = Literal["given", "declared", "inferred"]
"""By the caller; by the dataset itself (``element_spec``); from its first elements."""
WalkEnd = Literal["end", "limit", "timeout", "error", "crash"]


class DataFault(Noun, frozen=True, kw_only=True):
    """One thing that is wrong at one path, and the first element in which it was seen."""

    kind: FaultKind
    elements: int
    """How many elements are affected."""
    index: int
    """The first of them, counted from 0."""
    position: tuple[int, ...] | None = None
    """Where in that element's array, as an index of NumPy."""
    value: str | None = None
    """What was found there."""
    expected: str | None = None


class Column(Noun, frozen=True, kw_only=True):
    """One part of every element: what it should be, which values it had, and what is wrong with it."""

    path: str
    """Inside the element: ``[0]['image']``; empty where the element is one array."""
    kind: ColumnKind = "dense"
    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None
    """null for a size that may vary; null as a whole where the rank may vary too."""
    low: int | float | None = None
    """The smallest allowed value, where a range was given."""
    high: int | float | None = None
    minimum: int | float | None = None
    """The smallest value that was seen, NaN and infinities left out."""
    maximum: int | float | None = None
    elements: int = 0
    """How many elements were checked at this path."""
    faults: tuple[DataFault, ...] = ()


class Raised(Noun, frozen=True, kw_only=True):
    """An exception that the pipeline raised."""

    type: str
    message: str
    index: int | None = None
    """The element that was being fetched, counted from 0; null: before the first one, in the function itself."""
    times: int = 1
    """How many elements could not be fetched, this one included."""
    place: PythonPlace | None = None


class Died(Noun, frozen=True, kw_only=True):
    """The process that walked over the dataset was killed."""

    index: int | None = None
    """The element that was being fetched or checked; null: before the first one."""
    last_index: int | None = None
    """The last element that it can have been, where several were fetched at a time."""
    phase: Literal["loading", "fetching", "checking"] = "fetching"
    how: str
    """The signal or the exit status."""
    worker: bool = False
    """It was a worker process that died, and the pipeline raised an exception because of it."""
    diagnosis: Diagnosis | None = None
    """What killed it; null where no rule recognised the cause."""


class Dataset(Noun, frozen=True, kw_only=True):
    """What a walk over a dataset saw."""

    type: str | None = None
    """The class of the dataset: ``tensorflow.data.Dataset``."""
    columns: tuple[Column, ...] = ()
    spec: SpecOrigin = "inferred"
    elements: int = 0
    """How many were fetched."""
    declared: int | None = None
    """How many the dataset says that it has."""
    batches: bool = False
    """Each element is a batch: its arrays share their first size."""
    ended: WalkEnd = "end"
    bytes: int = 0
    """Of all arrays that were checked."""
    seconds: float = 0.0
    largest: int = 0
    """Bytes of the largest element."""
    largest_index: int | None = None
    memory: int | None = None
    """Bytes that the process may use: of its control group, else of the machine."""
    raised: Raised | None = None
    died: Died | None = None


class Part(Noun, frozen=True, kw_only=True):
    """What a rule is asked about: one column, or the walk as a whole (``column`` is null)."""

    dataset: Dataset
    column: Column | None = None

    def fault(self, kind: FaultKind) -> DataFault | None:
        """What was seen of this kind at this path."""
        faults = self.column.faults if self.column is not None else ()
        return next((one for one in faults if one.kind == kind), None)
