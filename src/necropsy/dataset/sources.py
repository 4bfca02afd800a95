"""Sources of elements (``tf.data``, Keras, ``DataLoader``, arrays, iterables), recognised without any import."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from necropsy.dataset import spec as specs
from necropsy.dataset.leaves import leaves_of
from necropsy.dataset.spec import Want

BATCH = 4 << 20
"""Bytes fetched at a time if a source can stack its elements."""
MOST = 4096
"""Maximum elements fetched at a time."""


class NotADatasetError(Exception):
    """The object cannot be walked over; the text says why."""


class Source:
    """Elements one by one, from anything that can be iterated."""

    declared: int | None = None
    """The number of elements it announces."""
    batches = False
    """Each element is a batch, whose arrays share their first size."""
    resumes = False
    """It continues after an exception."""
    step = 1
    """Elements that ``start`` yields at a time, stacked along a new first axis."""
    spec: list[Want] | None = None

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.name = f"{type(dataset).__module__}.{type(dataset).__qualname__}".replace("builtins.", "")
        self.declared = _length(dataset)

    def start(self, limit: int | None) -> Iterator[Any]:
        """The elements from the first one on; no more than ``limit`` need be there."""
        del limit
        return iter(self.dataset)

    def one_by_one(self) -> None:
        """From the next start on, do not stack elements."""
        self.step = 1


class TensorFlow(Source):
    """A ``tf.data.Dataset``. Small elements of fixed sizes are stacked, which is a hundred times faster."""

    resumes = True

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset)
        self.name = "tf.data.Dataset"
        self.spec = specs.of_structure(dataset.element_spec)
        cardinality = int(dataset.cardinality())
        self.infinite = cardinality == -1
        self.declared = cardinality if cardinality >= 0 else None
        sizes = [_bytes_of(want) for want in self.spec]
        whole = sum(one for one in sizes if one is not None)
        if None not in sizes and whole > 0:
            self.step = max(1, min(MOST, BATCH // whole))

    def start(self, limit: int | None) -> Iterator[Any]:
        """An iterator of its own each time."""
        dataset = self.dataset if self.step > 1 else self._in_step()
        if limit is not None:
            dataset = dataset.take(limit)
        return iter(dataset.batch(self.step) if self.step > 1 else dataset)

    def _in_step(self) -> Any:
        """Without TensorFlow's own prefetching, so that the element being made is the requested one."""
        framework: Any = sys.modules.get("tensorflow")
        try:
            options = framework.data.Options()  # where it is None too, this raises AttributeError
            options.experimental_optimization.inject_prefetch = False
            options.autotune.enabled = False
        except AttributeError:
            return self.dataset
        return self.dataset.with_options(options)


def _bytes_of(want: Want) -> int | None:
    """Bytes of one element; None if they vary or it cannot be stacked."""
    if want.kind != "dense" or want.shape is None or None in want.shape or 0 in want.shape:
        return None
    try:
        item = 2 if want.dtype == "bfloat16" else np.dtype(want.dtype).itemsize
    except TypeError:
        return None
    size = item
    for one in want.shape:
        size *= one or 0
    return size


class Indexed(Source):
    """What is asked for by number: a Keras ``Sequence`` or ``PyDataset``, whose elements are batches."""

    resumes = True

    def __init__(self, dataset: Any, *, batches: bool) -> None:
        super().__init__(dataset)
        self.batches = batches
        if self.declared is None:
            raise NotADatasetError("its __len__ (num_batches) does not say how many batches it has")

    def start(self, limit: int | None) -> Iterator[Any]:
        """An exception of one element does not end the iteration."""
        del limit
        return _ByNumber(self.dataset, self.declared or 0)


class _ByNumber:
    def __init__(self, dataset: Any, length: int) -> None:
        self._dataset, self._length, self._next = dataset, length, 0

    def __iter__(self) -> _ByNumber:
        return self

    def __next__(self) -> Any:
        if self._next >= self._length:
            raise StopIteration
        self._next += 1
        try:
            return self._dataset[self._next - 1]
        except StopIteration as error:
            raise RuntimeError(f"__getitem__({self._next - 1}) raised StopIteration") from error


class Loader(Source):
    """A ``DataLoader`` of PyTorch; with ``batch_size=None`` its elements are no batches."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset)
        self.batches = getattr(dataset, "batch_sampler", None) is not None or bool(getattr(dataset, "batch_size", None))


class Arrays(Source):
    """Arrays of one length, cut along their first axis, as ``tf.data.Dataset.from_tensor_slices`` does."""

    def __init__(self, dataset: Any, arrays: list[tuple[str, Any]]) -> None:
        super().__init__(dataset)
        self.name = f"{self.name} of arrays"
        self.arrays = arrays
        self.declared = min(len(array) for _, array in arrays)
        self.lengths = [len(array) for _, array in arrays]
        self.spec = [
            Want(path, "string" if array.dtype.kind in "SUO" else "dense", _name(array), array.shape[1:])
            for path, array in arrays
        ]
        row = sum(array.nbytes // max(1, len(array)) for _, array in arrays)
        self.step = max(1, min(1 << 16, BATCH // max(1, row)))

    def start(self, limit: int | None) -> Iterator[Any]:
        """Views of the arrays: nothing is copied."""
        most = self.declared or 0
        if limit is not None:
            most = min(most, limit)
        for at in range(0, most, self.step):
            stop = min(most, at + self.step)
            yield Rows([(path, array[at:stop]) for path, array in self.arrays])

    def one_by_one(self) -> None:
        """Slices of an array raise nothing."""


class Rows(list):  # type: ignore[type-arg]  # list[...] as a base class takes Python 3.9
    """Stacked elements as pairs of a path and an array."""


def _name(array: Any) -> str:
    return "string" if array.dtype.kind in "SUO" else str(array.dtype.name)


def source_of(dataset: Any) -> Source:
    """Choose how to walk over ``dataset``; raises ``NotADatasetError`` if it is not iterable or is empty."""
    modules = [one.__module__ + "." + one.__qualname__ for one in type(dataset).__mro__]
    if any(one.startswith("tensorflow.") for one in modules) and hasattr(dataset, "element_spec"):
        return TensorFlow(dataset)
    if any(one.endswith(("PyDataset", ".Sequence")) and "keras" in one for one in modules):
        return Indexed(dataset, batches=True)
    if any(one.startswith("torch.utils.data.") and one.endswith("DataLoader") for one in modules):
        return Loader(dataset)
    arrays = _arrays(dataset)
    if arrays:
        return Arrays(dataset, arrays)
    if isinstance(dataset, (str, bytes)) or dataset is None:
        raise NotADatasetError(f"{type(dataset).__name__} is not a dataset")
    if isinstance(dataset, Mapping):
        raise NotADatasetError("a dict is a dataset only where each of its values is an array (or a dict of arrays)")
    if hasattr(type(dataset), "__iter__"):
        return Source(dataset)
    if hasattr(type(dataset), "__getitem__") and _length(dataset) is not None:
        return Indexed(dataset, batches=False)
    raise NotADatasetError(f"{type(dataset).__qualname__} cannot be iterated")


def _arrays(dataset: Any, path: str = "") -> list[tuple[str, Any]]:
    """The arrays of a possibly nested array, tuple or dict; none if it contains anything else."""
    if type(dataset).__module__.startswith("pandas.") and hasattr(dataset, "to_numpy"):
        dataset = {name: dataset[name].to_numpy() for name in dataset} if dataset.ndim == 2 else dataset.to_numpy()
    if hasattr(dataset, "shape") and hasattr(dataset, "dtype"):
        leaves = leaves_of(dataset)
        array = dataset if isinstance(dataset, np.ndarray) else leaves[0].array
        usable = leaves[0].kind in {"dense", "string"} and array is not None and array.ndim
        return [(path, array)] if usable else []
    if isinstance(dataset, tuple):
        parts = [(f"{path}[{place}]", one) for place, one in enumerate(dataset)]
    elif isinstance(dataset, Mapping):
        parts = [(f"{path}[{key!r}]", one) for key, one in dataset.items()]
    else:
        return []
    found: list[tuple[str, Any]] = []
    for name, one in parts:
        inner = _arrays(one, name)
        if not inner:
            return []
        found += inner
    return found


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # noqa: BLE001 - a length that cannot be told is none
        return None
